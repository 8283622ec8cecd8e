-- The tables of the capture pg_load, as they were at its end.
CREATE SCHEMA inventory;
CREATE TABLE inventory."customers" (
  "id" bigint NOT NULL,
  "email" character varying(80),
  "balance" numeric(12,2) NOT NULL,
  "vip" boolean,
  "seen" timestamp with time zone,
  PRIMARY KEY ("id")
);
CREATE TABLE inventory."orders" (
  "id" bigint NOT NULL,
  "customer_id" bigint,
  "status" text NOT NULL,
  "total" numeric(14,4),
  "placed" timestamp without time zone,
  "tags" text[],
  PRIMARY KEY ("id")
);
CREATE TABLE inventory."order_items" (
  "order_id" bigint NOT NULL,
  "line" integer NOT NULL,
  "sku" text,
  "qty" integer,
  "price" numeric(10,2),
  PRIMARY KEY ("order_id", "line")
);
CREATE TABLE inventory."stock" (
  "warehouse" text NOT NULL,
  "sku" text NOT NULL,
  "qty" bigint NOT NULL,
  "updated" bigint,
  PRIMARY KEY ("warehouse", "sku")
);
CREATE TABLE inventory."notes" (
  "id" uuid NOT NULL,
  "n" integer,
  "body" text,
  PRIMARY KEY ("id")
);
