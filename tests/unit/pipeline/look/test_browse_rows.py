"""A table's rows are browsed in pages, newest first, and by a text in any column."""

from __future__ import annotations

from datetime import datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc.model.columns import DELETED, MICROBATCH, POSITION
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.look import browse_rows as module
from airflow_cdc.pipeline.look.browse_rows import RowSearch, RowsPage, browse_rows
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from tests.support.small_lakes import POSITION as POSITION_TYPE
from tests.support.small_lakes import field, our_properties, write_table

PLACE = pa.struct([("commit", pa.decimal128(38, 0)), ("change", pa.decimal128(38, 0)), ("serial", pa.int64())])
TAGS = {"type": "array", "elementType": "string", "containsNull": True}
COLUMNS = {
    "id": ("long", pa.int64()),
    'na"me': ("string", pa.string()),
    "paid": ("decimal(20,4)", pa.decimal128(20, 4)),
    "at": ("timestamp", pa.timestamp("us", tz="UTC")),
    "tags": (TAGS, pa.list_(pa.string())),
    "raw": ("binary", pa.binary()),
    POSITION: (POSITION_TYPE, PLACE),
    MICROBATCH: ("long", pa.int64()),
    DELETED: ("boolean", pa.bool_()),
}


def row(
    key: int, microbatch: int, commit: int, name: str | None, *, deleted: bool = False, tags: list[str] | None = None
) -> dict[str, Any]:
    return {
        "id": key,
        'na"me': name,
        "paid": Decimal(f"{key}.2500"),
        "at": datetime(2026, 1, key, tzinfo=timezone.utc),
        "tags": tags,
        "raw": b"\xff\x00",
        POSITION: {"commit": commit, "change": 1, "serial": 1},
        MICROBATCH: microbatch,
        DELETED: deleted,
    }


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> NativeTable:
    rows = [
        row(1, 3, 30, "Ada"),
        row(2, 3, 31, "O'Hara"),
        row(3, 1, 10, None, tags=["Red", "blue"]),
        row(4, 4, 5, "gone", deleted=True),
        row(5, 2, 20, "50% off"),
    ]
    schema = pa.schema([(name, kind) for name, (_, kind) in COLUMNS.items()])
    files = [pa.Table.from_pylist(part, schema=schema) for part in (rows[:2], rows[2:])]
    fields = [field(name, kind) for name, (kind, _) in COLUMNS.items()]
    folder = tmp_path_factory.mktemp("lake") / "t"
    found = open_table(str(write_table(folder, fields, files, properties=our_properties(["id"], TableMode.FLAGGED))))
    assert found is not None
    return found


def browse(table: NativeTable, **search: Any) -> RowsPage:
    return browse_rows(table, RowSearch(**search))


def keys(table: NativeTable, **search: Any) -> list[int]:
    return [each["id"] for each in browse(table, **search).rows]


def test_the_rows_that_the_source_has_are_there_with_the_microbatch_that_wrote_each(table: NativeTable) -> None:
    found = browse(table)
    assert found.columns == ["id", 'na"me', "paid", "at", "tags", "raw", MICROBATCH]
    assert (found.keys, found.has_more) == (("id",), False)
    assert sorted(each["id"] for each in found.rows) == [1, 2, 3, 5]
    (ada,) = [each for each in found.rows if each["id"] == 1]
    assert (ada['na"me'], ada["paid"], ada["raw"], ada[MICROBATCH]) == ("Ada", Decimal("1.2500"), b"\xff\x00", 3)


def test_what_changed_last_comes_first_by_microbatch_and_by_position_in_it(table: NativeTable) -> None:
    assert keys(table, newest=True) == [2, 1, 5, 3]
    first, rest = browse(table, newest=True, limit=3), browse(table, newest=True, limit=3, offset=3)
    assert ([each["id"] for each in first.rows], first.has_more) == ([2, 1, 5], True)
    assert ([each["id"] for each in rest.rows], rest.has_more) == ([3], False)


@pytest.mark.parametrize(
    ("search", "found"),
    [
        ({"text": "ADA"}, [1]),
        ({"text": "o'h"}, [2]),
        ({"text": "%"}, [5]),
        ({"text": "red"}, [3]),
        ({"text": "2.25", "column": "paid"}, [2]),
        ({"text": "2026-01-05"}, [5]),
        ({"text": "gone"}, []),
        ({"text": "' OR true --"}, []),
        ({"text": "1", "column": 'na"me'}, []),
    ],
)
def test_a_text_is_found_in_a_column_or_in_any(table: NativeTable, search: dict[str, str], found: list[int]) -> None:
    assert keys(table, **search) == found


def test_a_column_that_is_not_the_sources_is_refused(table: NativeTable) -> None:
    for name in ("nothing", MICROBATCH, 'id" OR "id'):
        with pytest.raises(ConfigurationError, match="has no column"):
            browse(table, column=name)


def test_a_large_table_shows_its_first_rows_and_is_neither_searched_nor_sorted(table: NativeTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_SEARCHED_UP_TO_BYTES", 10)
    assert len(keys(table, limit=2)) == 2
    for search in ({"text": "Ada"}, {"newest": True}):
        with pytest.raises(NeedsSparkError, match="too much to be searched or sorted here"):
            browse(table, **search)
