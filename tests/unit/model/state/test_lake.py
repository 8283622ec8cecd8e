"""The lake's state of archives: which files are surveyed, how that is found again when a part is lost; and the JSON of every state."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, archives_in
from airflow_cdc.model.state.ledger import FolderSeen, Ledger
from airflow_cdc.model.state.microbatch import HeldFile, Microbatch, PlanPosition
from tests.support.surveys import ARCHIVE, FS, archived, files, names, numbers, shape, shapes, survey


@pytest.fixture
def state(tmp_path: Path) -> ArchiveState:
    return ArchiveState(FS, str(tmp_path), ARCHIVE)


def unsurveyed(state: ArchiveState, paths: Iterable[str]) -> list[str]:
    """Return which of the paths no survey holds, as a run finds out that lists them in their order."""
    return [file.path for file in state.unsurveyed([archived(path) for path in sorted(paths)], state.ledger())]


def ledger_file(lake: Path) -> Path:
    (found,) = (lake / "_cdc" / "archives").glob("*/ledger.json")
    return found


# -- the ledger ----------------------------------------------------------------------------------------------------


def test_a_ledger_remembers_topics_by_their_first_survey_and_all_that_was_seen_in_them() -> None:
    first = Survey(ARCHIVE, 1, (archived("a"),), (shape("a", "t", "r"), shape("a", "server1.transaction", "transaction")))
    second = Survey(ARCHIVE, 2, (archived("b"), archived("x/c")), (shape("b", "u", "c"), shape("x/c", "t", "c"), shape("x/c", "t", "r")))

    ledger = Ledger().with_survey(first).with_survey(second)

    assert ledger.surveyed_through == 2
    assert ledger.topics == {"t": 1, "server1.transaction": 1, "u": 2}
    assert ledger.kinds == {"t": ("c", "r"), "server1.transaction": ("transaction",), "u": ("c",)}
    assert (ledger.tables(), ledger.control_topics()) == (["t", "u"], ["server1.transaction"])
    assert {name: (seen.through, seen.count) for name, seen in ledger.folders.items()} == {"": ("b", 2), "x": ("c", 1)}


def test_a_topic_that_looked_like_control_becomes_a_table_when_its_first_row_comes_and_keeps_its_first_survey() -> None:
    ledger = Ledger().with_survey(survey(1, {"a": ["t"]}, kind="heartbeat"))
    assert (ledger.tables(), ledger.control_topics()) == ([], ["t"])
    ledger = ledger.with_survey(survey(2, {"b": ["t"]}))
    assert (ledger.tables(), ledger.control_topics()) == (["t"], [])
    # Its first survey is where its microbatches start: nothing of it is skipped.
    assert ledger.topics == {"t": 1}


def test_a_file_without_any_record_is_surveyed_all_the_same(state: ArchiveState) -> None:
    state.add(survey(1, {"empty": []}))
    assert unsurveyed(state, ["empty"]) == []
    assert state.ledger().tables() == []


# -- which files are new -------------------------------------------------------------------------------------------


def test_before_the_first_survey_every_file_is_new(state: ArchiveState) -> None:
    assert unsurveyed(state, ["b", "a", "x/c"]) == ["a", "b", "x/c"]
    assert unsurveyed(state, []) == []


def test_after_a_survey_what_comes_behind_and_in_new_folders_is_new(state: ArchiveState) -> None:
    state.add(survey(1, {"a": "t", "c": "t", "x/a": "t"}))
    assert unsurveyed(state, ["a", "c", "x/a"]) == []
    assert unsurveyed(state, ["a", "c", "d", "x/a", "x/a+", "y/a"]) == ["d", "x/a+", "y/a"]


def test_a_late_file_that_sorts_below_the_last_surveyed_name_is_found(state: ArchiveState) -> None:
    state.add(survey(1, {"a": "t", "c": "t"}))
    assert unsurveyed(state, ["a", "b", "c"]) == ["b"]
    assert unsurveyed(state, ["0", "a", "b", "c", "d"]) == ["0", "b", "d"]
    state.add(survey(2, {"b": "t"}))
    assert unsurveyed(state, ["a", "b", "c"]) == []


def test_a_removed_file_neither_hides_a_late_one_nor_makes_the_others_new(state: ArchiveState) -> None:
    state.add(survey(1, {"a": "t", "b": "t", "c": "t"}))
    assert unsurveyed(state, ["a", "c"]) == []
    assert unsurveyed(state, ["a"]) == []
    assert unsurveyed(state, ["a", "c", "d"]) == ["d"]
    # One removed and one late: their number alone would say that nothing happened.
    assert unsurveyed(state, ["a", "bb", "c"]) == ["bb"]
    assert unsurveyed(state, ["aa", "bb", "cc"]) == ["aa", "bb", "cc"]


def test_one_folder_in_disorder_leaves_the_others_alone(state: ArchiveState) -> None:
    state.add(survey(1, {"x/a": "t", "x/c": "t", "y/a": "t"}))
    assert unsurveyed(state, ["x/a", "x/b", "x/c", "y/a", "y/b"]) == ["x/b", "y/b"]


folders = st.sampled_from(["", "x/", "x/y/", "z=1/"])
paths = st.builds("{}{}".format, folders, st.text("abc+0", min_size=1, max_size=3))


@given(st.lists(st.tuples(st.sets(paths, max_size=6), st.sets(paths, max_size=3)), max_size=5))
def test_whatever_comes_and_goes_a_listing_minus_the_surveyed_files_is_new(rounds: list[tuple[set[str], set[str]]]) -> None:
    fs = fsspec.filesystem("memory")
    state = ArchiveState(fs, "/test_lake", ARCHIVE)
    try:
        there: set[str] = set()
        known: set[str] = set()
        number = 1
        for arrived, removed in rounds:
            there |= arrived
            found = unsurveyed(state, there)
            assert found == sorted(there - known)
            if found:
                assert state.add(survey(number, dict.fromkeys(found, "t")))
                known |= set(found)
                number += 1
            there -= removed
    finally:
        if fs.exists("/test_lake"):
            fs.rm("/test_lake", recursive=True)


# -- a ledger that is lost or behind -------------------------------------------------------------------------------


def test_a_lost_ledger_is_rebuilt_from_the_surveys(state: ArchiveState, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        state.add(survey(number, {f"f{number}": ["t", f"u{number}"]}))
    whole = state.ledger()
    assert whole.topics == {"t": 1, "u1": 1, "u2": 2, "u3": 3}

    ledger_file(tmp_path).unlink()

    assert state.ledger() == whole
    assert ledger_file(tmp_path).exists()


def test_a_ledger_that_is_behind_catches_up_on_disk_too(state: ArchiveState, tmp_path: Path) -> None:
    state.add(survey(1, {"f1": "t"}))
    state.ledger()
    old = ledger_file(tmp_path).read_text()
    # The run dies between the survey and the ledger.
    state.add(survey(2, {"f2": "u"}))
    assert ledger_file(tmp_path).read_text() == old

    assert state.ledger().topics == {"t": 1, "u": 2}
    assert json.loads(ledger_file(tmp_path).read_text())["surveyed_through"] == 2
    assert json.loads(ledger_file(tmp_path).read_text())["archive"] == ARCHIVE


def test_reading_a_ledger_that_is_up_to_date_writes_nothing(state: ArchiveState, tmp_path: Path) -> None:
    assert state.ledger() == Ledger()
    assert list(tmp_path.iterdir()) == []
    state.add(survey(1, {"f1": "t"}))
    state.ledger()
    before = ledger_file(tmp_path).stat().st_mtime_ns
    state.ledger()
    assert ledger_file(tmp_path).stat().st_mtime_ns == before


def test_of_two_runs_that_survey_at_once_one_must_look_again(state: ArchiveState) -> None:
    assert state.add(survey(1, {"a": "t"})) is True
    assert state.add(survey(1, {"b": "t"})) is False
    assert unsurveyed(state, ["a", "b"]) == ["b"]


def test_surveys_are_given_in_order_and_only_those_asked_for(state: ArchiveState) -> None:
    for number in (1, 2, 3):
        state.add(survey(number, {f"f{number}": "t"}))
    assert [item.number for item in state.surveys(0, 3)] == [1, 2, 3]
    assert [item.number for item in state.surveys(2, 2)] == [2]
    assert list(state.surveys(4, 3)) == []


def test_held_files_surveys_are_read_again_and_no_others_before_the_plan(state: ArchiveState) -> None:
    for number in range(1, 7):
        state.add(survey(number, {f"f{number}": "t"}))
    checkpoint = FlowCheckpoint("t", planned={ARCHIVE: PlanPosition(5, 1)}, held={ARCHIVE: (HeldFile(2, "f2"), HeldFile(5, "f5"))})
    assert [item.number for item in state.pending_surveys(checkpoint, state.ledger())] == [2, 5, 6]
    assert [item.number for item in state.pending_surveys(FlowCheckpoint("t"), state.ledger())] == [1, 2, 3, 4, 5, 6]


def test_a_lost_survey_is_an_error_because_its_files_would_never_be_applied(state: ArchiveState, tmp_path: Path) -> None:
    for number in (1, 2, 3):
        state.add(survey(number, {f"f{number}": "t"}))
    state.ledger()
    (lost,) = tmp_path.glob("_cdc/archives/*/surveys/00000002.json")
    lost.unlink()
    with pytest.raises(StateUnreadableError):
        list(ArchiveState(FS, str(tmp_path), ARCHIVE).surveys(1, 3))


def test_archives_of_one_lake_are_kept_apart_and_found_again(tmp_path: Path) -> None:
    one, other = (ArchiveState(FS, str(tmp_path), uri) for uri in ("s3://bucket/one", "s3://bucket/other/"))
    one.add(Survey("s3://bucket/one", 1, (archived("a"),), (shape("a", "t"),)))
    other.add(Survey(other.archive, 1, (archived("b"),), (shape("b", "u"),)))
    assert other.archive == "s3://bucket/other"
    assert (one.ledger().tables(), other.ledger().tables()) == (["t"], ["u"])
    assert sorted(found.archive for found in archives_in(FS, str(tmp_path))) == ["s3://bucket/one", "s3://bucket/other"]
    assert archives_in(FS, str(tmp_path / "nowhere")) == []
    # The same archive with a slash behind it is the same archive.
    assert ArchiveState(FS, str(tmp_path), "s3://bucket/one/").ledger().tables() == ["t"]


def test_a_local_archive_has_one_state_however_its_root_is_spelled(tmp_path: Path) -> None:
    spellings = ("/archive", "/archive/", "file:///archive", "file:/archive", "file:///archive/")
    states = [ArchiveState(FS, str(tmp_path), spelled) for spelled in spellings]
    states[0].add(replace(survey(1, {"a": "t"}), archive=states[0].archive))
    assert [state.ledger().tables() for state in states] == [["t"]] * len(spellings)
    assert len(archives_in(FS, str(tmp_path))) == 1


# -- JSON ----------------------------------------------------------------------------------------------------------

positions = st.builds(Position, numbers, numbers, numbers)
plans = st.builds(PlanPosition, numbers, numbers)
counts = st.builds(EventCounts, *[numbers] * 8)
ledgers = st.builds(
    Ledger,
    numbers,
    st.dictionaries(names, st.builds(FolderSeen, names, numbers, st.integers(0, 2**64 - 1)), max_size=3),
    st.dictionaries(names, numbers, max_size=3),
    st.dictionaries(names, st.lists(names, max_size=3).map(tuple), max_size=3),
)
checkpoints = st.builds(
    FlowCheckpoint,
    names,
    numbers,
    st.dictionaries(names, plans, max_size=2),
    st.dictionaries(names, positions, max_size=2),
    st.dictionaries(st.text(max_size=3), positions, max_size=2),
    counts,
    st.none() | names,
    st.none() | numbers,
)
tuples_of_files, tuples_of_shapes = st.lists(files, max_size=3).map(tuple), st.lists(shapes, max_size=4).map(tuple)
surveys = st.builds(Survey, names, numbers, tuples_of_files, tuples_of_shapes)
microbatches = st.builds(Microbatch, names, numbers, names, tuples_of_files, plans, tuples_of_shapes)
reports = st.builds(
    BatchReport,
    names,
    numbers,
    numbers,
    numbers,
    events=counts,
    rejects=st.dictionaries(names, numbers, max_size=2),
    applied_through=st.dictionaries(names, positions, max_size=2),
    truncated_through=st.dictionaries(st.text(max_size=3), positions, max_size=2),
    columns_added=st.lists(names, max_size=2).map(tuple),
    columns_renamed=st.dictionaries(names, names, max_size=2),
    columns_widened=st.lists(names, max_size=2).map(tuple),
    columns_as_text=st.lists(names, max_size=2).map(tuple),
    table_version=st.none() | numbers,
    merge_plan=names,
    seconds=st.floats(0, 1e6),
)


@given(st.one_of(files, ledgers, checkpoints, surveys, microbatches, reports, positions))
def test_everything_that_is_written_down_survives_its_json(
    written: ArchivedFile | Ledger | FlowCheckpoint | Survey | Microbatch | BatchReport | Position,
) -> None:
    document: Any = json.loads(json.dumps(written.to_json(), ensure_ascii=False))
    assert type(written).from_json(document) == written
