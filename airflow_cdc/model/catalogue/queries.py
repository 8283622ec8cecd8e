"""The SQL that asks a database's catalogue: which tables there are, a table's columns, its primary key.

``?`` stands for a parameter, the schema and then the table; :func:`in_style` spells it as the driver wants it. No statement holds another
``?``, a ``%`` or a ``:``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import count


@dataclass(frozen=True)
class Queries:
    """The statements for one kind of database."""

    tables: str
    """Database, schema and name of each table that is no system's. MySQL's databases are its schemas."""
    columns: str
    """Rows of the table's columns in their order, as ``column_of`` of that database's module takes them."""
    keys: str
    """Names of the primary key's columns in its order."""


_POSTGRESQL = Queries(
    tables="""
SELECT current_database(), n.nspname, c.relname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'p') AND n.nspname NOT IN ('pg_catalog', 'information_schema') ORDER BY 2, 3""",
    # A domain is followed to the type that it is based on; the modifier is the first on the way.
    columns="""
WITH RECURSIVE found AS (
  SELECT a.attnum AS place, a.attname, pg_catalog.format_type(a.atttypid, a.atttypmod) AS native,
    a.atttypid AS type, a.atttypmod AS modifier
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_class c ON c.oid = a.attrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
  WHERE n.nspname = ? AND c.relname = ? AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped
  UNION ALL
  SELECT f.place, f.attname, f.native, t.typbasetype, CASE WHEN f.modifier = -1 THEN t.typtypmod ELSE f.modifier END
  FROM found f JOIN pg_catalog.pg_type t ON t.oid = f.type WHERE t.typtype = 'd'
)
SELECT f.attname, f.native, coalesce(e.typname, t.typname), coalesce(e.typtype, t.typtype), e.oid IS NOT NULL, f.modifier,
  (SELECT string_agg(l.enumlabel, ',' ORDER BY l.enumsortorder) FROM pg_catalog.pg_enum l WHERE l.enumtypid = coalesce(e.oid, t.oid))
FROM found f JOIN pg_catalog.pg_type t ON t.oid = f.type AND t.typtype <> 'd' LEFT JOIN pg_catalog.pg_type e ON e.typarray = t.oid
ORDER BY f.place""",
    keys="""
SELECT a.attname FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = k.conrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace CROSS JOIN LATERAL unnest(k.conkey) WITH ORDINALITY AS m (attnum, place)
JOIN pg_catalog.pg_attribute a ON a.attrelid = c.oid AND a.attnum = m.attnum
WHERE k.contype = 'p' AND n.nspname = ? AND c.relname = ? ORDER BY m.place""",
)

_MYSQL = Queries(
    tables="""
SELECT table_schema, table_schema, table_name FROM information_schema.tables
WHERE table_type = 'BASE TABLE' AND table_schema NOT IN ('information_schema', 'mysql', 'performance_schema', 'sys') ORDER BY 2, 3""",
    columns="""
SELECT column_name, column_type, data_type, numeric_precision, numeric_scale, datetime_precision FROM information_schema.columns
WHERE table_schema = ? AND table_name = ? ORDER BY ordinal_position""",
    keys="""
SELECT column_name FROM information_schema.key_column_usage
WHERE constraint_name = 'PRIMARY' AND table_schema = ? AND table_name = ? ORDER BY ordinal_position""",
)

_SQL_SERVER = Queries(
    tables="""
SELECT DB_NAME(), s.name, t.name FROM sys.tables t JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE t.is_ms_shipped = 0 ORDER BY s.name, t.name""",
    # An alias type is followed to the type that it is one of; a CLR type is of none.
    columns="""
SELECT c.name, d.name, coalesce(b.name, d.name), c.max_length, c.precision, c.scale
FROM sys.columns c JOIN sys.tables t ON t.object_id = c.object_id JOIN sys.schemas s ON s.schema_id = t.schema_id
JOIN sys.types d ON d.user_type_id = c.user_type_id LEFT JOIN sys.types b ON b.user_type_id = c.system_type_id
WHERE s.name = ? AND t.name = ? ORDER BY c.column_id""",
    keys="""
SELECT c.name FROM sys.indexes i JOIN sys.index_columns m ON m.object_id = i.object_id AND m.index_id = i.index_id
JOIN sys.columns c ON c.object_id = m.object_id AND c.column_id = m.column_id
JOIN sys.tables t ON t.object_id = i.object_id JOIN sys.schemas s ON s.schema_id = t.schema_id
WHERE i.is_primary_key = 1 AND m.key_ordinal > 0 AND s.name = ? AND t.name = ? ORDER BY m.key_ordinal""",
)

_ORACLE = Queries(
    tables="""
SELECT sys_context('USERENV', 'DB_NAME'), owner, table_name FROM all_tables
WHERE owner NOT IN (SELECT username FROM all_users WHERE oracle_maintained = 'Y') ORDER BY owner, table_name""",
    columns="""
SELECT column_name, data_type, data_length, char_length, data_precision, data_scale FROM all_tab_columns
WHERE owner = ? AND table_name = ? ORDER BY column_id""",
    keys="""
SELECT m.column_name FROM all_constraints k JOIN all_cons_columns m ON m.owner = k.owner AND m.constraint_name = k.constraint_name
WHERE k.constraint_type = 'P' AND k.owner = ? AND k.table_name = ? ORDER BY m.position""",
)

_DB2 = Queries(
    tables="""
SELECT CURRENT SERVER, RTRIM(tabschema), tabname FROM syscat.tables WHERE type = 'T' AND ownertype = 'U' ORDER BY 2, 3""",
    columns="""
SELECT colname, typeschema, typename, length, scale, codepage FROM syscat.columns WHERE tabschema = ? AND tabname = ? ORDER BY colno""",
    keys="""
SELECT m.colname FROM syscat.tabconst k JOIN syscat.keycoluse m
ON m.constname = k.constname AND m.tabschema = k.tabschema AND m.tabname = k.tabname
WHERE k.type = 'P' AND k.tabschema = ? AND k.tabname = ? ORDER BY m.colseq""",
)

QUERIES: Mapping[str, Queries] = {
    "postgresql": _POSTGRESQL,
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlserver": _SQL_SERVER,
    "oracle": _ORACLE,
    "db2": _DB2,
}
"""By connector."""


def in_style(sql: str, placeholder: str) -> str:
    """Return a statement with its parameters as a driver wants them.

    :param placeholder: ``?``, ``%s``, or ``:`` where parameters are numbered (``:1``).
    """
    numbers = count(1)
    return "".join(
        (f":{next(numbers)}" if placeholder == ":" else placeholder) if character == "?" else character for character in sql.strip()
    )
