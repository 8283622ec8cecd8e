"""What the native engine appends, as delta-rs reads it."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

from airflow_cdc.model.columns import OP
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.pipeline.apply.native.merge import append_rows
from airflow_cdc.pipeline.target.commit_natively import CommitOf
from airflow_cdc.pipeline.target.create_natively import made_ready
from airflow_cdc.pipeline.target.writable import WRITABLE_FEATURES
from tests.support.natively import merge_rows
from tests.support.small_lakes import field, write_table

OF = CommitOf(application="flow:1", version=1, metadata="{}")


def table_with(feature: str, folder: Path) -> DeltaTable:
    """Return an empty table that requires a Delta feature."""
    return DeltaTable(str(write_table(folder, [field("id", "long"), field(OP, "string")], [], features=[feature])))


def rows_of(*ids: int) -> pa.Table:
    return pa.table({"id": pa.array(ids, pa.int64()), OP: ["u"] * len(ids)})


def read(uri: Path, columns: str = "id", where: str = "true") -> list[dict[str, object]]:
    """Return rows as delta-rs's own query engine finds them."""
    found = QueryBuilder().register("t", DeltaTable(str(uri))).execute(f"SELECT {columns} FROM t WHERE {where} ORDER BY 1")
    return pa.table(found).to_pylist()  # type: ignore[no-any-return]


@pytest.mark.parametrize("feature", sorted(WRITABLE_FEATURES))
def test_a_table_of_each_feature_is_merged_into_and_appended_to(feature: str, tmp_path: Path) -> None:
    table_with(feature, tmp_path / "t")
    merge_rows(str(tmp_path / "t"), rows_of(1), ["id"], of=OF)
    append_rows(
        DeltaTable(str(tmp_path / "t")), str(tmp_path / "t"), rows_of(2, 3), of=CommitOf(application="flow:1", version=2, metadata="{}")
    )
    assert read(tmp_path / "t") == [{"id": 1}, {"id": 2}, {"id": 3}]


def test_of_two_appends_to_one_version_the_second_ends_as_one_that_came_too_late(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    first, second = table_with("appendOnly", tmp_path / "t"), DeltaTable(uri)
    append_rows(first, uri, rows_of(1), of=OF)
    with pytest.raises(ConcurrentRunError):
        append_rows(second, uri, rows_of(1), of=OF)
    assert read(tmp_path / "t") == [{"id": 1}]


def test_a_microbatch_that_the_table_holds_is_not_appended_again_by_one_that_sees_it(tmp_path: Path) -> None:
    uri, table = str(tmp_path / "t"), table_with("appendOnly", tmp_path / "t")
    for number in (1, 2):
        append_rows(DeltaTable(uri), uri, rows_of(1), of=CommitOf(application="flow:1", version=number, metadata="{}"))
    table.update_incremental()
    for number in (1, 2):
        with pytest.raises(ConcurrentRunError, match=rf"committed microbatch {number} of flow:1 .* holds microbatch 2 \(version 2\)"):
            append_rows(table, uri, rows_of(1), of=CommitOf(application="flow:1", version=number, metadata="{}"))
    assert DeltaTable(uri).version() == 2
    append_rows(table, uri, rows_of(1), of=CommitOf(application="flow:2", version=1, metadata="{}"))


def test_what_is_appended_is_found_by_each_digit_of_its_decimals(tmp_path: Path) -> None:
    amount = Decimal("9999999999999.9999")
    rows = pa.table({"id": [1], "amount": pa.array([amount], pa.decimal128(20, 4))})
    uri = str(tmp_path / "t")
    append_rows(made_ready(uri, rows.schema, configuration={}), uri, rows, of=None)
    assert read(tmp_path / "t", where=f"amount = CAST('{amount}' AS DECIMAL(20, 4))") == [{"id": 1}]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()], ids=str)
def test_a_number_that_is_none_is_found_and_either_zero(kind: pa.DataType, tmp_path: Path) -> None:
    uri, halves = str(tmp_path / "t"), [float("nan"), -0.0, 0.0, 1.5, float("inf"), None]
    for number, half in enumerate(halves):
        rows = pa.table({"id": pa.array([number], pa.int64()), "half": pa.array([half], kind), OP: ["c"]})
        made_ready(uri, rows.schema, configuration={})
        merge_rows(uri, rows, ["id"], of=CommitOf(application="flow:1", version=number, metadata="{}"))
    assert read(tmp_path / "t", where="half > 2") == [{"id": 0}, {"id": 4}]
    assert read(tmp_path / "t", where="half = 'NaN'") == [{"id": 0}]
    assert read(tmp_path / "t", where="half = 0.0 OR half = -0.0") == [{"id": 1}, {"id": 2}]
    assert read(tmp_path / "t", where="half IS NULL") == [{"id": 5}]


def test_a_table_of_ours_gets_the_columns_that_it_lacks(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    write_deltalake(uri, pa.table({"id": pa.array([1], pa.int64())}))
    more = pa.table({"id": pa.array([2], pa.int64()), "flag": [True]})
    append_rows(made_ready(uri, more.schema, configuration={"delta.checkpointInterval": "7"}), uri, more, of=None)
    assert read(tmp_path / "t", "id, flag") == [{"id": 1, "flag": None}, {"id": 2, "flag": True}]
    other = str(tmp_path / "other")
    assert made_ready(other, more.schema, configuration={"delta.checkpointInterval": "7"}).metadata().configuration == {
        "delta.checkpointInterval": "7"
    }


def test_an_append_says_in_the_log_what_spark_s_would(tmp_path: Path) -> None:
    uri = str(tmp_path / "t")
    append_rows(table_with("appendOnly", tmp_path / "t"), uri, rows_of(1, 2), of=OF)
    info = json.loads((tmp_path / "t" / "_delta_log" / f"{1:020d}.json").read_text().splitlines()[0])["commitInfo"]
    assert (info["operation"], info["operationParameters"]["mode"], info["isBlindAppend"]) == ("WRITE", "Append", True)
    assert info["operationMetrics"] == {"numFiles": "1", "numOutputRows": "2"}
