"""The native engine's steps on an S3-compatible store, without Spark: reading files, describing a table, merging, delete markers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.places import delete_markers_uri
from airflow_cdc.pipeline.apply.native.fold import fold_natively
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.mark_rows import copy_and_add, find_marks, mark_and_add
from airflow_cdc.pipeline.apply.native.merge import append_markers, rows_for
from airflow_cdc.pipeline.look import native_table
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError
from airflow_cdc.pipeline.look.table_facts import details_of
from airflow_cdc.pipeline.spark import exclusive_writes, storage
from airflow_cdc.pipeline.spark.exclusive_writes import excludes_writers
from airflow_cdc.pipeline.target import open_natively as open_natively_module
from airflow_cdc.pipeline.target import table_files
from airflow_cdc.pipeline.target.commit_natively import CommitOf, commit_deletion_vectors
from airflow_cdc.pipeline.target.open_natively import describe_natively, open_table, why_not_reached
from airflow_cdc.pipeline.target.read_commits import commits_behind
from airflow_cdc.pipeline.target.writable import why_not_written
from tests.support.careless_store import careless_store
from tests.support.events import Record, numbered, sqlserver, tombstone
from tests.support.natively import bytes_of, changes_of, decoder_of, new_table, rows_in
from tests.support.racing import winners_of
from tests.support.small_lakes import field, write_table
from tests.system.object_store import PACKAGES, Store, two_stores

pytestmark = pytest.mark.system_deep

TABLE = "s3a://tables/lake one/orders=1 ü"
ARCHIVE = "s3://events/topics"
NAMES = (
    "plain.jsonl",
    "compressed.json.gz",
    "compressed.json.zst",
    "year=2026/id=9/in folders.json",
    "st*r.json",
    "ques?tion.json.gz",
    "br[1]acket.json",
    "ha#sh.json",
    "per%20cent.json",
    "plus+and&.json",
    "ünï☃.json",
)
LOOKALIKES = ("star.json", "quesXtion.json.gz", "br1acket.json")
KEYS = ("id",)


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, Store]]:
    """One for the archive, one for the lake."""
    folder = tmp_path_factory.mktemp("stores")
    with (
        pytest.MonkeyPatch.context() as patch,
        two_stores(folder) as (archive, lake),
    ):
        # Behind the locked packages, of which it lacks some.
        patch.setattr(sys, "path", [*sys.path, str(PACKAGES)])
        yield archive, lake


@pytest.fixture(autouse=True)
def job(stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's process: its options are as the hooks make them of the storage connections, and it has read its state."""
    for name in (name for name in os.environ if name.startswith("AWS_")):
        monkeypatch.delenv(name)
    monkeypatch.setattr(storage, "_OPTIONS", {})
    monkeypatch.setattr(storage, "_CALLED", set())
    monkeypatch.setattr(exclusive_writes, "_FOUND", {})
    monkeypatch.setattr(open_natively_module, "_FAILED", set())
    storage.use_options({f"s3://{store.bucket}": options_of(store) for store in stores})
    for store in stores:
        storage.file_system(f"s3://{store.bucket}/")


@pytest.fixture
def table(stores: tuple[Store, Store]) -> Iterator[DeltaTable]:
    """An empty table."""
    fs, path = storage.file_system(TABLE)
    yield new_table("s3://tables/lake%20one/orders%3D1%20%C3%BC", stores[1].delta_options)
    fs.rm(path, recursive=True)


def options_of(store: Store, **changes: str) -> dict[str, Any]:
    return {
        "endpoint_url": store.endpoint,
        "client_kwargs": {"region_name": "us-east-1"},
        "config_kwargs": {"s3": {"addressing_style": "path"}},
        "key": store.key,
        "secret": store.secret,
        **changes,
    }


def put(files: dict[str, list[Record]], root: str = ARCHIVE) -> None:
    fs, path = storage.file_system(root)
    for name, records in files.items():
        fs.pipe_file(f"{path}/{name}", bytes_of(name, records))


def event(op: str, number: int, key: int, name: str) -> Record:
    row = {"id": key, "name": name}
    images = {"before": row} if op == "d" else {"after": row}
    return numbered([sqlserver(op, commit=number + 1, key={"id": key}, **images)], first=number)[0]


def folded(*records: Record) -> Any:
    put({"changes.json": list(records)})
    return fold_natively(decoder_of({"changes.json": list(records)}), ARCHIVE).rows


def merge(opened: DeltaTable, *records: Record, version: int = 1) -> None:
    rows = rows_for(opened, folded(*records), ["id", "name"], microbatch=version)
    copy(opened, rows, of=CommitOf(application="flow:1", version=version, metadata=json.dumps({"microbatch": version})))


def copy(opened: DeltaTable, rows: Any, *, of: CommitOf) -> None:
    copy_and_add(opened, TABLE, find_marks(opened, TABLE, rows, keys=KEYS), rows=rows, keys=KEYS, of=of)


def test_files_of_any_name_are_read_and_no_others() -> None:
    files = {name: [event("c", number, number, f"n{number}")] for number, name in enumerate(NAMES)}
    put({**files, **{name: [event("c", 99, 99, "other")] for name in LOOKALIKES}})
    found = fold_natively(decoder_of(files), ARCHIVE)
    assert changes_of(found.rows) == [(number, f"n{number}", "c") for number in range(len(NAMES))]
    assert found.staged.events == len(NAMES)


def test_many_files_at_once_are_folded_to_the_last_event_of_each_key() -> None:
    records = [event("c", number, number % 7, f"n{number}") for number in range(70)]
    records += [event("d", 70, 3, "n66"), numbered([tombstone({"id": 3})], first=71)[0]]
    files = {f"many/{number:03d}.json.gz": [record] for number, record in enumerate(records)}
    put(files)
    found = fold_natively(decoder_of(files), ARCHIVE)
    assert changes_of(found.rows) == [(key, f"n{63 + key}", "c") if key != 3 else (3, None, "d") for key in range(7)]
    assert found.staged.has_deletes


def test_a_file_that_is_gone_or_refused_hands_over(stores: tuple[Store, Store]) -> None:
    decoder = decoder_of({"gone.json": [event("c", 0, 0, "x")]})
    with pytest.raises(HandedOver, match="cannot be read from the driver"):
        fold_natively(decoder, ARCHIVE)
    storage.use_options({"s3://events": options_of(stores[0], secret="wrong")})
    with pytest.raises(HandedOver, match="cannot be read from the driver") as refused:
        fold_natively(decoder, ARCHIVE)
    assert stores[0].key not in str(refused.value)


def test_a_table_is_described_by_the_jobs_credentials_alone(table: DeltaTable, stores: tuple[Store, Store]) -> None:
    found = describe_natively(TABLE)
    assert found is not None
    assert (found.files, found.size, found.properties) == (0, 0, {"airflow_cdc.keys": '["id"]'})
    assert [field.name for field in found.fields][:2] == ["id", "name"]
    assert [field.dataType.simpleString() for field in found.fields][:3] == [
        "bigint",
        "string",
        "struct<commit:decimal(38,0),change:decimal(38,0),serial:bigint>",
    ]
    opened = open_table(TABLE)
    assert why_not_written(opened) is None
    shown = f"{opened} {opened!r} {opened.table_uri} {opened.metadata()}"
    assert stores[1].key not in shown
    assert stores[1].secret not in shown
    merge(opened, event("c", 0, 1, "one"))
    again = describe_natively(TABLE)
    assert again is not None
    assert again.files == 1
    fs, path = storage.file_system(TABLE)
    assert again.size == sum(size for name, size in fs.du(path, total=False).items() if name.endswith(".parquet"))


def test_what_is_not_there_or_refused_is_left_to_spark(table: DeltaTable, stores: tuple[Store, Store]) -> None:
    assert describe_natively("s3a://tables/lake one/nothing") is None
    with pytest.raises(TableNotFoundError):
        open_table("s3a://tables/lake one/nothing")
    storage.use_options({"s3://tables": options_of(stores[1], secret="wrong-s3cr3t")})
    assert describe_natively(TABLE) is None
    storage.use_options({"s3://tables": options_of(stores[1])})
    assert describe_natively(TABLE) is None, "one failure is enough for a process"
    storage.use_options({"s3://tables": options_of(stores[1], secret="wrong-s3cr3t")})
    with pytest.raises(PermissionError) as refused:
        open_table(TABLE)
    assert "403 Forbidden" in str(refused.value)
    assert not [shown for shown in ("AWSAccessKeyId", stores[1].key, "wrong-s3cr3t", "://127") if shown in str(refused.value)]


def looked_at(uri: str = TABLE) -> NativeTable:
    found = native_table.open_table(uri)
    assert found is not None
    return found


@pytest.mark.parametrize("whole", [2**22, 0], ids=["files at once", "in ranges"])
def test_what_only_looks_reads_a_table_on_the_store(whole: int, table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "_WHOLE_UP_TO_BYTES", whole)
    assert looked_at().count() == 0
    merge(open_table(TABLE), event("c", 0, 1, "one"), event("c", 1, 2, "two"), event("c", 2, 3, "three"))
    merge(open_table(TABLE), event("u", 3, 1, "uno"), event("c", 4, 4, "four"), version=2)
    found = looked_at()
    named = [(1, "uno"), (2, "two"), (3, "three"), (4, "four")]
    assert [(row["id"], row["name"]) for row in found.rows(["id", "name"], order=['"id"'])] == named
    assert (found.keys, found.version, found.matching('"id" > 2')) == (KEYS, 2, 2)
    assert details_of(found).rows == 4
    assert native_table.open_table("s3a://tables/lake one/nothing") is None


def test_rows_that_a_deletion_vector_hides_on_the_store_are_gone(tmp_path: Path) -> None:
    files = [pa.table({"id": [0, 1, 2, 3]}), pa.table({"id": [4, 5]})]
    written = write_table(tmp_path / "t", [field("id", "long")], files, features=["deletionVectors"], deleted={0: [1, 3]})
    uri = "s3a://tables/lake one/part ly%"
    fs, path = storage.file_system(uri)
    fs.put(f"{written}/", f"{path}/", recursive=True)
    assert [row["id"] for row in looked_at(uri).rows(["id"], order=['"id"'])] == [0, 2, 4, 5]


def test_a_key_that_the_store_refuses_is_named_without_its_secret(table: DeltaTable, stores: tuple[Store, Store]) -> None:
    merge(open_table(TABLE), event("c", 0, 1, "one"))
    found = looked_at()
    storage.use_options({"s3://tables": options_of(stores[1], secret="wrong-s3cr3t")})
    for look in (partial(native_table.open_table, TABLE), partial(found.rows, ["id"])):
        with pytest.raises(NeedsSparkError) as refused:
            look()
        assert not [shown for shown in ("AWSAccessKeyId", stores[1].key, "wrong-s3cr3t", "://127") if shown in str(refused.value)]


def test_row_changes_are_merged_and_their_commit_carries_the_microbatch(table: DeltaTable) -> None:
    merge(open_table(TABLE), event("c", 0, 1, "one"), event("c", 1, 2, "two"), event("c", 2, 3, "three"))
    merge(open_table(TABLE), event("u", 3, 1, "uno"), event("d", 4, 2, "two"), event("c", 5, 4, "four"), version=2)
    opened = open_table(TABLE)
    assert rows_in(opened) == {1: "uno", 3: "three", 4: "four"}
    assert [commit["userMetadata"] for commit in commits_behind(TABLE, 0)] == ['{"microbatch": 1}', '{"microbatch": 2}']
    assert opened.transaction_version("flow:1") == 2


def test_delete_markers_are_written_where_spark_looks_for_them(table: DeltaTable) -> None:
    uri = delete_markers_uri("s3a://tables/lake one", "my flow")
    for version in (1, 2):
        rows = rows_for(open_table(TABLE), folded(event("d", version, version, "x"), event("c", 9, 9, "y")), ["id"], microbatch=version)
        append_markers(uri, rows, KEYS)
    fs, _ = storage.file_system(uri)
    assert fs.exists("tables/lake one/_cdc/flows/my flow/delete_markers/_delta_log/00000000000000000001.json")
    assert sorted(pa.table(open_table(uri).to_pyarrow_table()).column("id").to_pylist()) == [1, 2]


def test_markers_that_are_refused_show_no_key(table: DeltaTable, stores: tuple[Store, Store]) -> None:
    rows = rows_for(open_table(TABLE), folded(event("d", 1, 1, "x")), ["id"], microbatch=1)
    storage.use_options({"s3://tables": options_of(stores[1], secret="wrong-s3cr3t")})
    with pytest.raises(PermissionError) as refused:
        append_markers("s3a://tables/lake one/refused", rows, KEYS)
    assert stores[1].key not in str(refused.value)


def test_of_two_that_read_the_same_version_one_commits(table: DeltaTable) -> None:
    first, second = open_table(TABLE), open_table(TABLE)
    merge(first, event("c", 0, 1, "first"))
    with pytest.raises(ConcurrentRunError, match=r"committed version 2 of .* first"):
        merge(second, event("c", 0, 1, "second"), version=2)
    assert rows_in(open_table(TABLE)) == {1: "first"}


def test_of_many_that_commit_one_version_at_one_instant_exactly_one_does(table: DeltaTable) -> None:
    rounds = 12
    prepared = rows_for(open_table(TABLE), folded(event("c", 0, 1, "x")), ["id", "name"], microbatch=1)

    def write(opened: DeltaTable, writer: int, number: int) -> None:
        rows = prepared.set_column(0, "id", pa.array([number])).set_column(1, "name", pa.array([f"{writer}-{number}"]))
        copy(opened, rows, of=CommitOf(application=f"flow:{writer}", version=number, metadata=f"{writer}-{number}"))

    winners = winners_of(4, rounds, opened=partial(open_table, TABLE), write=write)
    opened = open_table(TABLE)
    assert opened.version() == rounds
    # No version was replaced: each holds the commit of who was told that it won.
    names = [f"{winner}-{number}" for number, winner in enumerate(winners)]
    assert [commit["userMetadata"] for commit in commits_behind(TABLE, 0)] == names
    assert Counter(rows_in(opened).values()) == Counter(names)


@pytest.fixture
def marked(table: DeltaTable) -> str:
    """A table with deletion vectors."""
    commit_deletion_vectors(TABLE, table)
    return TABLE


def mark(opened: DeltaTable, rows: Any, *, version: int, application: str = "flow:1") -> None:
    of = CommitOf(application=application, version=version, metadata=json.dumps({"microbatch": version}))
    mark_and_add(opened, TABLE, find_marks(opened, TABLE, rows, keys=KEYS), rows=rows, keys=KEYS, of=of)


def test_rows_are_marked_and_added_on_the_store(marked: str) -> None:
    batches = [
        [event("c", number, number, f"n{number}") for number in range(20)],
        [event("u", 20, 3, "three"), event("d", 21, 4, "n4"), event("c", 22, 30, "thirty")],
        [event("u", 23, 3, "drei"), event("d", 24, 30, "thirty"), event("c", 25, 4, "vier")],
    ]
    for version, records in enumerate(batches, 1):
        opened = open_table(marked)
        mark(opened, rows_for(opened, folded(*records), ["id", "name"], microbatch=version), version=version)
    expected = {**{number: f"n{number}" for number in range(20)}, 3: "drei", 4: "vier"}
    assert {row["id"]: row["name"] for row in looked_at().rows(["id", "name"], order=['"id"'])} == expected
    counts = [
        [int(commit["operationMetrics"][name]) for name in ("numTargetDeletionVectorsAdded", "numTargetFilesRemoved")]
        for commit in commits_behind(marked, 1)
    ]
    # Of the second file both rows are replaced.
    assert counts == [[0, 0], [1, 0], [0, 1]]
    assert open_table(marked).transaction_version("flow:1") == 3


def test_of_many_that_mark_rows_of_one_version_at_one_instant_exactly_one_commits(marked: str) -> None:
    rounds = 6
    opened = open_table(marked)
    prepared = rows_for(opened, folded(event("c", 0, 1, "x")), ["id", "name"], microbatch=1)
    mark(opened, prepared, version=1)

    def write(found: DeltaTable, writer: int, number: int) -> None:
        mark(found, prepared.set_column(1, "name", pa.array([f"{writer}-{number}"])), version=number, application=f"flow:{writer}")

    winners = winners_of(4, rounds, opened=partial(open_table, marked), write=write)
    assert [row["name"] for row in looked_at().rows(["name"], order=['"id"'])] == [f"{winners[-1]}-{rounds - 1}"]


def test_a_key_that_is_refused_while_rows_are_marked_is_not_shown(marked: str, stores: tuple[Store, Store]) -> None:
    opened = open_table(marked)
    rows = rows_for(opened, folded(event("c", 0, 1, "one")), ["id", "name"], microbatch=1)
    mark(opened, rows, version=1)
    again = open_table(marked)
    storage.use_options({"s3://tables": options_of(stores[1], secret="wrong-s3cr3t")})
    with pytest.raises(PermissionError) as refused:
        mark(again, rows, version=2)
    assert not [shown for shown in ("AWSAccessKeyId", stores[1].key, "wrong-s3cr3t", "://127") if shown in str(refused.value)]


def test_another_process_that_appends_meanwhile_is_not_overwritten(table: DeltaTable, stores: tuple[Store, Store]) -> None:
    opened = open_table(TABLE)
    foreign = rows_for(opened, folded(event("c", 0, 7, "foreign")), ["id", "name"], microbatch=0)
    write_deltalake("s3://tables/lake%20one/orders%3D1%20%C3%BC", foreign, mode="append", storage_options=stores[1].delta_options)
    with pytest.raises(ConcurrentRunError):
        merge(opened, event("c", 1, 1, "ours"))
    assert rows_in(open_table(TABLE)) == {7: "foreign"}


def test_the_store_is_found_to_exclude_a_second_writer() -> None:
    assert excludes_writers("s3a://tables/probed")
    fs, path = storage.file_system("s3://tables/probed")
    assert fs.find(path) == []


def test_a_store_that_ignores_a_writes_condition_is_found_out() -> None:
    with careless_store() as careless:
        storage.use_options({"s3://careless": {"key": "AK", "secret": "s3cr3t", "endpoint_url": careless.endpoint}})
        storage.file_system("s3://careless/lake")
        assert not excludes_writers("s3a://careless/lake")
        conditions = [request.headers["If-None-Match"] for request in careless.requests if request.method == "PUT"]
        assert conditions == ["*", "*"]
        assert careless.objects == {}
        asked = len(careless.requests)
        assert not excludes_writers("s3a://careless/other")
        assert len(careless.requests) == asked, "a process asks once"


def test_a_variable_that_switches_the_condition_off_has_no_effect(table: DeltaTable, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    assert why_not_reached(TABLE) is None
    test_of_two_that_read_the_same_version_one_commits(table)


def test_keys_of_the_environment_serve_where_no_connection_gives_any(
    table: DeltaTable, stores: tuple[Store, Store], monkeypatch: pytest.MonkeyPatch
) -> None:
    without = {name: value for name, value in options_of(stores[1]).items() if name not in {"key", "secret"}}
    monkeypatch.setitem(storage._OPTIONS, "s3://tables", without)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", stores[1].key)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", stores[1].secret)
    merge(open_table(TABLE), event("c", 0, 1, "one"))
    assert rows_in(open_table(TABLE)) == {1: "one"}


def test_processes_that_are_started_later_inherit_no_key(table: DeltaTable, stores: tuple[Store, Store]) -> None:
    assert describe_natively(TABLE) is not None  # delta-rs once copied its options into the process's environment.
    inherited = subprocess.run(["/usr/bin/env"], capture_output=True, text=True, check=True).stdout
    assert stores[1].key not in inherited
    assert stores[1].secret not in inherited
