-- The tables of the capture maria_types_precise, as they were at its end.
CREATE TABLE `typ` (
  `id` bigint(20) NOT NULL,
  `c_bool` tinyint(1),
  `c_ti` tinyint(4),
  `c_tiu` tinyint(3) unsigned,
  `c_si` smallint(6),
  `c_mi` mediumint(9),
  `c_i` int(11),
  `c_iu` int(10) unsigned,
  `c_bi` bigint(20),
  `c_biu` bigint(20) unsigned,
  `c_dec38_9` decimal(38,9),
  `c_dec65_30` decimal(65,30),
  `c_dec5_0` decimal(5,0),
  `c_decu` decimal(10,2) unsigned,
  `c_f` float,
  `c_d` double,
  `c_bit1` bit(1),
  `c_bit9` bit(9),
  `c_char` char(10),
  `c_vc` varchar(60),
  `c_text` text,
  `c_lt` longtext,
  `c_latin` varchar(20),
  `c_bin16` binary(16),
  `c_vb` varbinary(30),
  `c_blob` blob,
  `c_json` longtext,
  `c_enum` enum('a','b,c','d''e'),
  `c_set` set('x','y','z'),
  `c_date` date,
  `c_time` time,
  `c_time6` time(6),
  `c_dt` datetime,
  `c_dt3` datetime(3),
  `c_dt6` datetime(6),
  `c_ts` timestamp NULL,
  `c_ts6` timestamp(6) NULL,
  `c_year` year,
  `c_uuid` uuid,
  `c_pt` point,
  PRIMARY KEY (`id`)
);
CREATE TABLE `acct` (
  `id` int(11) NOT NULL,
  `v` text,
  `n` int(11) NOT NULL,
  PRIMARY KEY (`id`)
);
CREATE TABLE `pair` (
  `a` int(11) NOT NULL,
  `b` varchar(20) NOT NULL,
  `v` int(11),
  `note` text,
  PRIMARY KEY (`a`, `b`)
);
CREATE TABLE `evolve` (
  `gone` tinyint(1),
  `id` int(11) NOT NULL,
  `a` bigint(20),
  `e` varchar(20),
  `b_renamed` varchar(20),
  `c` decimal(20,4),
  `d` varchar(300),
  `g` int(11),
  PRIMARY KEY (`id`)
);
CREATE TABLE `evolve_untouched` (
  `id` int(11) NOT NULL,
  `a` int(11),
  `z` int(11),
  PRIMARY KEY (`id`)
);
CREATE TABLE `trunc1` (
  `id` int(11) NOT NULL AUTO_INCREMENT,
  `v` text,
  PRIMARY KEY (`id`)
);
CREATE TABLE `nopk` (
  `a` int(11),
  `b` varchar(20)
);
CREATE TABLE `dflt` (
  `id` int(11) NOT NULL,
  `s` varchar(20),
  `n` int(11),
  `t` timestamp NULL,
  `nn` varchar(20) NOT NULL,
  `b` tinyint(1),
  `d` decimal(10,2),
  `dt` datetime,
  PRIMARY KEY (`id`)
);
CREATE TABLE `nn` (
  `id` int(11) NOT NULL,
  `i` int(11) NOT NULL,
  `s` varchar(20) NOT NULL,
  `d` date NOT NULL,
  `dt` datetime NOT NULL,
  `ts` timestamp NOT NULL,
  PRIMARY KEY (`id`)
);
CREATE TABLE `gen` (
  `id` int(11) NOT NULL,
  `a` int(11),
  `b` int(11) AS (a * 2) STORED,
  `vv` int(11) AS (a + 1) VIRTUAL,
  `inv` int(11) DEFAULT 9 INVISIBLE,
  PRIMARY KEY (`id`)
);
CREATE TABLE `odd table` (
  `Id` int(11) NOT NULL,
  `Select` varchar(20),
  `a.b` int(11),
  `x-y` int(11),
  `naïve` varchar(20),
  `with space` varchar(20),
  `1st` int(11),
  PRIMARY KEY (`Id`)
);
