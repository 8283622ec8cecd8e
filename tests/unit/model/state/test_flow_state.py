"""The lake's state of flows: where each flow stands, how that is found again when a part is lost, and in which folder it lies."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.files import create_json, read_json
from airflow_cdc.model.places import delete_markers_uri, flow_folder, quarantine_uri, staging_uri
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.report.health import FlowHealth, HealthCounts
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState, flows_in
from airflow_cdc.model.state.microbatch import HeldFile, Microbatch, PlanPosition
from tests.support.surveys import ARCHIVE, FS, archived, shape

TABLE = "file:///lake/t"


# -- where a flow stands -------------------------------------------------------------------------------------------


def microbatch(number: int, planned: PlanPosition, archive: str = ARCHIVE) -> Microbatch:
    return Microbatch("t", number, archive, (archived(f"f{number}", 10),), planned, (shape(f"f{number}", "t"),))


def report(number: int, **facts: Any) -> BatchReport:
    return BatchReport("t", number, 1, 10, **facts)


def commit(state: FlowState, intent: Microbatch, done: BatchReport) -> None:
    assert state.write_intent(intent)
    state.write_commit(done, TABLE)


@pytest.fixture
def history(tmp_path: Path) -> tuple[FlowState, list[FlowCheckpoint]]:
    """A flow with three committed microbatches, and what its checkpoint must be after each."""
    state = FlowState(FS, str(tmp_path), "t")
    expected = [
        FlowCheckpoint(
            "t",
            1,
            {ARCHIVE: PlanPosition(1, 1)},
            {"0": Position(10, 11, 2), "1": Position(9)},
            {},
            EventCounts(read=3, merged=3),
            TABLE,
            4,
            health=FlowHealth(last=HealthCounts(read=3)),
        ),
        FlowCheckpoint(
            "t",
            2,
            {ARCHIVE: PlanPosition(1, 1), "file:///backfill": PlanPosition(5, 2)},
            # A late microbatch does not move a partition back.
            {"0": Position(10, 11, 2), "1": Position(9, 9), "-": Position(3)},
            {"t": Position(7, 7, 7)},
            EventCounts(read=5, merged=4, stale=1),
            TABLE,
            4,
            health=FlowHealth(last=HealthCounts(read=2)),
        ),
        FlowCheckpoint(
            "t",
            3,
            {ARCHIVE: PlanPosition(2, 0), "file:///backfill": PlanPosition(5, 2)},
            {"0": Position(10, 11, 3), "1": Position(9, 9), "-": Position(3)},
            # An earlier truncate that comes later does not take the shield away.
            {"t": Position(7, 7, 7)},
            EventCounts(read=6, merged=5, stale=1),
            TABLE,
            9,
            health=FlowHealth(last=HealthCounts(read=1)),
        ),
    ]
    reports = [
        report(1, events=EventCounts(read=3, merged=3), applied_through=expected[0].applied_through, table_version=4),
        report(
            2,
            events=EventCounts(read=2, merged=1, stale=1),
            applied_through={"0": Position(10, 11, 1), "1": Position(9, 9), "-": Position(3)},
            truncated_through={"t": Position(7, 7, 7)},
        ),
        report(
            3,
            events=EventCounts(read=1, merged=1),
            applied_through={"0": Position(10, 11, 3)},
            truncated_through={"t": Position(5)},
            table_version=9,
        ),
    ]
    plans = [(PlanPosition(1, 1), ARCHIVE), (PlanPosition(5, 2), "file:///backfill"), (PlanPosition(2, 0), ARCHIVE)]
    for number, ((planned, archive), done) in enumerate(zip(plans, reports, strict=True), start=1):
        commit(state, microbatch(number, planned, archive), done)
    return state, expected


def test_a_checkpoint_keeps_what_waits_and_which_offsets_were_seen_by_archive(tmp_path: Path) -> None:
    state = FlowState(FS, str(tmp_path), "t")
    first, second = FileOffsets("f1", 0, 0, 9, ((0, 9),)), FileOffsets("f2", 0, 10, 19, ((10, 19),))
    held = (HeldFile(1, "f7"), HeldFile(2, "f3"))
    commit(state, replace(microbatch(1, PlanPosition(1, 2)), offsets=(first,), held=held), report(1))
    commit(state, replace(microbatch(2, PlanPosition(9, 9), "file:///other"), offsets=(first,)), report(2))
    found = state.checkpoint()
    assert found.held == {ARCHIVE: held}
    assert found.offsets == {name: ArchivedOffsets().with_files([first]) for name in (ARCHIVE, "file:///other")}

    commit(state, replace(microbatch(3, PlanPosition(3, 1)), offsets=(second,)), report(3))
    found = state.checkpoint()
    assert found.held == {}
    assert found.offsets[ARCHIVE] == ArchivedOffsets().with_files([second, first])
    assert len(found.offsets[ARCHIVE].partitions[0].runs) == 1
    checkpoint_file(tmp_path).unlink()
    assert state.checkpoint() == found == FlowCheckpoint.from_json(json.loads(checkpoint_file(tmp_path).read_text()))


def test_a_checkpoint_written_before_offsets_were_kept_is_read(tmp_path: Path) -> None:
    document = FlowCheckpoint("t", 3).to_json()
    del document["held"], document["offsets"]
    assert FlowCheckpoint.from_json(document) == FlowCheckpoint("t", 3)


def checkpoint_file(lake: Path) -> Path:
    return lake / "_cdc" / "flows" / "t" / "checkpoint.json"


def test_a_flow_without_history_stands_at_zero_and_looking_writes_nothing(tmp_path: Path) -> None:
    assert FlowState(FS, str(tmp_path), "t").checkpoint() == FlowCheckpoint("t")
    assert list(tmp_path.iterdir()) == []


def test_a_checkpoint_follows_the_commits(history: tuple[FlowState, list[FlowCheckpoint]], tmp_path: Path) -> None:
    state, expected = history
    assert state.checkpoint() == expected[2]
    assert FlowCheckpoint.from_json(json.loads(checkpoint_file(tmp_path).read_text())) == expected[2]


@pytest.mark.parametrize("behind", [None, 0, 1])
def test_a_checkpoint_that_is_lost_or_behind_is_rebuilt(
    behind: int | None, history: tuple[FlowState, list[FlowCheckpoint]], tmp_path: Path
) -> None:
    state, expected = history
    state.checkpoint()
    if behind is None:
        checkpoint_file(tmp_path).unlink()
    else:
        checkpoint_file(tmp_path).write_text(json.dumps(expected[behind].to_json()))

    assert state.checkpoint() == expected[2]
    assert json.loads(checkpoint_file(tmp_path).read_text())["number"] == 3


def test_a_checkpoint_stops_before_a_microbatch_that_is_planned_but_not_done(
    history: tuple[FlowState, list[FlowCheckpoint]],
) -> None:
    state, expected = history
    open_one = microbatch(4, PlanPosition(3, 1))
    assert state.write_intent(open_one) is True
    # Another run plans the same number: it must take up the first plan, not its own.
    assert state.write_intent(replace(open_one, files=())) is False
    assert state.checkpoint() == expected[2]
    assert state.intent(4) == open_one
    assert state.intent(5) is None
    assert state.report(4) is None
    assert state.report(3) == report(
        3,
        events=EventCounts(read=1, merged=1),
        applied_through={"0": Position(10, 11, 3)},
        truncated_through={"t": Position(5)},
        table_version=9,
    )


def test_a_commit_marker_does_not_count_before_those_below_it(tmp_path: Path) -> None:
    state = FlowState(FS, str(tmp_path), "t")
    commit(state, microbatch(2, PlanPosition(2, 1)), report(2))
    assert state.checkpoint().number == 0
    commit(state, microbatch(1, PlanPosition(1, 1)), report(1))
    assert state.checkpoint().number == 2


def test_a_broken_checkpoint_is_named(history: tuple[FlowState, list[FlowCheckpoint]], tmp_path: Path) -> None:
    state, _ = history
    checkpoint_file(tmp_path).write_text("{")
    with pytest.raises(StateUnreadableError, match=r"checkpoint\.json is not JSON.*remove it if it is a checkpoint"):
        state.checkpoint()


@pytest.mark.parametrize("text", ['{"flow": "t"}', '{"flow": "t", "number": 1, "planned": 3}'])
def test_a_checkpoint_of_another_shape_is_named_too(text: str, history: tuple[FlowState, list[FlowCheckpoint]], tmp_path: Path) -> None:
    state, _ = history
    checkpoint_file(tmp_path).write_text(text)
    with pytest.raises(StateUnreadableError, match=r"checkpoint\.json"):
        state.checkpoint()


# -- names ---------------------------------------------------------------------------------------------------------


@given(st.lists(st.text(min_size=1, max_size=12) | st.sampled_from([".", "..", "...", "%2E"]), unique=True, max_size=4))
def test_every_flow_has_a_folder_of_its_own_under_its_name(flows: list[str]) -> None:
    fs = fsspec.filesystem("memory")
    try:
        for name in flows:
            assert not {"/", "\0"} & set(flow_folder(name))
            assert flow_folder(name) not in {"", ".", ".."}
            FlowState(fs, "/test_lake", name).write_intent(replace(microbatch(1, PlanPosition(1, 1)), flow=name))
        assert flows_in(fs, "/test_lake") == sorted(flows)
        for name in flows:
            found = FlowState(fs, "/test_lake", name).intent(1)
            assert found is not None
            assert found.flow == name
    finally:
        if fs.exists("/test_lake"):
            fs.rm("/test_lake", recursive=True)


def test_the_names_of_kafka_topics_are_folders_as_they_are() -> None:
    assert flow_folder("server1.testDB.dbo.my-table_1") == "server1.testDB.dbo.my-table_1"
    assert flow_folder("a/b%c+d") == "a%2Fb%25c%2Bd"


class Folding(MemoryFileSystem):  # type: ignore[misc]
    """A store that takes names for one that differ by case, as those of macOS and Windows do."""

    store: ClassVar[dict[str, Any]] = {}
    pseudo_dirs: ClassVar[list[str]] = [""]

    @classmethod
    def _strip_protocol(cls, path: str) -> str:
        stripped: str = super()._strip_protocol(path)
        return stripped.lower()


NAMES = st.text("aAbBéÉ.%4", min_size=1, max_size=4)


@given(st.lists(NAMES, unique=True, max_size=6), st.lists(NAMES, max_size=2, unique_by=str.lower))
def test_flows_whose_names_differ_by_case_have_folders_of_their_own_on_any_store(flows: list[str], older: list[str]) -> None:
    fs = Folding(skip_instance_cache=True)
    fs.store.clear()
    fs.pseudo_dirs[:] = [""]
    # A lake of an older version: the folder is called as the flow is.
    for name in older:
        create_json(fs, f"/lake/_cdc/flows/{flow_folder(name)}/flow.json", {"flow": name, "incarnation": "old"})
    fs.makedirs("/lake/_cdc", exist_ok=True)
    for name in [*flows, *older]:
        FlowState(fs, "/lake", name).incarnation()
    for name in {*flows, *older}:
        found = FlowState(fs, "/lake", name)
        note = read_json(fs, f"/lake/_cdc/flows/{found.folder}/flow.json")
        assert note is not None
        assert note["flow"] == name
        assert (found.incarnation() == "old") is (name in older)
        assert (found.folder == flow_folder(name)) or name not in older


def test_a_store_that_distinguishes_case_has_todays_folders() -> None:
    fs = fsspec.filesystem("memory")
    fs.makedirs("/test_case/_cdc", exist_ok=True)
    try:
        assert [FlowState(fs, "/test_case", name).folder for name in ("pg.Orders", "pg.orders")] == ["pg.Orders", "pg.orders"]
    finally:
        fs.rm("/test_case", recursive=True)


def test_a_flows_tables_lie_in_its_folder() -> None:
    for lake in ("s3://bucket/lake", "s3://bucket/lake/"):
        assert quarantine_uri(lake, "a b") == "s3://bucket/lake/_cdc/flows/a b/quarantine"
        assert delete_markers_uri(lake, flow_folder("a/b")) == "s3://bucket/lake/_cdc/flows/a%2Fb/delete_markers"
        assert staging_uri(lake, "t") == "s3://bucket/lake/_cdc/flows/t/staging"
    assert flows_in(FS, "/nowhere/at/all") == []
