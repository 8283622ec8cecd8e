"""A later snapshot by Debezium 1.x has ended once changes follow its reads: of all tables' reads it marks the very last alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnSnapshot, WriteDisposition
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.position.snapshot import Snapshot, SnapshotChoice
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.evidence.find_snapshot import Snapshots, SnapshotsAsked, find_snapshots, is_awaited
from airflow_cdc.pipeline.evidence.snapshot_reads import LaneBeside, LaneReads
from airflow_cdc.pipeline.microbatch.count_events import Surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from tests.support.surveys import ARCHIVE

TOPIC = "t"
AT = Position(100)
Lanes = Mapping[str, tuple[int, int]]
Seen = Mapping[Position, Mapping[str, int]]


@dataclass(frozen=True)
class Found:
    """Reads of one microbatch, and the changes behind them."""

    reads: Mapping[Position, Mapping[str, LaneReads]]
    behind: Seen

    def by_lane(self) -> dict[Position, dict[str, LaneReads]]:
        return {position: dict(lanes) for position, lanes in self.reads.items()}

    def beside(self, positions: Sequence[Position], found: object) -> dict[Position, dict[str, LaneBeside]]:
        lanes = {position: self.behind.get(position, {}) for position in positions}
        return {position: {lane: LaneBeside(behind=offset) for lane, offset in each.items()} for position, each in lanes.items()}


@dataclass
class NoDoubts:
    others: list[bool] = field(default_factory=list)

    def of(self, position: Position, *, stays: str, has_other_lanes: bool) -> str | None:
        self.others.append(has_other_lanes)
        return None


@dataclass
class Flow:
    """A flow whose table had rows of lanes 0 and 1 before: files of it are applied one by one."""

    policy: OnSnapshot = OnSnapshot.KEEP
    checkpoint: FlowCheckpoint = field(
        default_factory=lambda: FlowCheckpoint(TOPIC, reach=Reach(partitions=frozenset({"0", "1"}), streamed_through={"0": Position(50)}))
    )
    offsets: ArchivedOffsets = field(
        default_factory=lambda: ArchivedOffsets().with_files([FileOffsets("old", lane, 0, 9, ((0, 9),)) for lane in (0, 1)])
    )

    doubts: NoDoubts = field(default_factory=NoDoubts)

    @classmethod
    def of_one_lane(cls, policy: OnSnapshot = OnSnapshot.AUTO, *, through: int = 9) -> Flow:
        """Return one whose topic has a single partition, archived through an offset."""
        reach = Reach(partitions=frozenset({"0"}), streamed_through={"0": Position(50)})
        offsets = ArchivedOffsets().with_files([FileOffsets("old", 0, 0, through, ((0, through),))])
        return cls(policy, FlowCheckpoint(TOPIC, reach=reach), offsets)

    def apply(
        self,
        archived: Lanes,
        *,
        reads: Mapping[Position, Lanes] | None = None,
        behind: Seen | None = None,
        first: bool = False,
        last: bool = False,
    ) -> Snapshots:
        """Apply one file.

        :param archived: by lane: first and last offset of the file.
        :param reads: by snapshot and lane: first and last offset of its reads.
        :param behind: by snapshot and lane: offset of the first change of a later commit.
        """
        here = {
            position: {
                lane: LaneReads(*span, 2, ends_marked=last, has_last=last, is_initial=True, has_first=first) for lane, span in lanes.items()
            }
            for position, lanes in (reads or {}).items()
        }
        of_file = [FileOffsets(f"f{spans}", int(lane), *spans, (spans,)) for lane, spans in archived.items()]
        self.offsets = self.offsets.with_files(of_file)
        intent = Microbatch(TOPIC, self.checkpoint.number + 1, ARCHIVE, (), PlanPosition(1), (), tuple(of_file))
        flow = CdcFlow(TOPIC, on_snapshot=self.policy)
        run = MicrobatchRun(
            spark=cast("Any", None),
            lake="lake",
            flow=flow,
            application="",
            checkpoint=self.checkpoint,
            microbatch=intent,
            past=cast("Any", None),
        )
        surveyed = Surveyed(rows=9, reads=4 if here else 0)
        tables = PhysicalTables(flow, ("id",), frozenset())
        asked = SnapshotsAsked(run, surveyed, Found(here, behind or {}), self.doubts, tables, offsets=self.offsets, knows_initial=True)
        found = find_snapshots(asked)
        newest = found.newest and replace(found.newest, unconfirmed=3 if found.ended else found.newest.unconfirmed)
        self.checkpoint = replace(
            self.checkpoint,
            number=intent.number,
            snapshot=newest,
            pending_snapshots=found.pending,
            replaced_by=found.replacing or found.shield,
        )
        return found


READS: Lanes = {"0": (10, 14), "1": (10, 11)}


def is_complete(found: Snapshots) -> bool:
    return bool(found.newest and found.newest.is_complete)


def test_changes_that_follow_the_reads_in_each_partition_show_that_a_snapshot_ended() -> None:
    flow = Flow()
    assert not is_complete(flow.apply(READS, reads={AT: READS}))
    one = flow.apply({"0": (15, 15)}, behind={AT: {"0": 15}})
    assert (is_complete(one), one.ended) == (False, None)

    both = flow.apply({"1": (12, 12)}, behind={AT: {"1": 12}})

    assert is_complete(both)
    # The rows that it did not find are counted now, once.
    assert both.ended is not None
    assert flow.apply({"0": (16, 16)}, behind={AT: {"0": 16}}).ended is None


def test_such_a_snapshot_removes_rows_by_itself_and_by_a_person_s_decision() -> None:
    behind = {AT: {"0": 15, "1": 12}}
    archived = {"0": (10, 15), "1": (10, 12)}
    by_itself = Flow(OnSnapshot.AUTO).apply(archived, reads={AT: READS}, behind=behind)
    assert by_itself.replacing is not None

    kept = Flow()
    assert kept.apply(archived, reads={AT: READS}, behind=behind).replacing is None
    (undecided,) = kept.checkpoint.undecided_snapshots
    assert undecided.decided(SnapshotChoice.REPLACE, frozenset()).is_proven(frozenset({"0", "1"}))


def test_an_offset_that_is_missing_before_the_changes_leaves_it_open_until_it_comes() -> None:
    flow = Flow()
    flow.apply(READS, reads={AT: READS})
    assert not is_complete(flow.apply({"0": (15, 15), "1": (13, 13)}, behind={AT: {"0": 15, "1": 13}}))
    assert is_complete(flow.apply({"1": (12, 12)}))


def test_changes_below_its_position_show_nothing() -> None:
    flow = Flow()
    # A restarted connector sends again what it streamed before: no change of a later commit.
    flow.apply({"0": (10, 20), "1": (10, 20)}, reads={AT: READS})
    assert not is_complete(flow.apply({"0": (21, 22), "1": (21, 22)}))


@pytest.mark.parametrize("in_one_file", [True, False])
def test_a_snapshot_that_was_interrupted_is_not_ended_by_what_follows_the_one_taken_anew(in_one_file: bool) -> None:
    again, flow = Position(200), Flow()
    whole: Lanes = {"0": (15, 20), "1": (12, 16)}
    behind = {AT: {"0": 21, "1": 17}, again: {"0": 21, "1": 17}}
    if in_one_file:
        found = flow.apply({"0": (10, 21), "1": (10, 17)}, reads={AT: READS, again: whole}, behind=behind)
    else:
        flow.apply(READS, reads={AT: READS})
        flow.apply(whole, reads={again: whole})
        found = flow.apply({"0": (21, 21), "1": (17, 17)}, behind=behind)
    assert found.newest is not None
    assert (found.newest.position, found.newest.is_complete) == (again, True)
    assert [each.position for each in found.pending if each.is_complete] == []


def test_a_connector_that_marks_where_tables_begin_marks_where_they_end_too() -> None:
    """A blocking snapshot that was interrupted is followed by changes between its position and that of the next one."""
    flow = Flow()
    flow.apply(READS, reads={AT: READS}, first=True)
    assert not is_complete(flow.apply({"0": (15, 15), "1": (12, 12)}, behind={AT: {"0": 15, "1": 12}}))
    assert is_complete(flow.apply({"0": (16, 16)}, reads={AT: {"0": (16, 16)}}, last=True))


def test_only_a_later_snapshot_whose_end_may_still_be_shown_is_awaited() -> None:
    keeps = CdcFlow(TOPIC, on_snapshot=OnSnapshot.KEEP)
    later = Snapshot(AT, is_first=False, last_offsets={"0": 3}, begins={"0": 1})
    assert is_awaited(later, keeps)
    assert not is_awaited(later, replace(keeps, write_disposition=WriteDisposition.APPEND))
    others: list[dict[str, Any]] = [{"is_first": True}, {"is_complete": True}, {"marks_tables": True}, {"last_offsets": {}}]
    for other in others:
        assert not is_awaited(replace(later, **other), keeps)


def test_the_mark_of_the_last_read_ends_the_only_partition() -> None:
    """Nothing need follow: no read can be elsewhere."""
    alone = Flow.of_one_lane()
    found = alone.apply({"0": (10, 14)}, reads={AT: {"0": (10, 14)}}, last=True)
    assert found.replacing is not None
    assert found.replacing.passed == {"0"}
    assert alone.doubts.others == [False]
    # With another partition the reads there may be missing, until changes follow in both.
    two = Flow(OnSnapshot.AUTO)
    assert two.apply(READS, reads={AT: READS}, last=True).replacing is None
    assert two.checkpoint.snapshot is not None
    assert two.checkpoint.snapshot.passed == frozenset()
    assert two.doubts.others == [True]


def test_it_ends_none_where_an_offset_is_missing_before_the_first_read() -> None:
    flow = Flow.of_one_lane(through=8)
    assert flow.apply({"0": (10, 14)}, reads={AT: {"0": (10, 14)}}, last=True).replacing is None


def test_it_ends_none_where_offsets_are_missing_among_the_reads() -> None:
    flow = Flow.of_one_lane()
    flow.apply({"0": (10, 12)}, reads={AT: {"0": (10, 12)}})
    assert flow.apply({"0": (14, 16)}, reads={AT: {"0": (14, 16)}}, last=True).replacing is None
    whole = Flow.of_one_lane()
    whole.apply({"0": (10, 12)}, reads={AT: {"0": (10, 12)}})
    assert whole.apply({"0": (13, 16)}, reads={AT: {"0": (13, 16)}}, last=True).replacing is not None
