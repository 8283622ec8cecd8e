"""Which files wait for a flow: what sensor, command line and page show."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.cut import WaitingFiles
from airflow_cdc.model.archive.interval import parse_interval
from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.errors import ArchiveNotFoundError
from airflow_cdc.model.look.pending import surveyed_files_pending
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import PlanPosition, next_microbatch
from tests.support.scene import Scene
from tests.support.surveys import FS, shape


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_an_empty_archive_has_nothing_pending_and_asking_leaves_no_trace(scene: Scene) -> None:
    assert scene.waiting() == ([], {}, 0)
    assert not scene.pending()
    assert not scene.lake.exists()


def test_files_are_pending_from_their_arrival_until_a_microbatch_of_theirs_is_committed(scene: Scene) -> None:
    # nobody has looked into them
    scene.arrive("t.jsonl", "u.jsonl")
    assert scene.waiting() == (["t.jsonl", "u.jsonl"], {}, 2)

    # a run surveyed them, and died
    scene.survey()
    assert scene.waiting() == ([], {"t": 1, "u": 1}, 2)

    # one flow is done, the other failed
    scene.commit("t")
    assert scene.waiting() == ([], {"u": 1}, 1)
    scene.commit("u")
    assert scene.waiting() == ([], {}, 0)

    # a file comes late, and sorts below what is surveyed
    scene.arrive("a/t.jsonl", "README.md")
    assert scene.waiting() == (["a/t.jsonl"], {}, 1)


def test_of_an_interval_only_its_files_are_pending_surveyed_or_not(scene: Scene) -> None:
    scene.arrive("2026-02-03/t.jsonl", "2026-02-04/t.jsonl", "2026-02-04/u.jsonl")
    third = {"interval": parse_interval("2026-02-03", "2026-02-04")}
    found = scene.pending(**third)
    assert ([file.path for file in found.unsurveyed], found.outside) == (["2026-02-03/t.jsonl"], 2)
    scene.survey()
    found = scene.pending(**third)
    assert (found.unsurveyed, found.planned, found.count, found.outside) == ((), {"t": 1}, 1, 2)
    assert found.planned_bytes == {"t": 3}
    none = scene.pending(interval=parse_interval("2026-02-05", None))
    assert (bool(none), none.planned, none.outside) == (False, {}, 3)
    assert (scene.pending().count, scene.pending().outside) == (3, 0)


def test_a_planned_microbatch_is_pending_until_its_commit_marker_stands(scene: Scene) -> None:
    scene.arrive("t.jsonl")
    scene.survey()
    flow = FlowState(FS, str(scene.lake), "t")
    plan = next_microbatch(
        flow="t", number=1, archive=scene.state.archive, surveys=scene.state.surveys(1, 1), planned=PlanPosition(), max_bytes=1
    )
    assert plan is not None
    flow.write_intent(plan)
    assert scene.waiting() == ([], {"t": 1}, 1)
    flow.write_commit(BatchReport("t", 1, 1, 1), "table")
    assert scene.waiting() == ([], {}, 0)


def test_files_of_a_survey_that_is_planned_in_part_are_counted_by_what_is_left(scene: Scene) -> None:
    def one_topic(file: ArchivedFile) -> list[TopicShape]:
        return [shape(file.path, "t")]

    scene.arrive("a", "b", "c")
    scene.survey(one_topic)
    scene.arrive("d", "e")
    scene.survey(one_topic)
    for left in (4, 3, 2, 1, 0):
        scene.commit("t", max_bytes=1)
        assert scene.waiting()[1:] == ({"t": left} if left else {}, left)


def test_a_file_of_two_tables_waits_for_both(scene: Scene) -> None:
    scene.arrive("mixed")
    scene.survey(lambda file: [shape(file.path, "t"), shape(file.path, "u"), shape(file.path, "t", "d")])
    assert scene.waiting() == ([], {"t": 1, "u": 1}, 2)
    scene.commit("u")
    assert scene.waiting() == ([], {"t": 1}, 1)


def test_globs_narrow_the_question(scene: Scene) -> None:
    sunk, other = (f"{topic}/partition=0/{topic}+0+0000000000.json" for topic in ("t", "u"))
    scene.arrive(sunk, other)
    assert scene.waiting("t") == ([sunk], {}, 1)
    scene.survey()
    assert scene.waiting("t") == ([], {"t": 1}, 1)
    assert scene.waiting("[tu]") == ([], {"t": 1, "u": 1}, 2)
    assert scene.waiting("x*") == ([], {}, 0)
    # A name of no sink's shows nothing: the file may hold any topic until somebody has looked.
    scene.arrive("any name")
    assert scene.waiting("t") == (["any name"], {"t": 1}, 2)


def test_control_topics_wait_for_nobody(scene: Scene) -> None:
    def shapes(file: ArchivedFile) -> list[TopicShape]:
        return [shape(file.path, file.topic, "transaction" if file.topic == "s.transaction" else "c")]

    first, second = (f"s.transaction/partition=0/s.transaction+0+{offset:010d}.json" for offset in (0, 9))
    scene.arrive(first, "t.jsonl")
    scene.survey(shapes)
    assert scene.waiting() == ([], {"t": 1}, 1)
    # Once a topic is known for what it is, its new files wake nobody.
    scene.arrive(second)
    assert scene.waiting() == ([], {"t": 1}, 1)


def test_a_topic_first_seen_late_is_counted_from_there(scene: Scene) -> None:
    scene.arrive("t.jsonl")
    scene.survey()
    scene.commit("t")
    scene.arrive("u.jsonl")
    scene.survey()
    assert scene.state.ledger().topics == {"t": 1, "u": 2}
    assert surveyed_files_pending(scene.state, scene.state.ledger(), FlowState(FS, str(scene.lake), "u")) == 1
    assert surveyed_files_pending(scene.state, scene.state.ledger(), FlowState(FS, str(scene.lake), "t")) == 0


def test_an_archive_that_is_not_there_is_an_error_and_not_an_empty_one(scene: Scene) -> None:
    scene.archive.rmdir()
    with pytest.raises(ArchiveNotFoundError):
        scene.pending()


def test_what_waits_for_a_transaction_calls_for_no_run_until_the_archive_brings_more(scene: Scene) -> None:
    def shapes(file: ArchivedFile) -> list[TopicShape]:
        return [shape(file.path, file.topic, "transaction" if file.topic == "s.transaction" else "c")]

    rows, ends, more_ends = (
        f"{topic}/partition=0/{topic}+0+{offset:010d}.json" for topic, offset in (("s.t", 0), ("s.transaction", 0), ("s.transaction", 9))
    )
    scene.arrive(rows, ends)
    scene.survey(shapes)
    assert scene.waiting() == ([], {"s.t": 1}, 1)
    scene.state.write_waiting(WaitingFiles(1, {"s.t": (rows,)}))
    assert scene.waiting() == ([], {}, 0)
    assert scene.pending().waiting == 1
    assert surveyed_files_pending(scene.state, scene.state.ledger(), FlowState(FS, str(scene.lake), "s.t")) == 1

    # The END alone may be what was missing: the topic, which else wakes nobody, does now, but for those who do not wait.
    scene.arrive(more_ends)
    assert scene.waiting() == ([more_ends], {}, 1)
    assert scene.waiting("s.t") == ([more_ends], {}, 1)
    assert scene.waiting("u.*") == ([], {}, 0)
    # A run surveyed it and died: what waited is work again.
    scene.survey(shapes)
    assert scene.waiting() == ([], {"s.t": 1}, 1)


def test_other_files_of_a_flow_of_which_one_waits_are_work(scene: Scene) -> None:
    scene.arrive("t/a", "t/b")
    scene.survey(lambda file: [shape(file.path, "t")])
    scene.state.write_waiting(WaitingFiles(1, {"t": ("t/a", "gone")}))
    assert scene.waiting() == ([], {"t": 1}, 1)
