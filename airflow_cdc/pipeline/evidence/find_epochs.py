"""Find where the source's log went back: an event after a higher position in its lane that is not a copy of an earlier event.

A restarted connector sends its last events again, at higher offsets and lower positions: they are copies, and prove nothing. The search
runs only where a microbatch holds such events. It then costs a sort of the events, and a pass over the earlier files that may hold the
first delivery.

While offsets are missing below such an event, its first delivery may be among them, so nothing proves that the log went back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets, OffsetGap
from airflow_cdc.model.columns import FILE, KIND, OFFSET, ORDINAL, POSITION
from airflow_cdc.model.errors import SourceLogWentBackError
from airflow_cdc.model.flow.policies import OnLogWentBack
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import lane_text
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION, Reach
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.lanes import is_lane
from airflow_cdc.pipeline.decode.place_of_row import position_of
from airflow_cdc.pipeline.evidence.earlier_epochs import lowest_behind, refuse_earlier_epoch
from airflow_cdc.pipeline.evidence.misplaced_files import without_misplaced
from airflow_cdc.pipeline.locate.epoch_begins import (
    HIGHEST,
    IS_READ,
    content,
    fallen_events,
    first_by_lane,
    open_gaps,
    with_new_lanes,
    with_next_epoch,
    without_delivered,
)
from airflow_cdc.pipeline.microbatch.count_events import Staged
from airflow_cdc.pipeline.microbatch.events_between import events_between
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.spark import sql


class OffsetsAwaitedError(Exception):
    """Raised where missing offsets that may still come decide whether the source's log went back; nothing was merged."""

    def __init__(self, gaps: Sequence[OffsetGap]) -> None:
        super().__init__("; ".join(map(str, gaps)))
        self.gaps = tuple(gaps)


def may_have_fallen(run: MicrobatchRun, decoder: Decoder, staged: Staged) -> bool:
    """Return whether events may come after a higher position of their lane; costs nothing, but for a late microbatch."""
    if not decoder.dialect.position.goes_back or run.microbatch.is_again:
        return False
    applied = run.checkpoint.reach
    through = _offsets_through(run)
    new = {str(item.partition) for item in run.microbatch.offsets if item.last > through.get(str(item.partition), -1)}
    behind = any(
        first.commit < applied.streamed_through[lane].commit
        for lane, first in staged.reach.streamed_from.items()
        if lane in applied.streamed_through and (lane in new or lane == UNKNOWN_PARTITION or run.microbatch.rests)
    )
    has_new_lanes = bool(run.found_epochs is None and run.new_lanes and run.epochs.newest)
    falls = has_new_lanes or behind or staged.falls or staged.conflicts > 0
    if falls or _is_below_earlier_life(staged.reach, applied | staged.reach):
        return True
    return bool(lowest_behind(run, {lane: place.commit for lane, place in staged.reach.streamed_through.items()}))


def _is_below_earlier_life(here: Reach, known: Reach) -> bool:
    """Return whether events may be below an earlier life of the topic: the source was restored and its topic created again."""
    places = ((first, known.highest_of_earlier_lives(lane)) for lane, first in here.streamed_from.items())
    return any(highest is not None and first.commit < highest.commit for first, highest in places)


def find_epochs(run: MicrobatchRun, decoder: Decoder) -> Epochs | None:
    """Return the epochs, including the one that begins in the microbatch; None where the log did not go back.

    If several begin here, this finds the first; the caller searches again once it is known.

    :raises SourceLogWentBackError: where no snapshot follows, and the flow's policy is to stop; or events from behind it are applied.
    :raises OffsetsAwaitedError: where missing offsets decide it, and may still come.
    """
    if not decoder.dialect.position.goes_back or run.microbatch.is_again:
        return None
    events = decoder.events(run.lines())
    if run.found_epochs is None and (placed := with_new_lanes(events, run.epochs, run.new_lanes)) != run.epochs:
        return placed
    keys = [sql.name(key) for key in decoder.columns.keys]
    if run.flow.on_log_went_back is not OnLogWentBack.REDELIVERY:
        refuse_earlier_epoch(run, decoder, events, keys)
    known = _known_commit(run, run.checkpoint.reach, _offsets_through(run))
    fallen = run.write_down(fallen_events(events, keys, known), "fallen")
    if fallen.isEmpty():
        return None
    fresh = _without_archived(run, decoder, fallen, keys)
    firsts = first_by_lane(without_misplaced(run, decoder, fresh, events))
    if not firsts:
        return None
    epochs = run.epochs
    lagging = all(epochs.of(lane) < epochs.newest for lane in firsts)
    if not any(first[IS_READ] for first in firsts.values()) and not lagging and _are_copies(run, firsts):
        return None
    _refuse_inside_of_a_file(run, events, firsts)
    return with_next_epoch(events, epochs, firsts)


def _are_copies(run: MicrobatchRun, firsts: Mapping[str, Row]) -> bool:
    """Return whether the flow's policy takes events below a higher position, of which no first delivery is known, for copies.

    :raises SourceLogWentBackError, OffsetsAwaitedError: as :func:`find_epochs`.
    """
    known = run.checkpoint.offsets.get(run.microbatch.archive, ArchivedOffsets()).with_files(run.microbatch.offsets)
    gaps = open_gaps(firsts, known, run.flow.topic, _offsets_of(run, _held_rests(run)))
    if gaps and run.flow.on_log_went_back is OnLogWentBack.REDELIVERY:
        return True
    if gaps and run.awaits(gaps):
        raise OffsetsAwaitedError(gaps)
    if run.flow.on_log_went_back is not OnLogWentBack.ACCEPT:
        raise _went_back(run, firsts, gaps)
    return False


def _offsets_through(run: MicrobatchRun) -> dict[str, int]:
    """Return by lane the highest offset that earlier microbatches held; one that only a missing tombstone explains does not count."""
    applied = run.checkpoint.offsets.get(run.microbatch.archive, ArchivedOffsets())
    return {str(lane): offsets.runs[-1].certain for lane, offsets in applied.partitions.items() if offsets.runs}


def _held_rests(run: MicrobatchRun) -> frozenset[str]:
    """Return the paths of the files of which earlier microbatches applied a part, and this one holds nothing: they too may hold first
    deliveries, though their offsets count as applied.
    """
    _, held = run.checkpoint.plan(run.microbatch.archive)
    return frozenset(item.path for item in held if item.since is not None) - {file.path for file in run.microbatch.files}


def _offsets_of(run: MicrobatchRun, paths: Collection[str]) -> list[FileOffsets]:
    """Return the offsets of files of which earlier microbatches own the first part."""
    if not paths:
        return []
    intents = (run.past.intent(number) for number in range(1, run.microbatch.number))
    return [item for intent in intents if intent for item in intent.offsets if item.file in paths]


def _known_commit(run: MicrobatchRun, applied: Reach, through: Mapping[str, int]) -> str:
    """Return the SQL of the highest commit streamed in an event's partition by earlier microbatches that all precede the event.

    The rest of a file left by an earlier microbatch comes after everything applied, though the file's offsets count as applied; unless a
    file with higher offsets was applied meanwhile. A later life of the topic comes after the earlier ones.
    """
    rests = _offsets_of(run, run.microbatch.rests)
    unnumbered = run.microbatch.rests - {item.file for item in rests}
    cases = []
    for lane in sorted(run.lanes):
        earlier, last = applied.highest_of_earlier_lives(lane), applied.streamed_through.get(lane)
        if last is not None:
            highest = max(filter(None, (last, earlier)))
            last_rests = unnumbered | {item.file for item in rests if lane == str(item.partition) and item.last >= through.get(lane, -1)}
            in_rest = f" OR {FILE} IN ({', '.join(map(sql.text, sorted(last_rests)))})" if last_rests else ""
            is_behind = f"(coalesce({ORDINAL}.offset > {through.get(lane, -1)}, true){in_rest})"
            cases.append(f"WHEN {is_lane(lane)} AND {is_behind} THEN {highest.commit}BD")
        if earlier is not None:
            cases.append(f"WHEN {is_lane(lane)} THEN {earlier.commit}BD")
    return f"CASE {' '.join(cases)} ELSE CAST(NULL AS DECIMAL(38,0)) END" if cases else "CAST(NULL AS DECIMAL(38,0))"


def _without_archived(run: MicrobatchRun, decoder: Decoder, fallen: DataFrame, keys: list[str]) -> DataFrame:
    """Return the events that no earlier microbatch delivered."""
    ends = fallen.agg(F.min(f"{POSITION}.commit").alias("first"), F.max(f"{POSITION}.commit").alias("last")).collect()[0]
    seen = [each.select(*keys, POSITION, KIND, content()) for each in events_between(run, decoder, int(ends["first"]), int(ends["last"]))]
    if not seen:
        return fallen
    return run.write_down(without_delivered(fallen, reduce(DataFrame.unionByName, seen), keys), "fell")


def _refuse_inside_of_a_file(run: MicrobatchRun, events: DataFrame, firsts: Mapping[str, Row]) -> None:
    """Stop where an epoch begins inside a file whose records have no offsets: all its lines share one place in the lane."""
    for lane, first in sorted(firsts.items()):
        ordinal = first[ORDINAL]
        if first[OFFSET] is not None:
            continue
        place = f"{is_lane(lane)} AND {FILE} = {sql.text(first[FILE])} AND {ORDINAL}.block <= {ordinal['block']}"
        if ordinal["offset"] is None or events.filter(f"{place} AND {ORDINAL}.row < {ordinal['row']}").head(1):
            raise SourceLogWentBackError(
                f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: the source's log went back inside of"
                f" {first[FILE]}, to commit {position_of(first[POSITION])} behind commit {first[HIGHEST]}, and the file's records carry no"
                " offsets that would divide it. Nothing of the microbatch was merged.",
                next_step="Divide the file where the positions fall, the second part under a name with its own first offset; or archive"
                " whole records, with their offsets.",
                lane=lane,
                file=first[FILE],
            )


def _went_back(run: MicrobatchRun, firsts: Mapping[str, Row], gaps: Sequence[OffsetGap]) -> SourceLogWentBackError:
    lane, first = min(firsts.items())
    where = lane if lane == UNKNOWN_PARTITION else lane_text(int(lane))
    facts = {"lane": lane, "offset": first[ORDINAL]["offset"], "file": first[FILE]}
    if gaps:
        return SourceLogWentBackError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: {where}, offset {first[ORDINAL]['offset']}"
            f" ({first[FILE]}) holds an event at commit {position_of(first[POSITION])} behind commit {first[HIGHEST]}, and no archived file"
            f" holds the same event. Either a restarted connector sent it again, and its first delivery is missing, or the source's log"
            f" went back: {gaps[-1]}. Nothing of the microbatch was merged.",
            next_step="Bring the missing records to the archive, and run again: they decide. If they are lost, set on_log_went_back to"
            " redelivery where a connector was restarted, to accept where the source was restored, reset or failed over, and run again"
            " (docs/how-to/when-the-source-was-rebuilt.md).",
            **facts,
            gaps=tuple(gaps),
        )
    return SourceLogWentBackError(
        f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: the source's log went back. {where}, offset"
        f" {first[ORDINAL]['offset']} ({first[FILE]}) holds an event at commit {position_of(first[POSITION])} behind commit"
        f" {first[HIGHEST]}, and no earlier file holds the same event. No snapshot follows. Nothing of the microbatch was merged.",
        next_step="Rows that changed while nobody captured them are known only to the source: let the connector take a snapshot. Then, or"
        " where none is needed, set on_log_went_back to accept, which takes the events in the archive's order, and run again"
        " (docs/how-to/when-the-source-was-rebuilt.md).",
        **facts,
    )
