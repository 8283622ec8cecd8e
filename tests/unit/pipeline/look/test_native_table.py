"""A table is read as Spark would, or left to Spark."""

from __future__ import annotations

from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from tests.support.small_lakes import POSITION, field, our_properties, write_table

UTC = pa.timestamp("us", tz="UTC")


def opened(folder: Path) -> NativeTable:
    table = open_table(str(folder))
    assert table is not None
    return table


def rows(folder: Path, **options: Any) -> list[dict[str, Any]]:
    table = opened(folder)
    return table.rows(list(table.types), order=['"id"'], **options)


def test_a_folder_without_a_table_holds_none_and_is_not_made(tmp_path: Path) -> None:
    assert open_table(str(tmp_path / "none")) is None
    (tmp_path / "empty").mkdir()
    assert open_table(str(tmp_path / "empty")) is None
    assert not (tmp_path / "none").exists()


def test_a_file_url_is_its_path(tmp_path: Path) -> None:
    write_table(tmp_path / "t", [field("id", "long")], [pa.table({"id": [1]})])
    for url in (f"file://{tmp_path}/t", f"file:{tmp_path}/t", f"{tmp_path}/t"):
        found = open_table(url)
        assert found is not None
        assert (found.count(), found.rows(["id"]), found.version) == (1, [{"id": 1}], 0)


@pytest.mark.parametrize("name", ["a b", "ünï", "ha#sh", "ques;tion", "key=value", "it's"])
def test_a_path_of_any_name_is_read(name: str, tmp_path: Path) -> None:
    write_table(tmp_path / name, [field("id", "long")], [pa.table({"id": [1]}), pa.table({"id": [2]})])
    assert rows(tmp_path / name) == [{"id": 1}, {"id": 2}]
    assert opened(tmp_path / name).count() == 2


@pytest.mark.parametrize("name", ["per%20cent", "star*", "list[1]"])
def test_a_path_that_another_reader_takes_for_something_else_is_left_to_spark(name: str, tmp_path: Path) -> None:
    write_table(tmp_path / name, [field("id", "long")], [pa.table({"id": [1]})])
    with pytest.raises(NeedsSparkError):
        rows(tmp_path / name)


def test_a_store_beyond_the_local_one_is_left_to_spark() -> None:
    with pytest.raises(NeedsSparkError, match="s3://bucket/t"):
        open_table("s3://bucket/t")


def test_a_feature_that_is_not_known_here_is_left_to_spark(tmp_path: Path) -> None:
    write_table(tmp_path / "t", [field("id", "long")], [pa.table({"id": [1]})], features=["variantType-preview"])
    with pytest.raises(NeedsSparkError, match="variantType-preview"):
        open_table(str(tmp_path / "t"))


def test_a_file_that_is_gone_is_left_to_spark_which_names_it(tmp_path: Path) -> None:
    write_table(tmp_path / "t", [field("id", "long")], [pa.table({"id": [1]})])
    (tmp_path / "t" / "part-0.parquet").unlink()
    with pytest.raises(NeedsSparkError, match=r"part-0\.parquet"):
        rows(tmp_path / "t")


def test_an_instant_of_any_year_keeps_its_value_as_spark_stores_it(tmp_path: Path) -> None:
    moments = [
        datetime.fromisoformat(text)
        for text in ("0001-01-01T00:00:00.500000", "1600-02-29", "2026-11-20T01:02:03.000004", "9999-12-31T23:59")
    ]
    stored = pa.table({"id": [1, 2, 3, 4, 5], "at": pa.array([*moments, None], UTC)})
    write_table(tmp_path / "t", [field("id", "long"), field("at", "timestamp")], [stored])
    assert [row["at"] for row in rows(tmp_path / "t")] == [*moments, None]


def test_an_instant_is_the_same_in_files_with_and_without_a_zone(tmp_path: Path) -> None:
    noon = datetime.fromisoformat("2026-11-20T12:00")
    folder = write_table(
        tmp_path / "t", [field("id", "long"), field("at", "timestamp")], [pa.table({"id": [1], "at": pa.array([noon], UTC)})] * 2
    )
    # delta-rs writes the instants of what it appends with a zone.
    pa.parquet.write_table(pa.table({"id": [2], "at": pa.array([noon], UTC)}), folder / "part-1.parquet")
    assert rows(folder) == [{"id": 1, "at": noon}, {"id": 2, "at": noon}]


def test_rows_that_a_deletion_vector_deletes_are_gone(tmp_path: Path) -> None:
    files = [pa.table({"id": [0, 1, 2, 3]}), pa.table({"id": [4, 5]})]
    folder = write_table(tmp_path / "t", [field("id", "long")], files, features=["deletionVectors"], deleted={0: [1, 3]})
    assert rows(folder) == [{"id": 0}, {"id": 2}, {"id": 4}, {"id": 5}]
    assert opened(folder).count() == 4


def test_a_column_has_its_name_of_today_whatever_the_files_call_it(tmp_path: Path) -> None:
    def position() -> dict[str, Any]:
        return {"type": "struct", "fields": [field("commit", "decimal(38,0)", "col-c"), field("serial", "long", "col-s")]}

    fields = [
        *(field("id", "long", "col-1"), field("new name", "string", "old"), field("pos", position(), "col-p")),
        field("list", {"type": "array", "elementType": position(), "containsNull": True}, "col-l"),
    ]
    inner = {"col-c": Decimal(7), "col-s": 1}
    kind = pa.struct([("col-c", pa.decimal128(38, 0)), ("col-s", pa.int64())])
    stored = pa.table(
        {
            "col-1": [1, 2],
            "old": ["a", None],
            "col-p": pa.array([inner, None], kind),
            "col-l": pa.array([[inner, None], None], pa.list_(kind)),
        }
    )
    folder = write_table(tmp_path / "t", fields, [stored], features=["columnMapping"], properties={"delta.columnMapping.mode": "name"})
    there = {"commit": Decimal(7), "serial": 1}
    assert rows(folder, history=True) == [
        {"id": 1, "new name": "a", "pos": there, "list": [there, None]},
        {"id": 2, "new name": None, "pos": None, "list": None},
    ]


def test_a_column_that_files_lack_is_null_and_a_widened_one_has_its_type_of_today(tmp_path: Path) -> None:
    old, new = pa.table({"id": pa.array([1], pa.int32())}), pa.table({"id": pa.array([2**40], pa.int64()), "added": ["x"]})
    fields = [field("id", "long"), field("added", "string"), field("never", "decimal(10,2)"), field("nor", POSITION)]
    folder = write_table(tmp_path / "t", fields, [old, new], features=["typeWidening"])
    assert rows(folder) == [
        {"id": 1, "added": None, "never": None, "nor": None},
        {"id": 2**40, "added": "x", "never": None, "nor": None},
    ]


def test_a_table_without_files_has_no_rows(tmp_path: Path) -> None:
    folder = write_table(
        tmp_path / "t", [field("id", "long"), field("__cdc_deleted", "boolean")], [], properties=our_properties(["id"], TableMode.FLAGGED)
    )
    assert rows(folder) == []
    assert opened(folder).count() == 0


def test_flagged_rows_are_past(tmp_path: Path) -> None:
    fields = [field("id", "long"), field("__cdc_deleted", "boolean")]
    stored = pa.table({"id": [1, 2, 3], "__cdc_deleted": [False, True, None]})
    folder = write_table(tmp_path / "t", fields, [stored], properties=our_properties(["id"], TableMode.FLAGGED))
    # NULL is neither: as in Spark such a row is not among the live ones.
    assert [row["id"] for row in rows(folder)] == [1]
    assert [row["id"] for row in rows(folder, history=True)] == [1, 2, 3]
    assert (opened(folder).count(), opened(folder).count(live=False)) == (1, 3)
    assert opened(folder).source_columns == ["id"]


def test_only_a_rows_current_version_is_live_under_any_name_of_the_column(tmp_path: Path) -> None:
    named = our_properties(["id"], TableMode.VERSIONS, **{"airflow_cdc.scd_columns": '{"is_current": "is \\"now\\""}'})
    stored = pa.table({"id": [1, 1], 'is "now"': [False, True], "v": ["old", "new"]})
    folder = write_table(
        tmp_path / "t", [field("id", "long"), field('is "now"', "boolean"), field("v", "string")], [stored], properties=named
    )
    assert [row["v"] for row in rows(folder)] == ["new"]
    assert opened(folder).source_columns == ["id", "v"]
    assert opened(folder).count() == 1


def test_a_date_beyond_pythons_years_is_left_to_spark(tmp_path: Path) -> None:
    stored = pa.table({"id": [1], "day": pa.array([3_000_000], pa.int32()).cast(pa.date32())})
    write_table(tmp_path / "t", [field("id", "long"), field("day", "date")], [stored])
    with pytest.raises(NeedsSparkError, match="form in Python"):
        rows(tmp_path / "t")


def test_the_limit_leaves_the_last_rows_out(tmp_path: Path) -> None:
    write_table(tmp_path / "t", [field("id", "long")], [pa.table({"id": [3, 1, 2, None]})])
    assert [row["id"] for row in rows(tmp_path / "t", limit=2)] == [None, 1]
