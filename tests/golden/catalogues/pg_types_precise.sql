-- The tables of the capture pg_types_precise, as they were at its end.
CREATE EXTENSION hstore;
CREATE EXTENSION citext;
CREATE EXTENSION ltree;
CREATE TYPE mood AS ENUM ('sad', 'ok', 'it''s, "happy"');
CREATE DOMAIN dom AS integer;
CREATE DOMAIN domnum AS numeric(8,2);
CREATE TABLE public."typ" (
  "id" bigint NOT NULL,
  "c_bool" boolean,
  "c_i2" smallint,
  "c_i4" integer,
  "c_i8" bigint,
  "c_f4" real,
  "c_f8" double precision,
  "c_num38_9" numeric(38,9),
  "c_num5_0" numeric(5,0),
  "c_num18_18" numeric(18,18),
  "c_num" numeric,
  "c_numneg" numeric(5,-2),
  "c_money" money,
  "c_char" character(10),
  "c_varchar" character varying(50),
  "c_text" text,
  "c_bytea" bytea,
  "c_uuid" uuid,
  "c_json" json,
  "c_jsonb" jsonb,
  "c_xml" xml,
  "c_date" date,
  "c_time" time without time zone,
  "c_time3" time(3) without time zone,
  "c_time0" time(0) without time zone,
  "c_timetz" time with time zone,
  "c_ts" timestamp without time zone,
  "c_ts3" timestamp(3) without time zone,
  "c_ts0" timestamp(0) without time zone,
  "c_tstz" timestamp with time zone,
  "c_tstz0" timestamp(0) with time zone,
  "c_interval" interval,
  "c_enum" mood,
  "c_hstore" hstore,
  "c_inet" inet,
  "c_cidr" cidr,
  "c_mac" macaddr,
  "c_point" point,
  "c_bit" bit(1),
  "c_bits" bit(9),
  "c_varbit" bit varying(20),
  "c_i4range" int4range,
  "c_tstzrange" tstzrange,
  "c_citext" citext,
  "c_ltree" ltree,
  "c_oid" oid,
  "c_tsv" tsvector,
  "c_domain" dom,
  "c_domnum" domnum,
  PRIMARY KEY ("id")
);
CREATE TABLE public."arr" (
  "id" integer NOT NULL,
  "a_i4" integer[],
  "a_i8" bigint[],
  "a_text" text[],
  "a_num" numeric(10,2)[],
  "a_bool" boolean[],
  "a_f8" double precision[],
  "a_date" date[],
  "a_ts" timestamp without time zone[],
  "a_tstz" timestamp with time zone[],
  "a_uuid" uuid[],
  "a_enum" mood[],
  "a_2d" integer[],
  "a_json" jsonb[],
  "a_bytea" bytea[],
  PRIMARY KEY ("id")
);
CREATE TABLE public."special" (
  "id" integer NOT NULL,
  "what" text,
  "ts" timestamp without time zone,
  "tstz" timestamp with time zone,
  "d" date,
  "num" numeric,
  "num2" numeric(20,4),
  "f" double precision,
  PRIMARY KEY ("id")
);
CREATE TABLE public."toasty" (
  "id" integer NOT NULL,
  "n" integer,
  "big" text,
  "big2" character varying(200000),
  "bin" bytea,
  "js" jsonb,
  "ja" json,
  "arr" integer[],
  "tarr" text[],
  "barr" bigint[],
  "h" hstore,
  "x" xml,
  PRIMARY KEY ("id")
);
CREATE TABLE public."toasty_full" (
  "id" integer NOT NULL,
  "n" integer,
  "big" text,
  "big2" character varying(200000),
  "bin" bytea,
  "js" jsonb,
  "ja" json,
  "arr" integer[],
  "tarr" text[],
  "barr" bigint[],
  "h" hstore,
  "x" xml,
  PRIMARY KEY ("id")
);
CREATE TABLE public."evolve" (
  "id" integer NOT NULL,
  "a" bigint,
  "b_renamed" character varying(20),
  "c" numeric(20,4),
  "d" character varying(300),
  "e" text,
  "f" timestamp with time zone NOT NULL,
  "gone" boolean,
  "g" integer,
  PRIMARY KEY ("id")
);
CREATE TABLE public."evolve_untouched" (
  "id" integer NOT NULL,
  "a" integer,
  "z" integer,
  "w" text,
  PRIMARY KEY ("id")
);
CREATE TABLE public."trunc1" (
  "id" integer NOT NULL,
  "v" text,
  PRIMARY KEY ("id")
);
CREATE TABLE public."trunc2" (
  "id" integer NOT NULL,
  "t1" integer,
  "v" text,
  PRIMARY KEY ("id")
);
CREATE TABLE public."nopk" (
  "a" integer,
  "b" text
);
CREATE TABLE public."gen" (
  "id" integer NOT NULL,
  "a" integer,
  "b" integer GENERATED ALWAYS AS (a * 2) STORED,
  PRIMARY KEY ("id")
);
CREATE TABLE public."nametype" (
  "id" integer NOT NULL,
  "nm" name,
  "v" text,
  PRIMARY KEY ("id")
);
CREATE TABLE public."toasty_num" (
  "id" integer NOT NULL,
  "n" integer,
  "num" numeric,
  PRIMARY KEY ("id")
);
CREATE TABLE public."dflt" (
  "id" integer NOT NULL,
  "s" text,
  "n" integer,
  "t" timestamp with time zone,
  "nn" text NOT NULL,
  "b" boolean,
  "d" numeric(10,2),
  PRIMARY KEY ("id")
);
CREATE TABLE public."nn" (
  "id" integer NOT NULL,
  "i" integer NOT NULL,
  "s" text NOT NULL,
  "b" boolean NOT NULL,
  "d" numeric(10,2) NOT NULL,
  "f" double precision NOT NULL,
  "by" bytea NOT NULL,
  "u" uuid NOT NULL,
  "dt" date NOT NULL,
  "ts" timestamp with time zone NOT NULL,
  "j" jsonb NOT NULL,
  PRIMARY KEY ("id")
);
CREATE TABLE public."parted" (
  "id" integer NOT NULL,
  "region" text NOT NULL,
  "v" text,
  PRIMARY KEY ("id", "region")
) PARTITION BY LIST (region);
CREATE TABLE public."Odd Table" (
  "Id" integer,
  "Select" text,
  "a.b" integer,
  "x-y" integer,
  "naïve" text,
  "with space" text,
  "UPPER" text,
  "1st" integer,
  "dollar$" integer,
  PRIMARY KEY ("Id")
);
