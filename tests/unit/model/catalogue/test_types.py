"""Column types of which no capture holds an event, as the databases' documented views and Debezium's reference have them."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc.model.pull.settings import catalogues
from tests.unit.model.catalogue.spelled import TIME, decimal, spelled

SQL_SERVER: list[tuple[tuple[Any, ...], str, Any]] = [
    # name, type, base type, max_length, precision, scale
    (("c", "smallint", "smallint", 2, 5, 0), "smallint", ("int16",)),
    (("c", "real", "real", 4, 24, 0), "real", ("float",)),
    (("c", "smallmoney", "smallmoney", 4, 10, 4), "smallmoney", decimal(10, 4)),
    (("c", "numeric", "numeric", 9, 18, 0), "numeric(18,0)", decimal(18, 0)),
    (("c", "smalldatetime", "smalldatetime", 4, 16, 0), "smalldatetime", ("int64", f"{TIME}.Timestamp")),
    (("c", "char", "char", 10, 0, 0), "char(10)", ("string",)),
    (("c", "nchar", "nchar", 20, 0, 0), "nchar(10)", ("string",)),
    (("c", "text", "text", 16, 0, 0), "text", ("string",)),
    (("c", "xml", "xml", -1, 0, 0), "xml", ("string", "io.debezium.data.Xml")),
    (("c", "varbinary", "varbinary", -1, 0, 0), "varbinary(max)", ("bytes",)),
    (("c", "image", "image", 16, 0, 0), "image", ("bytes",)),
    # An alias type, and sysname.
    (("c", "Money2", "decimal", 9, 19, 4), "Money2(19,4)", decimal(19, 4)),
    (("c", "sysname", "nvarchar", 256, 0, 0), "sysname(128)", ("string",)),
    (("c", "timestamp", "timestamp", 8, 0, 0), "timestamp", None),
    (("c", "sql_variant", "sql_variant", 8016, 0, 0), "sql_variant", None),
    (("c", "hierarchyid", "hierarchyid", 892, 0, 0), "hierarchyid", None),
    (("c", "geography", "geography", -1, 0, 0), "geography", None),
]

VARIABLE = ("struct", "io.debezium.data.VariableScaleDecimal")
ORACLE: list[tuple[tuple[Any, ...], str, Any]] = [
    # column_name, data_type, data_length, char_length, data_precision, data_scale
    (("C", "NUMBER", 22, 0, 2, 0), "NUMBER(2,0)", ("int8",)),
    (("C", "NUMBER", 22, 0, 3, 0), "NUMBER(3,0)", ("int16",)),
    (("C", "NUMBER", 22, 0, 9, 0), "NUMBER(9,0)", ("int32",)),
    (("C", "NUMBER", 22, 0, 18, 0), "NUMBER(18,0)", ("int64",)),
    (("C", "NUMBER", 22, 0, 19, 0), "NUMBER(19,0)", decimal(19, 0)),
    # INTEGER
    (("C", "NUMBER", 22, 0, None, 0), "NUMBER(*,0)", decimal(38, 0)),
    (("C", "NUMBER", 22, 0, 6, -3), "NUMBER(6,-3)", ("int32",)),
    (("C", "NUMBER", 22, 0, 36, -2), "NUMBER(36,-2)", decimal(36, -2)),
    (("C", "NUMBER", 22, 0, None, None), "NUMBER", VARIABLE),
    (("C", "FLOAT", 22, 0, 126, None), "FLOAT(126)", VARIABLE),
    (("C", "BINARY_FLOAT", 4, 0, None, None), "BINARY_FLOAT", ("float",)),
    (("C", "CHAR", 40, 10, None, None), "CHAR(10)", ("string",)),
    (("C", "NVARCHAR2", 100, 50, None, None), "NVARCHAR2(50)", ("string",)),
    (("C", "TIMESTAMP(0)", 7, 0, None, 0), "TIMESTAMP(0)", ("int64", f"{TIME}.Timestamp")),
    (("C", "TIMESTAMP(6) WITH LOCAL TIME ZONE", 11, 0, None, 6), "TIMESTAMP(6) WITH LOCAL TIME ZONE", ("string", f"{TIME}.ZonedTimestamp")),
    (("C", "NCLOB", 4000, 0, None, None), "NCLOB", ("string",)),
    (("C", "BLOB", 4000, 0, None, None), "BLOB", ("bytes",)),
    (("C", "XMLTYPE", 2000, 0, None, None), "XMLTYPE", ("string", "io.debezium.data.Xml")),
    (("C", "JSON", 8200, 0, None, None), "JSON", ("string", "io.debezium.data.Json")),
    (("C", "ROWID", 10, 0, None, None), "ROWID", ("string",)),
    *(
        ((("C", name, 10, 0, None, None), name, None))
        for name in ("BFILE", "BOOLEAN", "LONG", "LONG RAW", "UROWID", "VECTOR", "SDO_GEOMETRY")
    ),
]

DB2: list[tuple[tuple[Any, ...], str, Any]] = [
    # colname, typeschema, typename, length, scale, codepage
    (("C", "SYSIBM", "BOOLEAN", 1, 0, 0), "BOOLEAN", ("boolean",)),
    (("C", "SYSIBM", "SMALLINT", 2, 0, 0), "SMALLINT", ("int16",)),
    (("C", "SYSIBM", "INTEGER", 4, 0, 0), "INTEGER", ("int32",)),
    (("C", "SYSIBM", "BIGINT", 8, 0, 0), "BIGINT", ("int64",)),
    (("C", "SYSIBM", "REAL", 4, 0, 0), "REAL", ("float",)),
    (("C", "SYSIBM", "DOUBLE", 8, 0, 0), "DOUBLE", ("double",)),
    (("C", "SYSIBM", "CHARACTER", 10, 0, 1208), "CHARACTER(10)", ("string",)),
    (("C", "SYSIBM", "VARCHAR", 50, 0, 1208), "VARCHAR(50)", ("string",)),
    (("C", "SYSIBM", "CLOB", 1048576, 0, 1208), "CLOB", ("string",)),
    (("C", "SYSIBM", "VARGRAPHIC", 20, 0, 1200), "VARGRAPHIC(20)", ("string",)),
    (("C", "SYSIBM", "BLOB", 1048576, 0, 0), "BLOB", ("bytes",)),
    (("C", "SYSIBM", "VARBINARY", 16, 0, 0), "VARBINARY(16)", ("bytes",)),
    (("C", "SYSIBM", "XML", 0, 0, 0), "XML", ("string", "io.debezium.data.Xml")),
    (("C", "SYSIBM", "TIMESTAMP", 10, 6, 0), "TIMESTAMP(6)", ("int64", f"{TIME}.MicroTimestamp")),
    (("C", "SYSIBM", "VARCHAR", 16, 0, 0), "VARCHAR(16) FOR BIT DATA", None),
    (("C", "SYSIBM", "DECFLOAT", 16, 0, 0), "DECFLOAT", None),
    (("C", "SHOP", "EURO", 9, 2, 0), "EURO", None),
]


@pytest.mark.parametrize(
    ("connector", "row", "native", "field"),
    [
        *(("sqlserver", *case) for case in SQL_SERVER),
        *(("oracle", *case) for case in ORACLE),
        *(("db2", *case) for case in DB2),
    ],
)
def test_a_row_of_the_catalogue_is_the_field_that_the_connector_writes(
    connector: str, row: tuple[Any, ...], native: str, field: tuple[Any, ...] | None
) -> None:
    assert spelled(connector, row) == field
    assert catalogues()[connector].column_of(row).native == native


@pytest.mark.parametrize("mode", ["double", "string"])
def test_numbers_of_oracle_that_are_no_decimals_of_one_scale(mode: str) -> None:
    for row in (
        ("C", "NUMBER", 22, 0, 10, 0),
        ("C", "NUMBER", 22, 0, None, None),
        ("C", "FLOAT", 22, 0, 126, None),
        ("C", "NUMBER", 22, 0, 36, -2),
    ):
        assert spelled("oracle", row, decimal_handling_mode=mode) == (mode,)
    assert spelled("oracle", ("C", "NUMBER", 22, 0, 6, -3), decimal_handling_mode=mode) == ("int32",)


@pytest.mark.parametrize("mode", ["double", "string"])
def test_numbers_of_postgresql_that_are_no_decimals_of_one_scale(mode: str) -> None:
    numeric = ("c", "numeric", "numeric", "b", False, -1, None)
    money = ("c", "money", "money", "b", False, -1, None)
    assert spelled("postgresql", numeric) == VARIABLE
    assert spelled("postgresql", numeric, decimal_handling_mode=mode) == (mode,)
    assert spelled("postgresql", money, decimal_handling_mode=mode) == (mode,)


@pytest.mark.parametrize(
    ("type_name", "field"),
    [
        ("geometry", ("struct", "io.debezium.data.geometry.Geometry")),
        ("geography", ("struct", "io.debezium.data.geometry.Geography")),
        ("vector", ("array", "io.debezium.data.DoubleVector", ("double",))),
        ("halfvec", ("array", "io.debezium.data.FloatVector", ("float",))),
        ("sparsevec", None),
    ],
)
def test_types_of_postgresql_extensions(type_name: str, field: tuple[Any, ...] | None) -> None:
    assert spelled("postgresql", ("c", type_name, type_name, "b", False, -1, None)) == field


def test_a_type_of_others_is_not_taken_for_a_base_type_of_its_name() -> None:
    assert spelled("postgresql", ("c", "point", "point", "c", False, -1, None)) is None


def test_types_of_mysql_that_mariadb_does_not_have() -> None:
    assert spelled("mysql", ("c", "json", b"json", None, None, None)) == ("string", "io.debezium.data.Json")
    assert spelled("mysql", ("c", "vector(3)", "vector", None, None, None)) == ("array", "io.debezium.data.FloatVector", ("float",))
    assert spelled("mysql", ("c", "geomcollection", "geomcollection", None, None, None)) == ("struct", "io.debezium.data.geometry.Geometry")
