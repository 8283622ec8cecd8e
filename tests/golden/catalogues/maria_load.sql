-- The tables of the capture maria_load, as they were at its end.
CREATE TABLE `customers` (
  `id` bigint(20) NOT NULL,
  `email` varchar(80),
  `balance` decimal(12,2) NOT NULL,
  `vip` tinyint(1),
  `seen` datetime(6),
  `note` varchar(50),
  PRIMARY KEY (`id`)
);
CREATE TABLE `items` (
  `order_id` bigint(20) NOT NULL,
  `line` int(11) NOT NULL,
  `sku` varchar(20),
  `qty` bigint(20),
  `price` decimal(10,2),
  PRIMARY KEY (`order_id`, `line`)
);
CREATE TABLE `stock` (
  `warehouse` varchar(10) NOT NULL,
  `sku` varchar(20) NOT NULL,
  `qty` bigint(20) NOT NULL,
  `updated` bigint(20) unsigned,
  PRIMARY KEY (`warehouse`, `sku`)
);
