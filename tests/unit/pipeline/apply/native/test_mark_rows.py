"""Rows that are marked by deletion vectors, and rows that are added: against a model, and Delta's readers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, QueryBuilder, TableFeatures

from airflow_cdc.model.columns import BEGAN, DEPENDS, OP, OP_IF_ABSENT, PASSED, POSITION
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.operation import KEEP
from airflow_cdc.pipeline.apply.native.fold_sql import MARKED_AT
from airflow_cdc.pipeline.apply.native.mark_rows import UnmarkableError, find_marks, mark_and_add
from airflow_cdc.pipeline.apply.native.merge import rows_for
from airflow_cdc.pipeline.target.add_actions import read_adds, statistics_of
from airflow_cdc.pipeline.target.commit_natively import CommitOf
from airflow_cdc.pipeline.target.deletion_vectors import read_vector
from airflow_cdc.pipeline.target.parquet_scan import query
from tests.support.natively import merge_rows, new_table
from tests.support.small_lakes import field, write_table

Names = Mapping[int, str | None]
KEYS = ["id"]
PLACE = {"commit": 2**90, "change": -1, "serial": 7}


def table_with_vectors(folder: Path) -> str:
    """Return the path of an empty table of ``id`` and ``name`` that has deletion vectors."""
    table = new_table(str(folder))
    table.alter.add_feature([TableFeatures.DeletionVectors], allow_protocol_versions_increase=True)
    table.alter.set_table_properties({"delta.enableDeletionVectors": "true"})
    return str(folder)


def of(version: int) -> CommitOf:
    return CommitOf(application="flow:1", version=version, metadata=json.dumps({"microbatch": version}))


def changes(table: DeltaTable, names: Names, *, microbatch: int) -> Any:
    """Return row changes with the table's columns; without a name: deletes."""
    place = pa.struct([("commit", pa.decimal128(38, 0)), ("change", pa.decimal128(38, 0)), ("serial", pa.int64())])
    rows = pa.table(
        {
            "id": pa.array(names, pa.int64()),
            "name": pa.array(names.values(), pa.string()),
            POSITION: pa.array([PLACE] * len(names), place),
            OP: ["d" if name is None else "u" for name in names.values()],
            "__cdc_committed_at": pa.array([1_700_000_000_123_456] * len(names), pa.timestamp("us")),
            "__cdc_partition": pa.array([0] * len(names), pa.int32()),
            "__cdc_offset": pa.array(range(len(names)), pa.int64()),
        }
    )
    return rows_for(table, rows, ["id", "name"], microbatch=microbatch)


def merge(uri: str, names: Names, *, microbatch: int) -> None:
    table = DeltaTable(uri)
    rows = changes(table, names, microbatch=microbatch)
    mark_and_add(table, uri, find_marks(table, uri, rows, keys=KEYS), rows=rows, keys=KEYS, of=of(microbatch))


def held(uri: str) -> dict[int, str]:
    """Return the table's names by id, as DuckDB reads it."""
    table = DeltaTable(uri)
    fields = json.loads(table.schema().to_json())["fields"][:2]
    rows = query(uri, table, fields, "SELECT * FROM cdc").to_pylist()
    assert len(rows) == len({row["id"] for row in rows})
    return {row["id"]: row["name"] for row in rows}


def held_by_delta_rs(uri: str) -> dict[int, str]:
    found = QueryBuilder().register("t", DeltaTable(uri)).execute("SELECT id, name FROM t").read_all()
    rows = pa.table(found)
    return dict(zip(rows.column("id").to_pylist(), rows.column("name").to_pylist(), strict=True))


def metrics(uri: str) -> dict[str, int]:
    found = json.loads((Path(uri) / f"_delta_log/{DeltaTable(uri).version():020d}.json").read_text().splitlines()[0])
    return {name: int(count) for name, count in found["commitInfo"]["operationMetrics"].items()}


def test_random_merges_leave_the_rows_that_a_model_has(tmp_path: Path) -> None:
    chance, uri, rows = random.Random(7), table_with_vectors(tmp_path / "t"), dict[int, str]()
    for microbatch in range(1, 40):
        picked: dict[int, str | None] = {
            key: None if chance.random() < 0.3 else f"name {key} of {microbatch}" for key in chance.sample(range(60), chance.randint(1, 25))
        }
        before = dict(rows)
        rows = {key: name for key, name in {**rows, **picked}.items() if name is not None}
        merge(uri, picked, microbatch=microbatch)
        counted = metrics(uri)
        assert counted["numTargetRowsInserted"] == len(rows.keys() - before.keys())
        assert counted["numTargetRowsDeleted"] == len(before.keys() - rows.keys())
        assert counted["numTargetRowsUpdated"] == len([key for key, name in picked.items() if name and key in before])
        assert held(uri) == rows
        assert held_by_delta_rs(uri) == rows
    # Checkpoints were written on the way, and read.
    assert len(list((tmp_path / "t" / "_delta_log").glob("*.checkpoint.parquet"))) == 4
    assert DeltaTable(uri).transaction_version("flow:1") == 39


def year(number: int) -> datetime:
    return datetime(number, 1, 1, 0, 0, 0, 500_000, tzinfo=timezone.utc)


AT = (([1, 2, 3], [year(1), year(2023), year(9999)]), ([2], [year(2024)]))
OUTCOMES = ("c", "u", "d", KEEP)


@pytest.mark.parametrize("is_marked", [True, False])
def test_what_a_change_does_depends_on_whether_the_table_holds_its_key(is_marked: bool, tmp_path: Path) -> None:
    """By marks, and by copies: each pair of what a change does to a key that is held, and to one that is not."""
    chance, rows = random.Random(3), dict[int, str]()
    uri = table_with_vectors(tmp_path / "t") if is_marked else str(tmp_path / "t")
    if not is_marked:
        new_table(uri)
    for microbatch in range(1, 20):
        picked = {
            key: (f"name {key} of {microbatch}", chance.choice(OUTCOMES), chance.choice("cd"))
            for key in chance.sample(range(60), chance.randint(1, 40))
        }
        before, table = dict(rows), DeltaTable(uri)
        for key, (name, op, op_if_absent) in picked.items():
            done = op if key in before else op_if_absent
            if done in "cu":
                rows[key] = name
            elif done == "d":
                rows.pop(key, None)
        plain = changes(table, {key: name for key, (name, _, _) in picked.items()}, microbatch=microbatch)
        ops, absent = ([each[place] for each in picked.values()] for place in (1, 2))
        written = plain.set_column(plain.schema.get_field_index(OP), OP, pa.array(ops)).append_column(OP_IF_ABSENT, pa.array(absent))
        for column in (BEGAN, MARKED_AT):
            written = written.append_column(column, plain.column(POSITION))
        written = written.append_column(DEPENDS, pa.array([False] * len(picked))).append_column(PASSED, pa.nulls(len(picked)))
        merge_rows(uri, written, KEYS, of=of(microbatch))
        counted = metrics(uri)
        assert counted["numTargetRowsDeleted"] == len(before.keys() - rows.keys())
        assert counted["numTargetRowsInserted"] == len(rows.keys() - before.keys())
        assert (
            counted["numOutputRows"] == counted["numTargetRowsInserted"] + counted["numTargetRowsUpdated"] + counted["numTargetRowsCopied"]
        )
        assert held(uri) == held_by_delta_rs(uri) == rows


def test_a_file_that_has_no_row_left_is_removed(tmp_path: Path) -> None:
    uri = table_with_vectors(tmp_path / "t")
    merge(uri, {1: "one", 2: "two"}, microbatch=1)
    merge(uri, {3: "three"}, microbatch=2)
    merge(uri, {1: None, 2: "new"}, microbatch=3)
    assert held(uri) == {2: "new", 3: "three"}
    assert metrics(uri)["numTargetFilesRemoved"] == 1
    assert metrics(uri)["numTargetDeletionVectorsAdded"] == 0
    assert len(DeltaTable(uri).file_uris()) == 2


def test_only_files_whose_range_holds_a_key_are_looked_into(tmp_path: Path) -> None:
    uri = table_with_vectors(tmp_path / "t")
    for first in (0, 100):
        merge(uri, dict.fromkeys(range(first, first + 10), "one"), microbatch=first + 1)
    (far,) = [path for path, action in read_adds(uri, DeltaTable(uri)).items() if statistics_of(action)["minValues"]["id"] == 100]
    # It cannot be read, and need not be.
    (tmp_path / "t" / far).write_bytes(b"")
    merge(uri, {3: "another"}, microbatch=200)
    with pytest.raises(UnmarkableError):
        merge(uri, {103: "another"}, microbatch=201)


def test_an_inherited_deletion_vector_stays_and_a_row_behind_it_is_not_counted_again(tmp_path: Path) -> None:
    uri = table_with_vectors(tmp_path / "t")
    merge(uri, dict.fromkeys(range(5), "one"), microbatch=1)
    merge(uri, {0: None}, microbatch=2)
    # Its old row lies in the file still, marked.
    merge(uri, {0: "again", 1: None}, microbatch=3)
    assert metrics(uri)["numTargetRowsInserted"] == 1
    assert metrics(uri)["numTargetRowsUpdated"] == 0
    (first,) = [action for action in read_adds(uri, DeltaTable(uri)).values() if "deletionVector" in action]
    assert set(read_vector(uri, first["deletionVector"])) == {0, 1}
    assert statistics_of(first)["tightBounds"] is False
    assert statistics_of(first)["minValues"]["__cdc_position"] == PLACE


def test_a_key_with_two_rows_is_left_to_spark(tmp_path: Path) -> None:
    uri = table_with_vectors(tmp_path / "t")
    for microbatch in (1, 2):
        table = DeltaTable(uri)
        rows = changes(table, {1: "one"}, microbatch=microbatch)
        mark_and_add(table, uri, find_marks(table, uri, rows.slice(0, 0), keys=KEYS), rows=rows, keys=KEYS, of=of(microbatch))
    with pytest.raises(UnmarkableError, match="a key has several rows"):
        merge(uri, {1: None}, microbatch=3)
    merge(uri, {2: "two"}, microbatch=3)


def test_of_two_merges_into_one_version_the_second_ends_as_one_that_came_too_late(tmp_path: Path) -> None:
    uri = table_with_vectors(tmp_path / "t")
    merge(uri, {1: "one"}, microbatch=1)
    table = DeltaTable(uri)
    rows = changes(table, {1: "late"}, microbatch=2)
    marks = find_marks(table, uri, rows, keys=KEYS)
    merge(uri, {1: "first"}, microbatch=2)
    with pytest.raises(ConcurrentRunError, match="committed version 4"):
        mark_and_add(table, uri, marks, rows=rows, keys=KEYS, of=of(2))
    assert held(uri) == {1: "first"}


def test_what_is_copied_keeps_times_that_64_bits_of_nanoseconds_do_not_reach_whoever_wrote_them(tmp_path: Path) -> None:
    """Spark's default for instants is INT96, which DuckDB reads without a zone, and delta-rs as other times before 1677 and after 2262."""
    uri, kind = tmp_path / "t", pa.timestamp("us", "UTC")
    old, new = (pa.table({"id": ids, "at": pa.array(times, kind), OP: ["c"] * len(ids)}) for ids, times in AT)
    write_table(uri, [field("id", "long"), field("at", "timestamp"), field(OP, "string")], [old])
    merge_rows(str(uri), new, KEYS, of=of(1))
    (copy,) = DeltaTable(str(uri)).file_uris()
    rows = pq.read_table(copy)
    assert rows.schema.field("at").type == kind
    assert dict(zip(rows.column("id").to_pylist(), rows.column("at").to_pylist(), strict=True)) == {
        1: year(1),
        2: year(2024),
        3: year(9999),
    }
    merge_rows(str(uri), new.set_column(2, OP, pa.array(["d"])), KEYS, of=of(2))
    (copy,) = DeltaTable(str(uri)).file_uris()
    assert pq.read_schema(copy).field("at").type == kind


def test_what_was_marked_is_not_copied_once_a_table_is_to_have_no_deletion_vectors(tmp_path: Path) -> None:
    uri = table_with_vectors(tmp_path / "t")
    merge(uri, dict.fromkeys(range(5), "one"), microbatch=1)
    merge(uri, {0: None, 1: "two"}, microbatch=2)
    DeltaTable(uri).alter.set_table_properties({"delta.enableDeletionVectors": "false"})
    merge_rows(uri, changes(DeltaTable(uri), {1: None, 2: "three"}, microbatch=3), KEYS, of=of(3))
    assert not [action for action in read_adds(uri, DeltaTable(uri)).values() if "deletionVector" in action]
    assert metrics(uri)["numTargetRowsCopied"] == 2
    merge_rows(uri, changes(DeltaTable(uri), {2: None, 3: "four"}, microbatch=4), KEYS, of=of(4))
    assert held(uri) == held_by_delta_rs(uri) == {3: "four", 4: "one"}


def test_a_damaged_deletion_vector_is_not_taken_for_another(tmp_path: Path) -> None:
    uri = table_with_vectors(tmp_path / "t")
    merge(uri, {1: "one", 2: "two"}, microbatch=1)
    merge(uri, {1: None}, microbatch=2)
    (file,) = (tmp_path / "t").glob("deletion_vector_*.bin")
    content = bytearray(file.read_bytes())
    content[-6] ^= 1
    file.write_bytes(content)
    with pytest.raises(UnmarkableError, match="checksum"):
        merge(uri, {2: None}, microbatch=3)
