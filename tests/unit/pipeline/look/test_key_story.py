"""The story of a key, over small archives and lakes: order, microbatches, outcomes, and what cannot be read."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat, classify
from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.look.key_outcomes import Outcome
from airflow_cdc.pipeline.look.key_story import Bounds, key_story
from tests.support.events import TOPIC as FLOW
from tests.support.events import lsn, numbered, sqlserver, tombstone, write_records, write_sink_file
from tests.support.small_lakes import POSITION, field, our_properties, write_quarantine, write_table
from tests.support.surveys import FS, shape

ANN, BOB = {"id": 1, "name": "ann"}, {"id": 1, "name": "bob"}
POSITIONS = pa.struct([("commit", pa.decimal128(38, 0)), ("change", pa.decimal128(38, 0)), ("serial", pa.int64())])


def place(commit: int) -> Position:
    number = sqlserver_lsn(lsn(commit))
    return Position(number, number, 1)


class Lake:
    """An archive and a lake, of which each microbatch owns one file."""

    def __init__(self, root: Path) -> None:
        self.archive, self.lake = root / "archive", root / "lake"
        self.state = FlowState(FS, str(self.lake), FLOW)
        self.number = 0

    def file(self, path: str) -> ArchivedFile:
        names = [(str(each.relative_to(self.archive)), each.stat().st_size) for each in self.archive.rglob("*") if each.is_file()]
        return next(file for file in classify(names).files if file.path == path)

    def applied(self, path: str, *, is_done: bool = True, kind: FileFormat | None = None, **counts: int) -> None:
        self.number += 1
        file = replace(self.file(path), format=kind) if kind else self.file(path)
        intent = Microbatch(FLOW, self.number, str(self.archive), (file,), PlanPosition(1, self.number), (shape(path, FLOW),))
        assert self.state.write_intent(intent)
        report = BatchReport(FLOW, self.number, 1, 9, events=EventCounts(**{"read": 1, "merged": 1, **counts}), table_version=0)
        if is_done:
            self.state.write_commit(report, f"{self.lake}/{FLOW}", intent.digest)

    def has_row(self, row: dict[str, Any], commit: int, microbatch: int, op: str = "u") -> None:
        at = place(commit)
        ours = {"__cdc_position": vars(at), "__cdc_op": op, "__cdc_microbatch": microbatch}
        kinds = [("id", pa.int64()), ("name", pa.string()), ("__cdc_position", POSITIONS), ("__cdc_op", pa.string())]
        schema = pa.schema([*kinds, ("__cdc_microbatch", pa.int64())])
        fields = [field("id", "long"), field("name", "string"), field("__cdc_position", POSITION), field("__cdc_op", "string")]
        rows = pa.Table.from_pylist([{**row, **ours}], schema=schema)
        write_table(self.lake / FLOW, [*fields, field("__cdc_microbatch", "long")], [rows], properties=our_properties(["id"]))

    def outcomes(self, key: str = "1") -> list[tuple[str | None, Outcome, tuple[int, ...], bool]]:
        story = key_story(str(self.lake), FLOW, key)
        return [(event.op, event.judged.outcome, event.microbatches, event.judged.is_proven) for event in story.events]


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    return Lake(tmp_path)


def test_events_are_in_the_order_of_the_log_with_what_became_of_each(lake: Lake) -> None:
    create, other = sqlserver("c", commit=1, after=ANN), sqlserver("c", commit=2, after={"id": 11, "name": "1"})
    update = sqlserver("u", commit=3, before=ANN, after=BOB)
    write_records(lake.archive / "1.jsonl", numbered([create, other, update, update]))
    lake.applied("1.jsonl")
    lake.has_row(BOB, 3, 1)
    assert lake.outcomes() == [
        ("c", Outcome.SUPERSEDED, (1,), True),
        ("u", Outcome.MERGED, (1,), True),
        ("u", Outcome.REDELIVERED, (1,), False),
    ]
    story = key_story(str(lake.lake), FLOW, "1")
    assert [(change.column, change.before, change.after) for change in story.events[1].changes] == [("name", "ann", "bob")]
    assert [(row.values, row.is_live, row.microbatch) for row in story.rows] == [(BOB, True, 1)]
    assert (story.connector, story.unread, story.notes) == ("sqlserver", {}, ())


def test_a_late_event_is_stale_where_the_report_counts_one_and_unclear_where_it_does_not(lake: Lake) -> None:
    for number, commit in ((1, 5), (2, 3), (3, 4)):
        write_records(lake.archive / f"{number}.jsonl", numbered([sqlserver("u", commit=commit, after=BOB)], first=number))
    lake.applied("1.jsonl")
    lake.applied("2.jsonl", merged=0, stale=1)
    lake.applied("3.jsonl")
    lake.has_row(BOB, 5, 1)
    assert lake.outcomes() == [
        ("u", Outcome.STALE, (2,), False),
        ("u", Outcome.UNCLEAR, (3,), False),
        ("u", Outcome.MERGED, (1,), True),
    ]


def test_a_rejected_record_has_its_reason_and_a_tombstone_is_one(lake: Lake) -> None:
    records = [sqlserver("c", commit=1, after={"id": 1, "name": "ann"}), tombstone({"id": 1})]
    write_records(lake.archive / "1.jsonl", numbered(records))
    lake.applied("1.jsonl", merged=0, rejected=1, tombstones=1)
    reject = {"microbatch": 1, "reason": "value_does_not_fit_column", "detail": "column name", "topic": FLOW, "partition": 0, "offset": 0}
    write_quarantine(lake.lake, [{**reject, "file": "1.jsonl", "line": 1, "raw": "{", "raw_key": None}], FLOW)
    story = key_story(str(lake.lake), FLOW, "1")
    assert [(event.judged.outcome, event.judged.why) for event in story.events] == [
        (Outcome.REJECTED, "value_does_not_fit_column: column name"),
        (Outcome.TOMBSTONE, "a null value, which follows a delete"),
    ]


def test_what_was_rejected_and_merged_by_a_replay_belongs_to_the_replay(lake: Lake) -> None:
    write_records(lake.archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    lake.applied("1.jsonl", merged=0, rejected=1)
    lake.applied("1.jsonl")
    lake.has_row(ANN, 1, 2, op="c")
    assert lake.outcomes() == [("c", Outcome.MERGED, (1, 2), True)]
    assert key_story(str(lake.lake), FLOW, "1").to_json()["events"][0]["microbatches"] == [1, 2]


def test_a_file_that_is_cut_off_is_named_and_the_others_are_read(lake: Lake) -> None:
    for number, name in ((1, "1.jsonl.gz"), (2, "2.jsonl")):
        write_records(lake.archive / name, numbered([sqlserver("u", commit=number, after=BOB)], first=number))
    (lake.archive / "3.jsonl.zst").write_bytes(b"\x28\xb5\x2f\xfd\x04")
    (lake.archive / "1.jsonl.gz").write_bytes((lake.archive / "1.jsonl.gz").read_bytes()[:-9])
    for name in ("1.jsonl.gz", "3.jsonl.zst", "2.jsonl"):
        lake.applied(name)
    story = key_story(str(lake.lake), FLOW, "1")
    assert sorted(story.unread) == ["1.jsonl.gz", "3.jsonl.zst"]
    assert all("cut off" in reason for reason in story.unread.values())
    assert [event.microbatches for event in story.events] == [(3,)]


def test_events_of_a_microbatch_that_is_not_committed_are_planned(lake: Lake) -> None:
    write_records(lake.archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    lake.applied("1.jsonl", is_done=False)
    assert lake.outcomes() == [("c", Outcome.PLANNED, (), True)]


def test_values_with_companions_are_found_by_either(lake: Lake) -> None:
    records = numbered([sqlserver("c", commit=1, after=ANN), sqlserver("d", commit=2, before={"name": "ann"}, key={"id": 1})])
    path = write_sink_file(lake.archive, records, keys=True, suffix=".gz").relative_to(lake.archive)
    lake.applied(str(path))
    # The survey's layout: one value a line.
    document = lake.lake / "_cdc/flows" / FLOW / "intents/00000001.json"
    document.write_text(document.read_text().replace('"record"', '"value"'))
    marker = lake.lake / "_cdc/flows" / FLOW / "commits/00000001.json"
    assert marker.exists()
    assert [event.op for event in key_story(str(lake.lake), FLOW, "id=1").events] == ["c", "d"]


def test_what_is_not_searched_is_named(lake: Lake) -> None:
    for name in ("1.parquet", "2.jsonl"):
        write_records(lake.archive / name, numbered([sqlserver("c", commit=1, after=ANN)]))
        lake.applied(name)
    (lake.archive / "2.jsonl").unlink()
    story = key_story(str(lake.lake), FLOW, "1")
    assert story.unread == {"2.jsonl": "it is no longer in the archive", "1.parquet": "parquet files are read by Spark alone"}
    assert story.events == ()


def test_old_text_beyond_the_bound_and_old_microbatches_are_left_out(lake: Lake) -> None:
    for number in (1, 2, 3):
        write_records(lake.archive / f"{number}.jsonl", numbered([sqlserver("u", commit=number, after=BOB)], first=number))
        lake.applied(f"{number}.jsonl")
    size = (lake.archive / "3.jsonl").stat().st_size
    story = key_story(str(lake.lake), FLOW, "1", Bounds(size, 2))
    assert [event.microbatches for event in story.events] == [(3,)]
    assert list(story.unread) == ["2.jsonl"]
    assert "microbatches before 2 were not looked through" in story.notes
    assert story.older == 2

    # Even the file that the answer begins with is larger: the next answer begins before it.
    below = key_story(str(lake.lake), FLOW, "1", Bounds(1, through=story.older))
    assert (below.events, sorted(below.unread), below.older) == ((), ["1.jsonl", "2.jsonl"], 1)

    rest = key_story(str(lake.lake), FLOW, "1", Bounds(through=story.older))
    assert [event.microbatches for event in rest.events] == [(1,), (2,)]
    assert (rest.unread, rest.older) == ({}, 0)
    assert rest.notes[-1] == "microbatches after 2 and files that wait were not looked through"


def test_a_table_beyond_the_bound_is_not_searched_and_named(lake: Lake) -> None:
    write_records(lake.archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    lake.applied("1.jsonl")
    lake.has_row(ANN, 1, 1, op="c")
    story = key_story(str(lake.lake), FLOW, "1", Bounds(table=1))
    assert (story.rows, len(story.events)) == ((), 1)
    assert story.notes == ("the table is larger than 0 MiB: its rows were not searched",)


def test_archives_are_reached_as_the_caller_reaches_them_once_each(lake: Lake, tmp_path: Path) -> None:
    for number in (1, 2):
        write_records(lake.archive / f"{number}.jsonl", numbered([sqlserver("u", commit=number, after=BOB)], first=number))
        lake.applied(f"{number}.jsonl")
    moved = lake.archive.rename(tmp_path / "moved")
    asked: list[str] = []

    def reach(archive: str) -> tuple[FileSystem, str]:
        asked.append(archive)
        return FS, str(moved)

    story = key_story(str(lake.lake), FLOW, "1", reach=reach)
    assert [event.microbatches for event in story.events] == [(1,), (2,)]
    assert asked == [str(lake.archive)]


def test_an_archive_that_is_not_reached_is_asked_once(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*_: object, **__: object) -> None:
        asked.append(1)
        raise PermissionError("no entry")

    for number in (1, 2):
        write_records(lake.archive / f"{number}.jsonl", numbered([sqlserver("u", commit=number, after=BOB)], first=number))
        lake.applied(f"{number}.jsonl")
    monkeypatch.setattr("airflow_cdc.pipeline.look.key_events.content_of", refuse)
    reasons = set(key_story(str(lake.lake), FLOW, "1").unread.values())
    assert (reasons, asked) == ({"the archive is not reached from here (no entry)"}, [1])


@pytest.mark.parametrize("key", ["name=ann", "one"])
def test_a_key_that_does_not_fit_is_refused(lake: Lake, key: str) -> None:
    write_records(lake.archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    lake.applied("1.jsonl")
    lake.has_row(ANN, 1, 1)
    with pytest.raises(ConfigurationError, match="is no BIGINT"):
        key_story(str(lake.lake), FLOW, key)


@pytest.mark.parametrize("name", ["2.jsonl.gz", "2.jsonl"])
def test_a_file_that_is_far_larger_than_it_was_is_not_read(lake: Lake, name: str) -> None:
    write_records(lake.archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    lake.applied("1.jsonl")
    (lake.archive / name).write_bytes(gzip.compress(b"{}") if name.endswith(".gz") else b"{}")
    lake.applied(name)
    much = b" " * 40 * 1024**2
    (lake.archive / name).write_bytes(gzip.compress(much) if name.endswith(".gz") else much)
    story = key_story(str(lake.lake), FLOW, "1", Bounds(text=1024**2))
    assert "it " in story.unread[name]
    assert "1,048,5" in story.unread[name]
    assert story.unread["1.jsonl"] == "more than 1 MiB of newer text was searched", "the rest was spent on it"


def test_an_array_counts_for_what_it_is_in_memory(lake: Lake) -> None:
    lake.archive.mkdir(parents=True)
    (lake.archive / "1.json").write_text(f"[{', '.join(['{}'] * 30_000)}]")
    lake.applied("1.json", kind=FileFormat.ARRAY)
    assert key_story(str(lake.lake), FLOW, "1", Bounds(text=1024**2)).unread == {"1.json": "it is larger than 65,536 bytes"}
    assert key_story(str(lake.lake), FLOW, "1").unread == {}


@pytest.mark.parametrize("blank", [0, 1, 70_000, 3_000_000])
def test_lines_are_found_by_number_between_any_number_of_ends_of_lines(lake: Lake, blank: int) -> None:
    events = [sqlserver("c", commit=1, after=ANN), sqlserver("u", commit=2, before=ANN, after=BOB)]
    lines = [json.dumps(record) for record in numbered(events)]
    lake.archive.mkdir(parents=True)
    (lake.archive / "1.jsonl").write_text(f"{lines[0]}\n" + "\n" * blank + f"{lines[1]}")
    lake.applied("1.jsonl")
    assert [event.line for event in key_story(str(lake.lake), FLOW, "1").events] == [1, blank + 2]
