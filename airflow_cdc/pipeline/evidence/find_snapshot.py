"""Find full snapshots among a microbatch's reads, and whether one of them proves which rows are gone from the source.

A filtered snapshot has the same markers as a whole one, so a marker proves little. A snapshot removes rows only if the connector took it
as its initial one (or the flow's policy allows any), it has ended, none of its reads was lost, and the archive continues after it
in every lane without a gap. Otherwise the rows stay and are counted (docs/reference/target-tables.md#a-second-snapshot).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from airflow_cdc.model.archive.completeness import ArchivedOffsets, Run
from airflow_cdc.model.columns import PARTITION
from airflow_cdc.model.errors import ConfigurationError, SnapshotRefusedError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnSnapshot
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.position.lives import life_of_lane, partition_of_lane
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION, Reach
from airflow_cdc.model.position.snapshot import Snapshot, SnapshotChoice, SnapshotDecision
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.decode.stands_before import beside, is_earlier_life
from airflow_cdc.pipeline.evidence.snapshot_reads import LaneBeside, LaneReads, SnapshotDoubts, SnapshotReads
from airflow_cdc.pipeline.microbatch.count_events import Surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun


@dataclass(frozen=True)
class Snapshots:
    """A flow's full snapshots after a microbatch."""

    newest: Snapshot | None = None
    pending: tuple[Snapshot, ...] = ()
    """Older ones that may still be proven."""
    replacing: Snapshot | None = None
    """The snapshot that removes, in this microbatch, the rows that it did not find."""
    shield: Snapshot | None = None
    """The last snapshot that did so in an earlier microbatch."""
    ended: Snapshot | None = None
    """The snapshot whose last read is in this microbatch, that is not the flow's first, and that removes nothing now."""
    fell: bool = False
    """Whether reads are below positions that their lane streamed earlier; the other fields are then left empty."""


@dataclass(frozen=True)
class SnapshotsAsked:
    """A microbatch's inputs to the search for snapshots."""

    run: MicrobatchRun
    surveyed: Surveyed
    reads: SnapshotReads
    doubts: SnapshotDoubts
    tables: PhysicalTables
    read_tables: frozenset[str] = frozenset()
    """Names of the tables in the microbatch's reads."""
    offsets: ArchivedOffsets = field(default_factory=ArchivedOffsets)
    """The offsets of all applied files and the microbatch's."""
    knows_initial: bool = False
    """Whether the connector's reads distinguish an initial snapshot from others."""
    names_gtids: Callable[[], bool] | None = None
    """Returns whether the source's earlier events name GTIDs; None where the connector's reads are recognised otherwise."""
    may_fall: bool = True
    """Whether reads below positions streamed earlier may prove that the log went back."""

    @property
    def lanes(self) -> frozenset[str]:
        """All lanes that the flow has seen."""
        return self.run.lanes


def find_snapshots(asked: SnapshotsAsked) -> Snapshots:
    """Return the full snapshots known after the microbatch.

    Reads the events only where the survey saw reads, and once more where a snapshot is not the flow's first or occurs beside changes.

    :raises SnapshotRefusedError: when the flow's policy is to stop.
    """
    checkpoint = asked.run.checkpoint
    newest, known = checkpoint.snapshot, _with_past(asked, checkpoint.known_snapshots)
    waiting = [each for each in known.values() if is_awaited(each, asked.run.flow)]
    found = asked.reads.by_lane() if asked.surveyed.reads else {}
    if not found and not waiting:
        return Snapshots(newest, checkpoint.pending_snapshots, shield=checkpoint.replaced_by)
    positions = sorted({*found, *(each.position for each in waiting)})
    needs_look = asked.surveyed.is_mixed or (bool(waiting) and asked.surveyed.rows > asked.surveyed.reads)
    beside = asked.reads.beside(positions, found) if needs_look else {}
    if asked.may_fall and any(_fell(asked.run, position, found[position], beside) for position in found):
        return Snapshots(fell=True)
    snapshots: list[Snapshot] = []
    for position in positions:
        before = bool(checkpoint.reach.partitions or snapshots or any(other < position for other in known))
        later = [_begins(other, known, found, beside) for other in {*known, *positions} if other > position]
        snapshot = _updated(asked, known.get(position), position, found.get(position, {}), beside, has_past=before, later=later)
        # Under any policy: the reads can be checked only in this microbatch.
        if position in found and not snapshot.is_first and snapshot.cut is None and snapshot.doubt is None:
            snapshot = replace(snapshot, doubt=_doubt(asked, snapshot))
        snapshots.append(snapshot)
    return _settled(asked.run, snapshots, found, known)


def _with_past(asked: SnapshotsAsked, known: Mapping[Position, Snapshot]) -> dict[Position, Snapshot]:
    """Return the known snapshots; one that was the flow's first is not once files of an earlier life of the topic arrive behind it."""
    oldest = min((life_of_lane(item.partition) for item in asked.run.microbatch.offsets), default=0)
    return {position: replace(each, is_first=False) if each.is_first and oldest < each.life else each for position, each in known.items()}


def decide_snapshot(run: MicrobatchRun, decision: SnapshotDecision) -> Snapshots:
    """Return the full snapshots after a user's decision about one of them.

    :raises ConfigurationError: when the flow knows no such snapshot.
    """
    known = run.checkpoint.known_snapshots
    if decision.position not in known:
        raise ConfigurationError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}: the flow knows no snapshot at position {decision.position}.",
            next_step="`airflow-cdc confirm-snapshot` without a choice lists those that it knows.",
        )
    snapshot, offsets = known[decision.position], run.checkpoint.offsets.get(run.microbatch.archive, ArchivedOffsets())
    passed = frozenset(lane for lane in run.lanes if _is_passed(snapshot, lane, offsets))
    return _settled(run, [snapshot.decided(decision.choice, passed)], {}, known)


def _doubt(asked: SnapshotsAsked, snapshot: Snapshot) -> str | None:
    if asked.tables.are_several and not asked.tables.are_distinct:
        return "several tables share the topic, and no column names the table of a row (table_column)"
    # A row in a lane whose reads are not known yet may turn out to precede them.
    begins = {lane: begin for lane, begin in snapshot.begins.items() if lane in snapshot.last_offsets}
    stays = f"{beside(begins, '>=', 'k.')} OR {is_earlier_life(f'k.{PARTITION}', snapshot.life)}"
    return asked.doubts.of(snapshot.position, stays=stays, has_other_lanes=len(asked.lanes) > 1)


def _fell(
    run: MicrobatchRun, position: Position, reads: Mapping[str, LaneReads], beside: Mapping[Position, Mapping[str, LaneBeside]]
) -> bool:
    """Return whether reads may be below positions streamed earlier in their partition, in this microbatch or an earlier one."""
    known = run.checkpoint.reach
    streamed_here = Reach(streamed_through={lane: seen.highest for lane, seen in beside.get(position, {}).items() if seen.highest})
    everything = known | streamed_here
    for lane, here in reads.items():
        earlier = everything.highest_of_earlier_lives(lane)
        if earlier and earlier.commit > position.commit:
            return True
        if here.begin is None:
            continue
        streamed = beside.get(position, {}).get(lane, LaneBeside()).streamed_before
        if streamed and streamed.commit > position.commit:
            return True
        applied = known.streamed_through.get(lane)
        if applied and applied.commit > position.commit and here.begin > known.offset_through.get(lane, here.begin):
            return True
    return False


def _updated(
    asked: SnapshotsAsked,
    known: Snapshot | None,
    position: Position,
    reads: Mapping[str, LaneReads],
    beside: Mapping[Position, Mapping[str, LaneBeside]],
    *,
    has_past: bool,
    later: Sequence[Mapping[str, int]],
) -> Snapshot:
    """Return a snapshot, updated from the microbatch.

    :param later: by lane: where each later snapshot begins.
    """
    here = beside.get(position, {})
    if known is None:
        is_first = not has_past and not any(each.streamed_before for lane, each in here.items() if lane in reads)
        known = Snapshot(position, is_first)
    ends = dict(known.last_offsets)
    begins = dict(known.begins)
    for lane, each in reads.items():
        if each.begin is not None and each.end is not None:
            ends[lane] = max(each.end, ends.get(lane, each.end))
            # A lane without reads so far began at its first event after the snapshot; a read takes precedence.
            begins[lane] = min(each.begin, begins.get(lane, each.begin)) if lane in known.last_offsets else each.begin
    for lane, seen in here.items():
        if lane not in ends and seen.behind is not None:
            begins[lane] = min(seen.behind, begins.get(lane, seen.behind))
    snapshot = replace(
        known,
        marks_tables=known.marks_tables or any(each.has_first for each in reads.values()),
        is_initial=known.is_initial or _is_initial(asked, reads, here),
        last_offsets=ends,
        begins=begins,
        tables=tuple(sorted({*known.tables, *(asked.read_tables if reads else ())})),
        reads=known.reads + (0 if asked.run.microbatch.is_again else sum(each.count for each in reads.values())),
    )
    snapshot = _ended(snapshot, here, asked.offsets, later, has_last=any(each.has_last for each in reads.values()))
    # The marker ends the table. Without another partition or table, it also ends the topic's part of the snapshot.
    partitions = {lane if lane == UNKNOWN_PARTITION else str(partition_of_lane(int(lane))) for lane in asked.lanes}
    alone = len(partitions) == 1 and not asked.tables.are_several
    marked = {lane for lane, each in reads.items() if each.ends_marked and alone and _has_no_gap(snapshot, lane, asked.offsets)}
    unplaced = {lane for lane, seen in here.items() if lane not in ends and seen.has_unplaced_behind and _is_whole(lane, asked.offsets)}
    passed = {lane for lane in asked.lanes if _is_passed(snapshot, lane, asked.offsets)}
    return replace(snapshot, passed=snapshot.passed | passed | marked | unplaced)


def _begins(
    position: Position,
    known: Mapping[Position, Snapshot],
    found: Mapping[Position, Mapping[str, LaneReads]],
    beside: Mapping[Position, Mapping[str, LaneBeside]],
) -> dict[str, int]:
    """Return by lane the first offset that is not before a snapshot, as far as it is known."""
    here = [(lane, seen.behind) for lane, seen in beside.get(position, {}).items()]
    here += [(lane, reads.begin) for lane, reads in found.get(position, {}).items()]
    begins = dict(known[position].begins) if position in known else {}
    for lane, offset in here:
        if offset is not None:
            begins[lane] = min(offset, begins.get(lane, offset))
    return begins


def _ended(
    snapshot: Snapshot, beside: Mapping[str, LaneBeside], offsets: ArchivedOffsets, later: Sequence[Mapping[str, int]], *, has_last: bool
) -> Snapshot:
    """Return a snapshot, with what shows that it ended.

    Debezium 1.x marks the last read of all tables alone. A connector streams only once its snapshot has ended: so an event of a later
    commit shows it, where it follows the reads in each lane without a gap. One that was interrupted is followed by another's reads.
    """
    if snapshot.is_complete or has_last or snapshot.marks_tables or snapshot.is_first:
        return replace(snapshot, is_complete=snapshot.is_complete or has_last, followed={})
    ends = snapshot.last_offsets
    followed = {lane: offset for lane, offset in snapshot.followed.items() if offset > ends[lane]}
    for lane, seen in beside.items():
        if lane in ends and seen.behind is not None and seen.behind > ends[lane]:
            followed[lane] = min(seen.behind, followed.get(lane, seen.behind))
    shown = [
        lane
        for lane, offset in followed.items()
        if _covers(snapshot, lane, offset, offsets) and all(each.get(lane, offset + 1) > offset for each in later)
    ]
    is_complete = bool(ends) and len(shown) == len(ends)
    return replace(snapshot, is_complete=is_complete, followed={} if is_complete else followed)


def _is_initial(asked: SnapshotsAsked, reads: Mapping[str, LaneReads], beside: Mapping[str, LaneBeside]) -> bool:
    """Return whether the reads can only come from a connector's initial snapshot."""
    is_marked = any(each.is_initial for each in reads.values())
    if asked.knows_initial and not is_marked:
        # A blocking snapshot, which may be filtered; even if it comes first in another life.
        return False
    if is_marked and (asked.names_gtids is None or any(each.names_gtids for each in beside.values()) or asked.names_gtids()):
        return True
    epochs, known = asked.run.epochs, asked.run.checkpoint.reach
    for lane, each in reads.items():
        if lane == UNKNOWN_PARTITION or each.begin is None:
            continue
        # A connector that starts over reads first, in another life of the topic or where the log went back.
        begins_epoch = any(offset == each.begin and epoch for offset, epoch in epochs.begins.get(lane, ()))
        is_first = each.begin == 0 or (lane not in known.streamed_from and not beside.get(lane, LaneBeside()).streamed_before)
        if begins_epoch or (life_of_lane(int(lane)) and is_first):
            return True
    return False


def _has_no_gap(snapshot: Snapshot, lane: str, offsets: ArchivedOffsets) -> bool:
    if lane not in snapshot.last_offsets:
        return _is_whole(lane, offsets)
    runs = offsets.partitions[int(lane)].runs if lane != UNKNOWN_PARTITION and int(lane) in offsets.partitions else ()
    begin, end = snapshot.begins[lane], snapshot.last_offsets[lane]
    return not runs or any(_leads_to(run, begin) and run.certain >= end for run in runs)


def _leads_to(run: Run, offset: int) -> bool:
    """Return whether the archive leads up to a snapshot's first offset in a lane: if it begins there, earlier reads may be missing."""
    return offset == 0 or run.first < offset <= run.last


def _is_passed(snapshot: Snapshot, lane: str, offsets: ArchivedOffsets) -> bool:
    """Return whether the archive continues after a snapshot in a lane, without a gap since its reads."""
    if lane == UNKNOWN_PARTITION:
        return False
    runs = offsets.partitions[int(lane)].runs if int(lane) in offsets.partitions else ()
    if lane in snapshot.last_offsets:
        return _covers(snapshot, lane, snapshot.last_offsets[lane] + 1, offsets)
    # The first event after the snapshot, and everything archived before it, leave no room for a read.
    behind = snapshot.begins.get(lane)
    return behind is not None and bool(runs) and behind <= runs[0].last and _leads_to(runs[0], behind)


def _covers(snapshot: Snapshot, lane: str, offset: int, offsets: ArchivedOffsets) -> bool:
    """Return whether the archive leads up to a snapshot's first read in a lane, and on to an offset without a gap."""
    runs = offsets.partitions[int(lane)].runs if lane != UNKNOWN_PARTITION and int(lane) in offsets.partitions else ()
    return any(_leads_to(run, snapshot.begins[lane]) and run.certain >= offset for run in runs)


def _is_whole(lane: str, offsets: ArchivedOffsets) -> bool:
    return lane == UNKNOWN_PARTITION or int(lane) not in offsets.partitions or len(offsets.partitions[int(lane)].runs) == 1


def _settled(
    run: MicrobatchRun, snapshots: list[Snapshot], found: Mapping[Position, object], known: Mapping[Position, Snapshot]
) -> Snapshots:
    policy, shield = run.flow.on_snapshot, run.checkpoint.replaced_by
    later = [each for each in snapshots if not each.is_first and each.position in found and each.position not in known]
    if policy is OnSnapshot.STOP and later:
        raise SnapshotRefusedError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}: another snapshot of table {run.table} begins, at position"
            f" {later[0].position}, and the flow's policy is to stop. Nothing of the microbatch was merged.",
            next_step="Set on_snapshot to auto, replace or keep in the flows file and run again.",
        )
    everything = {**known, **{each.position: each for each in snapshots}}
    proven = [each for each in snapshots if may_replace(each, policy) and each.is_proven(run.lanes)]
    winner = max(proven, key=lambda each: each.position, default=None)
    if winner and shield and shield.position >= winner.position:
        winner = None
    if winner:
        winner = replace(winner, cut=winner.position)
        everything[winner.position] = winner
    newest = everything[max(everything)]
    earlier = known.get(newest.position)
    ends_here = newest.position in found or not (earlier and earlier.is_complete)
    ended = ends_here and newest.is_complete and not newest.is_first and newest.cut is None
    behind = winner.position if winner else None
    pending = tuple(
        each
        for position, each in sorted(everything.items())
        if position != newest.position and may_replace(each, policy) and (behind is None or position > behind)
    )
    return Snapshots(newest, pending, winner, shield, newest if ended else None)


def is_awaited(snapshot: Snapshot, flow: CdcFlow) -> bool:
    """Return whether later events may prove a snapshot, or show that it ended."""
    return may_replace(snapshot, flow.on_snapshot) or (snapshot.may_end and flow.mode is not TableMode.CHANGE_LOG)


def may_replace(snapshot: Snapshot, policy: OnSnapshot) -> bool:
    """Return whether a snapshot may remove rows, once it is proven complete."""
    if snapshot.is_first or snapshot.cut is not None or snapshot.doubt is not None:
        return False
    if snapshot.decision:
        return snapshot.decision is SnapshotChoice.REPLACE
    return policy is OnSnapshot.REPLACE or (policy is OnSnapshot.AUTO and snapshot.is_initial)
