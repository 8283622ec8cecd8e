"""Tables are compared row by row, as multisets; what memory or Python cannot hold is left to Spark."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa
import pytest

from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.look import differences
from airflow_cdc.pipeline.look.differences import LakeComparison, TableDifference, compare_natively
from airflow_cdc.pipeline.look.native_table import NeedsSparkError
from tests.support.small_lakes import FLOW, field, our_properties, write_flow, write_table

Kinds = dict[str, Any]
PLAIN: Kinds = {"id": "long", "name": "string"}


def write(lake: Path, stored: dict[str, Any], kinds: Kinds | None = None, *, keys: tuple[str, ...] = ("id",)) -> None:
    write_flow(lake)
    mode = TableMode.CURRENT if keys else TableMode.MULTISET
    fields = [field(*each) for each in (kinds or PLAIN).items()]
    write_table(lake / FLOW, fields, [pa.table(stored)], properties=our_properties(keys, mode))


def compared(tmp_path: Path) -> TableDifference:
    (found,) = compare_natively(str(tmp_path / "a"), str(tmp_path / "b")).tables
    return found


def test_equal_tables_are_equal_in_any_order_of_rows_with_null_and_nan(tmp_path: Path) -> None:
    kinds: Kinds = {"id": "long", "rate": "double", "tags": {"type": "array", "elementType": "double", "containsNull": True}}
    nan = math.nan
    write(tmp_path / "a", {"id": [1, 2, None], "rate": [nan, None, -0.0], "tags": [[nan, None], None, []]}, kinds)
    write(tmp_path / "b", {"id": [None, 2, 1], "rate": [0.0, None, nan], "tags": [[], None, [nan, None]]}, kinds)
    found = compare_natively(str(tmp_path / "a"), str(tmp_path / "b"))
    assert found == LakeComparison((TableDifference(FLOW, ()),), (), ())
    assert found.equal


def test_differing_rows_are_counted_with_their_keys_and_columns(tmp_path: Path) -> None:
    kinds = {**PLAIN, "n": "long"}
    write(tmp_path / "a", {"id": [1, 2, 3, None], "name": ["x", "y", "z", "w"], "n": [1, 2, 3, 4]}, kinds)
    write(tmp_path / "b", {"id": [1, 2, 4, None], "name": ["X", None, "z", "w"], "n": [1, 0, 3, 4]}, kinds)
    found = compared(tmp_path)
    assert (found.only_left, found.only_right, found.values) == (3, 3, {"name": 2, "n": 1})
    assert found.sample == tuple(
        {"side": side, "id": number} for number, side in ((1, "left"), (1, "right"), (2, "left"), (2, "right"), (3, "left"), (4, "right"))
    )
    assert len(compare_natively(str(tmp_path / "a"), str(tmp_path / "b"), sample=1).tables[0].sample) == 1
    assert not found.equal


def test_keys_in_a_sample_are_sorted_with_null_first_and_nan_last(tmp_path: Path) -> None:
    kinds: Kinds = {"id": "double"}
    write(tmp_path / "a", {"id": [math.nan, 2.0, None, -1.0]}, kinds)
    write(tmp_path / "b", {"id": pa.array([], pa.float64())}, kinds)
    assert repr([each["id"] for each in compared(tmp_path).sample]) == "[None, -1.0, 2.0, nan]"


def test_a_row_that_one_table_has_twice_is_one_row_more(tmp_path: Path) -> None:
    write(tmp_path / "a", {"id": [1, 1], "name": ["x", "x"]})
    write(tmp_path / "b", {"id": [1], "name": ["x"]})
    found = compared(tmp_path)
    assert (found.only_left, found.only_right, found.sample, found.values) == (1, 0, ({"side": "left", "id": 1},), {})


def test_a_column_that_one_table_lacks_or_has_with_another_type_is_named_and_left_out(tmp_path: Path) -> None:
    write(tmp_path / "a", {"id": [1], "name": ["x"], "n": [1]}, {**PLAIN, "n": "long"})
    write(tmp_path / "b", {"id": [1], "name": [7], "m": [1]}, {"id": "long", "name": "long", "m": "long"})
    found = compared(tmp_path)
    assert found.schema == ("name: string / bigint", "n: bigint / absent", "m: absent / bigint")
    assert (found.only_left, found.only_right, found.equal) == (0, 0, False)


def test_without_the_key_in_common_only_the_schema_is_compared(tmp_path: Path) -> None:
    write(tmp_path / "a", {"id": [1], "name": ["x"]})
    write(tmp_path / "b", {"id": ["1"], "name": ["y"]}, {"id": "string", "name": "string"})
    assert compared(tmp_path) == TableDifference(FLOW, ("id: bigint / string",))


def test_tables_of_one_lake_only_are_named(tmp_path: Path) -> None:
    write(tmp_path / "a", {"id": [1], "name": ["x"]})
    found = compare_natively(str(tmp_path / "a"), str(tmp_path / "none"))
    assert (found, found.equal) == (LakeComparison((), (FLOW,), ()), False)
    assert compare_natively(str(tmp_path / "none"), str(tmp_path / "a")) == LakeComparison((), (), (FLOW,))
    assert compare_natively(str(tmp_path / "a"), str(tmp_path / "a"), ["x*"]) == LakeComparison((), (), ())


def test_rows_without_a_key_that_differ_are_left_to_spark_and_equal_ones_are_not(tmp_path: Path) -> None:
    write(tmp_path / "a", {"id": [1, 2], "name": ["x", "y"]}, keys=())
    write(tmp_path / "b", {"id": [2, 1], "name": ["y", "x"]}, keys=())
    write(tmp_path / "c", {"id": [2, 2], "name": ["y", "y"]}, keys=())
    assert compared(tmp_path).equal
    with pytest.raises(NeedsSparkError, match="no key"):
        compare_natively(str(tmp_path / "a"), str(tmp_path / "c"))


@pytest.mark.parametrize("limit", ["_COMPARED_UP_TO_ROWS", "_COMPARED_UP_TO_BYTES"])
def test_a_large_table_is_left_to_spark(limit: str, tmp_path: Path) -> None:
    write(tmp_path / "a", {"id": [1, 2], "name": ["x", "y"]})
    with mock.patch.object(differences, limit, 1), pytest.raises(NeedsSparkError, match="too large"):
        compare_natively(str(tmp_path / "a"), str(tmp_path / "a"))


def test_a_map_is_left_to_spark(tmp_path: Path) -> None:
    kinds: Kinds = {"id": "long", "m": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True}}
    write(tmp_path / "a", {"id": [1], "m": pa.array([[("k", 1)]], pa.map_(pa.string(), pa.int64()))}, kinds)
    with pytest.raises(NeedsSparkError, match=r"m$"):
        compare_natively(str(tmp_path / "a"), str(tmp_path / "a"))
