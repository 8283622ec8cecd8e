"""Which values a column holds, and a position as SQL."""

from __future__ import annotations

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.decode.position_literal import position_literal
from airflow_cdc.pipeline.decode.types.column_types import holds

INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
TYPES = (
    *INTEGERS,
    "FLOAT",
    "DOUBLE",
    "DECIMAL(10,2)",
    "DECIMAL(38,0)",
    "BOOLEAN",
    "STRING",
    "BINARY",
    "DATE",
    "TIMESTAMP",
    "TIMESTAMP_NTZ",
)


@pytest.mark.parametrize("kind", TYPES)
def test_a_column_holds_its_own_type_and_text_holds_everything(kind: str) -> None:
    assert holds(kind, kind)
    # Bytes are no text: cast, they would be read as UTF-8.
    assert holds("STRING", kind) is (kind != "BINARY")
    assert holds(kind, "STRING") is (kind == "STRING")


def test_an_integer_column_holds_the_narrower_ones() -> None:
    held = {(column, value) for column in INTEGERS for value in INTEGERS if holds(column, value)}
    assert held == {(INTEGERS[wide], INTEGERS[narrow]) for wide in range(4) for narrow in range(wide + 1)}


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        # 53 bits of a double hold every 32-bit integer and no 64-bit one
        ("DOUBLE", "FLOAT", True),
        ("DOUBLE", "INT", True),
        ("DOUBLE", "BIGINT", False),
        ("DOUBLE", "DECIMAL(10,2)", False),
        ("FLOAT", "DOUBLE", False),
        ("FLOAT", "INT", False),
        ("BIGINT", "DOUBLE", False),
        ("INT", "BOOLEAN", False),
        # decimals: as many digits on either side of the point
        ("DECIMAL(12,2)", "DECIMAL(10,2)", True),
        ("DECIMAL(10,2)", "DECIMAL(12,2)", False),
        ("DECIMAL(12,4)", "DECIMAL(10,2)", True),
        ("DECIMAL(10,4)", "DECIMAL(10,2)", False),
        ("DECIMAL(10,2)", "DECIMAL(10,4)", False),
        ("DECIMAL(38,38)", "DECIMAL(1,0)", False),
        ("DECIMAL(38,0)", "DECIMAL(38,0)", True),
        ("DECIMAL(10,2)", "DOUBLE", False),
        ("BIGINT", "DECIMAL(10,0)", False),
        # times
        ("DATE", "TIMESTAMP", False),
        ("DATE", "TIMESTAMP_NTZ", False),
        ("TIMESTAMP", "TIMESTAMP_NTZ", False),
        ("TIMESTAMP_NTZ", "TIMESTAMP", False),
        ("BOOLEAN", "INT", False),
        ("BINARY", "INT", False),
    ],
)
def test_a_column_holds_another_type_only_where_no_value_is_lost(column: str, value: str, expected: bool) -> None:
    assert holds(column, value) is expected


@pytest.mark.parametrize(
    "position",
    [
        Position(0),
        Position(1, 2, 3),
        Position(2**80 - 1, 2**80 - 1, 2),
        Position(10**38 - 1, 10**38 - 1, 2**63 - 1),
        Position(5, -1, -1),
        Position(0, 0, 0),
    ],
)
def test_a_position_is_itself_in_sql(position: Position, spark: SparkSession) -> None:
    (row,) = spark.sql(f"SELECT p.*, typeof(p) AS kind FROM (SELECT {position_literal(position)} AS p)").collect()
    assert Position(int(row["commit"]), int(row["change"]), int(row["serial"])) == position
    assert row["kind"] == "struct<commit:decimal(38,0),change:decimal(38,0),serial:bigint>"


def test_positions_compare_in_sql_as_they_do_in_python(spark: SparkSession) -> None:
    positions = [Position(9), Position(10), Position(9, 9, 2), Position(9, 10, 1), Position(9, 10, 2), Position(9, 10, 10), Position(2**80)]
    pairs = [(one, other) for one in positions for other in positions]
    compared = ", ".join(f"{position_literal(one)} < {position_literal(other)} AS p{number}" for number, (one, other) in enumerate(pairs))
    (row,) = spark.sql(f"SELECT {compared}").collect()
    assert list(row) == [one < other for one, other in pairs]
