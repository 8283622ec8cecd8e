"""Rows are in Spark's order: NULL first, NaN last, texts by their bytes."""

from __future__ import annotations

import math
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.look.flow_rows import read_rows_natively
from airflow_cdc.pipeline.look.native_table import NeedsSparkError
from tests.support.small_lakes import FLOW, POSITION, field, our_properties, write_flow, write_table


def lake_of(lake: Path, kinds: dict[str, Any], stored: pa.Table, *, keys: tuple[str, ...] = (), mode: TableMode = TableMode.CURRENT) -> str:
    write_flow(lake)
    write_table(lake / FLOW, [field(*each) for each in kinds.items()], [stored], properties=our_properties(keys, mode))
    return str(lake)


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("string", pa.array([None, "", "A", "Z", "a", "é", "漢", "😀"])),
        ("double", pa.array([None, -math.inf, -1.5, 0.0, 2.0, math.inf, math.nan])),
        ("decimal(38,0)", pa.array([None, Decimal(-1), Decimal(9), Decimal(10)], pa.decimal128(38, 0))),
        ("binary", pa.array([None, b"", b"\0", b"\1", b"\xff"])),
        ("boolean", pa.array([None, False, True])),
        ("date", pa.array([None, -1, 0, 7], pa.int32()).cast(pa.date32())),
    ],
)
def test_rows_are_ordered_by_key(kind: str, values: pa.Array, tmp_path: Path) -> None:
    lake = lake_of(tmp_path, {"k": kind}, pa.table({"k": values[::-1]}), keys=("k",))
    assert repr([row["k"] for row in read_rows_natively(lake, FLOW).rows]) == repr(values.to_pylist())


def test_columns_have_the_types_of_spark_and_ours_are_left_out(tmp_path: Path) -> None:
    kinds = {"id": "long", "price": "decimal(10,2)", "__cdc_op": "string"}
    stored = pa.table({"id": [1], "price": pa.array([Decimal("12.50")], pa.decimal128(10, 2)), "__cdc_op": ["c"]})
    found = read_rows_natively(lake_of(tmp_path, kinds, stored, keys=("id",)), FLOW)
    assert (found.flow, found.keys, found.total) == (FLOW, ("id",), 1)
    assert found.columns == {"id": "BIGINT", "price": "DECIMAL(10,2)"}
    assert found.rows == [{"id": 1, "price": Decimal("12.50")}]


def test_a_limit_leaves_rows_out_and_the_total_counts_them(tmp_path: Path) -> None:
    flagged = {"id": [3, 1, 2, 4], "__cdc_deleted": [False, False, False, True]}
    lake = lake_of(tmp_path, {"id": "long", "__cdc_deleted": "boolean"}, pa.table(flagged), keys=("id",), mode=TableMode.FLAGGED)
    found = read_rows_natively(lake, FLOW, 2)
    assert ([row["id"] for row in found.rows], found.total) == ([1, 2], 3)
    assert read_rows_natively(lake, FLOW, 3).total == 3
    assert read_rows_natively(lake, FLOW, 0).total == 3


def test_rows_without_a_key_are_ordered_by_all_their_values(tmp_path: Path) -> None:
    stored = pa.table({"a": [2, 1, 1], "b": ["x", "z", "y"]})
    lake = lake_of(tmp_path, {"a": "long", "b": "string"}, stored, mode=TableMode.MULTISET)
    assert [(row["a"], row["b"]) for row in read_rows_natively(lake, FLOW).rows] == [(1, "y"), (1, "z"), (2, "x")]


def test_the_past_is_in_the_order_of_the_sources_log_with_our_columns_and_named_parts(tmp_path: Path) -> None:
    parts = [(10, 1, 0), (9, 2, 1), (9, 2, 0), (9, 10, 0)]
    positions = [{"commit": Decimal(commit), "change": Decimal(change), "serial": serial} for commit, change, serial in parts]
    number = pa.decimal128(38, 0)
    kind = pa.struct([("commit", number), ("change", number), ("serial", pa.int64())])
    stored = pa.table({"id": [1, 1, 1, 1], "__cdc_position": pa.array(positions, kind), "__cdc_is_current": [True, False, False, False]})
    kinds = {"id": "long", "__cdc_position": POSITION, "__cdc_is_current": "boolean"}
    lake = lake_of(tmp_path, kinds, stored, keys=("id",), mode=TableMode.VERSIONS)

    found = read_rows_natively(lake, FLOW, history=True)
    assert [tuple(row["__cdc_position"].values()) for row in found.rows] == [(9, 2, 0), (9, 2, 1), (9, 10, 0), (10, 1, 0)]
    assert (list(found.columns), found.total) == (["id", "__cdc_position", "__cdc_is_current"], 4)
    assert read_rows_natively(lake, FLOW, 1, history=True).total == 4
    assert [row["id"] for row in read_rows_natively(lake, FLOW).rows] == [1]


def test_an_order_by_values_with_parts_is_left_to_spark(tmp_path: Path) -> None:
    kinds = {"tags": {"type": "array", "elementType": "string", "containsNull": True}}
    lake = lake_of(tmp_path, kinds, pa.table({"tags": [["a"]]}), mode=TableMode.MULTISET)
    with pytest.raises(NeedsSparkError, match="tags"):
        read_rows_natively(lake, FLOW)


def test_a_flow_without_a_table_is_refused_with_those_that_the_lake_knows(tmp_path: Path) -> None:
    write_flow(tmp_path)
    with pytest.raises(ConfigurationError, match=rf"no table of flow other; its flows are \['{FLOW}'\]"):
        read_rows_natively(str(tmp_path), "other")
    assert [path.name for path in tmp_path.iterdir()] == ["_cdc"]
