"""The numbers of a report add up, and it survives its JSON."""

from __future__ import annotations

import json
from dataclasses import replace

from airflow_cdc.model.archive.completeness import OffsetGap, OffsetOverlap, OffsetReport
from airflow_cdc.model.archive.cut import AwaitedTransaction, Cut
from airflow_cdc.model.archive.transactions import TransactionReport
from airflow_cdc.model.flow.column_origin import Origin, TypeReport
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts, total_events, total_rows

COUNTS = EventCounts(read=36, merged=1, superseded=2, redelivered=4, stale=8, tombstones=16, control=2, rejected=3)
GAP = OffsetGap("t", 0, 7, 8, "a", "b")
FULL = BatchReport(
    flow="server1.dbo.é",
    microbatch=7,
    files=2,
    bytes=2**60,
    events=COUNTS,
    rows=RowCounts(1, 2, 3),
    rejects={"missing_key": 2, "malformed_json": 1},
    applied_through={"0": Position(2**80 - 1, 2**80 - 1, 2), "-": Position(5)},
    committed_through=1_800_000_000_123,
    truncated_through={"public.t": Position(4, 5, 6)},
    reach=Reach({"0": Position(2**80)}, {"0": Position(2**80, 1, 2)}, {"0": 5}, {"0": 9}, frozenset({"0"})),
    snapshot=Snapshot(Position(3), is_first=False, is_complete=True, cut=Position(2), last_offsets={"0": 4}),
    unpaired_moves=-1,
    transactions_unjoined=2,
    asks_target=True,
    unavailable_unresolved=2,
    moves_kept=3,
    rows_not_found=7,
    rows_missing=8,
    updates_without_old_key=6,
    order_conflicts=9,
    columns_added=("a", "b c"),
    columns_renamed={"d": "e f"},
    columns_widened=("d",),
    columns_as_text=("b c",),
    columns_filled=("e f",),
    misfits={"e f": 3},
    types={
        "a": TypeReport("DECIMAL(12,2)", Origin.FLOW, "base64"),
        "b c": TypeReport("BIGINT", Origin.VALUES, doubt="4 values were seen, each a number"),
    },
    table_version=12,
    merge_plan="merge",
    started_at=1_700_000_000_000,
    seconds=1.25,
    stage_seconds={"stage": 1.0, "merge": 0.25},
    offsets=OffsetReport({"0": 5}, (GAP,), 2, (OffsetOverlap(0, 5, 5, "c"),), repeated=1, without_offsets=3),
)


def through_json(document: object) -> object:
    return json.loads(json.dumps(document))


def test_every_part_of_the_counts_is_accounted_for_and_read_is_not_a_part() -> None:
    assert COUNTS.accounted() == 36 == COUNTS.read
    for part in ("merged", "superseded", "redelivered", "stale", "tombstones", "control", "rejected"):
        assert EventCounts(**{part: 5}).accounted() == 5, part
    assert EventCounts(read=5).accounted() == 0


def test_sums_are_taken_part_by_part() -> None:
    other = EventCounts(1, 10, 100, 1000, 10_000, 100_000, 1_000_000, 10_000_000)
    assert vars(COUNTS + other) == {
        "read": 37,
        "merged": 11,
        "superseded": 102,
        "redelivered": 1004,
        "stale": 10_008,
        "tombstones": 100_016,
        "control": 1_000_002,
        "rejected": 10_000_003,
    }
    assert RowCounts(1, 2, 3) + RowCounts(10, 20, 30) == RowCounts(11, 22, 33)
    second = BatchReport("f", 2, 1, 1, events=other, rows=RowCounts(10, 20, 30))
    assert total_events([FULL, second]) == COUNTS + other
    assert total_rows([FULL, second]) == RowCounts(11, 22, 33)
    assert (total_events([]), total_rows([])) == (EventCounts(), RowCounts())


FULL_AS_JSON = {
    "flow": "server1.dbo.é",
    "microbatch": 7,
    "files": 2,
    "bytes": 2**60,
    "events": {
        "read": 36,
        "merged": 1,
        "superseded": 2,
        "redelivered": 4,
        "stale": 8,
        "tombstones": 16,
        "control": 2,
        "rejected": 3,
    },
    "rows": {"inserted": 1, "updated": 2, "deleted": 3},
    "rejects": {"missing_key": 2, "malformed_json": 1},
    "applied_through": {"0": ["1208925819614629174706175", "1208925819614629174706175", "2"], "-": ["5", "-1", "-1"]},
    "committed_through": 1_800_000_000_123,
    "truncated_through": {"public.t": ["4", "5", "6"]},
    "reach": {
        "streamed_from": {"0": ["1208925819614629174706176", "-1", "-1"]},
        "streamed_through": {"0": ["1208925819614629174706176", "1", "2"]},
        "offset_from": {"0": 5},
        "offset_through": {"0": 9},
        "partitions": ["0"],
        "is_spread": False,
        "outer_transactions": {},
    },
    "snapshot": {
        "position": ["3", "-1", "-1"],
        "is_first": False,
        "is_complete": True,
        "is_initial": False,
        "cut": ["2", "-1", "-1"],
        "last_offsets": {"0": 4},
        "begins": {},
        "passed": [],
        "doubt": None,
        "unconfirmed": None,
        "tables": [],
        "reads": 0,
        "decision": None,
        "marks_tables": False,
        "followed": {},
    },
    "pending_snapshots": [],
    "replaced_by": None,
    "rows_unconfirmed": None,
    "epochs": {},
    "unpaired_moves": -1,
    "transactions_unjoined": 2,
    "asks_target": True,
    "unavailable_unresolved": 2,
    "moves_kept": 3,
    "rows_not_found": 7,
    "rows_missing": 8,
    "updates_without_old_key": 6,
    "order_conflicts": 9,
    "columns_added": ["a", "b c"],
    "columns_renamed": {"d": "e f"},
    "columns_widened": ["d"],
    "columns_as_text": ["b c"],
    "columns_filled": ["e f"],
    "misfits": {"e f": 3},
    "types": {
        "a": {"type": "DECIMAL(12,2)", "from": "flow", "spelled": "base64"},
        "b c": {"type": "BIGINT", "from": "values", "doubt": "4 values were seen, each a number"},
    },
    "table_version": 12,
    "merge_plan": "merge",
    "engine": "spark",
    "engine_reason": "",
    "started_at": 1_700_000_000_000,
    "seconds": 1.25,
    "stage_seconds": {"stage": 1.0, "merge": 0.25},
    "offsets": {
        "begins": {"0": 5},
        "gaps": [{"topic": "t", "partition": 0, "first": 7, "last": 8, "after": "a", "before": "b"}],
        "missing": 2,
        "overlaps": [{"partition": 0, "first": 5, "last": 5, "file": "c"}],
        "repeated": 1,
        "untold": 3,
        "newly_missing": 0,
    },
    "warn_above": {},
}


def test_a_report_is_plain_json_without_numbers_that_readers_would_round() -> None:
    document = through_json(FULL.to_json())
    assert document == FULL_AS_JSON


def test_a_batch_report_survives_its_json() -> None:
    for report in (FULL, BatchReport("f", 1, 0, 0)):
        assert BatchReport.from_json(through_json(report.to_json())) == report  # type: ignore[arg-type]


def test_a_flows_outcome_sums_its_batches() -> None:
    outcome = FlowOutcome("f", FlowStatus.APPLIED, "file:///lake/f", (FULL, FULL))
    assert outcome.events == COUNTS + COUNTS
    assert outcome.rows == RowCounts(2, 4, 6)
    document = outcome.to_json()
    assert (document["events"]["read"], document["rows"]["deleted"], document["status"]) == (72, 6, "applied")


def test_a_run_is_ok_when_nothing_failed() -> None:
    applied, failed = FlowOutcome("f", FlowStatus.APPLIED), FlowOutcome("g", FlowStatus.FAILED, error={"type": "KeysUnknownError"})
    current = FlowOutcome("h", FlowStatus.UP_TO_DATE)
    waiting = FlowOutcome("i", FlowStatus.WAITING, waiting_for=(GAP,), waiting_files=1)
    assert ApplyReport("a", "l", (applied, current, waiting)).ok
    assert ApplyReport("a", "l").ok
    assert not ApplyReport("a", "l", (applied, failed)).ok
    assert not ApplyReport("a", "l", error={"type": "X"}).ok


def test_the_report_names_what_is_missing_and_what_waits_for_it() -> None:
    line = "f: topic t, partition 0: offsets 7–8 are missing, between a and b"
    joined = replace(FULL, transactions_unjoined=0)
    assert list(FlowOutcome("f", FlowStatus.APPLIED, batches=(joined,)).gap_lines()) == [line]
    unjoined = FlowOutcome("f", FlowStatus.APPLIED, batches=(FULL,))
    assert list(unjoined.gap_lines())[1:] == ["f: 2 keys of cut transactions were not put together, for files applied earlier are gone"]
    # A gap that is filled by the end of the run is none.
    whole = replace(joined, offsets=OffsetReport())
    assert list(FlowOutcome("f", FlowStatus.APPLIED, batches=(joined, whole)).gap_lines()) == []
    waiting = FlowOutcome("f", FlowStatus.WAITING, waiting_for=(GAP,), waiting_files=2)
    assert list(waiting.gap_lines()) == [line, "f: 2 files wait for what is missing"]
    behind_cut = FlowOutcome("f", FlowStatus.WAITING, cut_files=2, cut_records=9)
    assert list(behind_cut.gap_lines()) == ["f: 9 records in 2 files wait behind the cut"]
    many = replace(joined, offsets=OffsetReport(gaps=(GAP,) * 20, missing=700))
    assert list(FlowOutcome("f", FlowStatus.APPLIED, batches=(many,)).gap_lines()) == [line] * 5 + ["f: 700 offsets are missing in all"]


def test_a_runs_report_survives_its_json() -> None:
    error = {"type": "KeysUnknownError", "message": "m", "next_step": "n", "transient": False}
    report = ApplyReport(
        "file:///archive",
        "file:///lake",
        (
            FlowOutcome("f", FlowStatus.APPLIED, "t", (FULL,)),
            FlowOutcome("g", FlowStatus.FAILED, None, (), error),
            FlowOutcome("h", FlowStatus.WAITING, waiting_for=(GAP,), waiting_files=2, cut_files=3, cut_records=4),
        ),
        ("server1.transaction",),
        ("README.md",),
        error,
        (TransactionReport("server1", without_end=2),),
        (Cut("server1", is_proven=True, before=2**80, waits_for=(AwaitedTransaction("7", False),), awaited=1),),
    )
    document = through_json(report.to_json())
    assert isinstance(document, dict)
    assert document["ok"] is False
    assert ApplyReport.from_json(document) == report
    assert ApplyReport.from_json(through_json(ApplyReport("a", "l").to_json())) == ApplyReport("a", "l")  # type: ignore[arg-type]
