"""What a flow's next microbatch would do, from surveys, intents and the table's log; nothing is written and no session exists."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile
from airflow_cdc.model.archive.survey import RecordLayout, Survey, TopicShape
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.lease import Leases
from airflow_cdc.model.state.microbatch import next_microbatch
from airflow_cdc.pipeline.look import explain_flow as explaining
from airflow_cdc.pipeline.look.explain_flow import FlowExplained, explain_flow
from tests.support.events import TOPIC as FLOW
from tests.support.small_lakes import field, our_properties, write_table
from tests.support.surveys import FS


class Lake:
    """An archive that was surveyed file by file, and a flow that has applied some of them."""

    def __init__(self, root: Path) -> None:
        self.archive, self.lake = root / "archive", root / "lake"
        self.archive.mkdir()
        self.surveys = ArchiveState(FS, str(self.lake), str(self.archive))
        self.state = FlowState(FS, str(self.lake), FLOW)

    def surveyed(self, *offsets: tuple[int, int], kind: str = "u") -> None:
        files, shapes = [], []
        for first, last in offsets:
            path = f"{first:04d}.jsonl"
            (self.archive / path).write_text("x" * 10)
            files.append(ArchivedFile(path, 10, FLOW))
            value = RecordLayout.RECORD, kind, "sqlserver", 0, '["id"]', '["id","name"]', True
            shapes.append(TopicShape(path, FLOW, *value, last - first + 1, first, last))
        number = self.surveys.ledger().surveyed_through + 1
        assert self.surveys.add(Survey(str(self.archive), number, tuple(files), tuple(shapes)))

    def plan(self, *, is_done: bool) -> None:
        checkpoint, ledger = self.state.checkpoint(), self.surveys.ledger()
        planned, held = checkpoint.plan(self.surveys.archive)
        intent = next_microbatch(
            flow=FLOW,
            number=checkpoint.number + 1,
            archive=self.surveys.archive,
            surveys=self.surveys.pending_surveys(checkpoint, ledger),
            planned=planned,
            max_bytes=10,
            held=held,
        )
        assert intent
        assert self.state.write_intent(intent)
        if is_done:
            report = BatchReport(FLOW, intent.number, 1, 10, events=EventCounts(read=1, merged=1), table_version=0, merge_plan="merge")
            self.state.write_commit(report, f"{self.lake}/{FLOW}", intent.digest)

    def has_table(self) -> None:
        rows = pa.Table.from_pylist([{"id": 1, "name": "ann"}])
        write_table(self.lake / FLOW, [field("id", "long"), field("name", "string")], [rows], properties=our_properties(["id"]))

    def explained(self, **settings: str) -> FlowExplained:
        flow = CdcFlow.from_mapping({"topic": FLOW, **settings})
        return explain_flow(str(self.lake), FLOW, {FLOW: flow})


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    made = Lake(tmp_path)
    made.surveyed((0, 1))
    made.plan(is_done=True)
    made.has_table()
    return made


def test_a_flow_without_pending_files_has_nothing_ready(lake: Lake) -> None:
    found = lake.explained()
    (plan,) = found.plans
    assert (found.applied, found.mode, found.lease, found.last_engine, found.last_merge_plan) == (1, "scd1", None, "spark", "merge")
    assert (plan.number, plan.files, plan.engine, plan.pending_files, plan.stops) == (2, (), None, 0, None)


def test_pending_files_make_a_microbatch_of_the_native_engine_where_nothing_is_against_it(lake: Lake) -> None:
    lake.surveyed((2, 3), (4, 6))
    (lake.archive / "new.jsonl").write_text("{}")
    (plan,) = lake.explained().plans
    assert (plan.files, plan.bytes, plan.records) == (("0002.jsonl", "0004.jsonl"), 20, {"u": 5})
    assert (plan.engine, plan.engine_reason, plan.is_planned) == ("native", "nothing in the plan is against it", False)
    assert (plan.pending_files, plan.pending_bytes, plan.unsurveyed_files) == (2, 20, 1)
    assert not (lake.lake / "_cdc/flows" / FLOW / "intents/00000002.json").exists()
    assert lake.explained(max_microbatch_bytes=10).plans[0].files == ("0002.jsonl",)  # type: ignore[arg-type]


def test_what_the_driver_has_no_room_for_is_spark_s(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.surveyed((2, 3))
    monkeypatch.setattr(explaining, "why_too_large", lambda microbatch: f"{microbatch.text_size} bytes are too many")
    (plan,) = lake.explained().plans
    assert (plan.engine, plan.engine_reason) == ("spark", "10 bytes are too many")


def test_what_only_spark_may_merge_is_read_natively(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.surveyed((2, 3))
    monkeypatch.setattr(explaining, "why_not_merged", lambda _run: "the table is on another store than the lake")
    (plan,) = lake.explained().plans
    assert (plan.engine, plan.engine_reason) == ("mixed", "the table is on another store than the lake")


def test_spark_takes_what_the_plan_shows_to_be_its_own(lake: Lake) -> None:
    lake.surveyed((2, 3), kind="t")
    (plan,) = lake.explained().plans
    assert (plan.engine, plan.engine_reason) == ("spark", "truncates or broken lines")
    assert lake.explained(engine="spark").plans[0].engine_reason == "the flow's setting is spark"
    (plan,) = lake.explained(stored_as_scd_type=2).plans  # type: ignore[arg-type]
    assert plan.engine_reason == "the table keeps row versions, or rows without a key"


def test_a_table_that_is_to_be_created_takes_its_mode_from_the_settings(tmp_path: Path) -> None:
    made = Lake(tmp_path)
    made.surveyed((0, 1))
    made.plan(is_done=False)
    found = made.explained()
    (plan,) = found.plans
    assert (plan.is_planned, plan.number, plan.files) == (True, 1, ("0000.jsonl",))
    assert plan.engine == "native"
    assert (found.mode, found.mode_reason) == ("scd1", "the table is to be created by the flow's settings")


def test_a_planned_microbatch_is_taken_up_as_it_is(lake: Lake) -> None:
    lake.surveyed((2, 3), (4, 6))
    lake.plan(is_done=False)
    (plan,) = lake.explained().plans
    assert (plan.is_planned, plan.files, plan.pending_files) == (True, ("0002.jsonl",), 2)


def test_files_behind_a_gap_wait_or_stop_the_flow_as_it_is_set(lake: Lake) -> None:
    lake.surveyed((2, 3), (6, 7))
    (plan,) = lake.explained().plans
    assert ([(gap.first, gap.last) for gap in plan.gaps], plan.waits_for_offsets) == ([(4, 5)], ())
    assert len(plan.files) == 2
    (plan,) = lake.explained(on_gap="wait").plans
    assert (plan.files, plan.waits_for_offsets) == (("0002.jsonl",), ("0006.jsonl",))
    (plan,) = lake.explained(on_gap="stop").plans
    assert plan.stops is not None
    assert plan.stops.startswith("on_gap is stop, and topic")


def test_unreadable_files_stop_the_flow_and_a_lease_names_its_holder(lake: Lake) -> None:
    lake.surveys.write_set_aside([SetAsideFile("bad.gz", FLOW, UNREADABLE, "cut off", "2026-01-01")])
    with Leases(FS, str(lake.lake)).hold(FLOW):
        found = lake.explained()
    assert found.lease is not None
    assert found.lease.startswith("process ")
    assert found.plans[0].unreadable_files == ("bad.gz",)
    assert found.plans[0].stops == "unreadable files of the topic are set aside (airflow-cdc files)"
    assert lake.explained().lease is None


def test_an_archive_that_cannot_be_listed_is_no_error(lake: Lake) -> None:
    (lake.archive / "0000.jsonl").unlink()
    lake.archive.rmdir()
    assert lake.explained().plans[0].unsurveyed_files is None


def test_unknown_flows_and_archives_are_refused(lake: Lake, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="knows no flow x"):
        explain_flow(str(lake.lake), "x", {})
    with pytest.raises(ConfigurationError, match="has surveyed nothing"):
        explain_flow(str(lake.lake), FLOW, {}, str(tmp_path))
