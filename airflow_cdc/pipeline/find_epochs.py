"""Find where the source's log went back: an event that its lane holds behind a higher position, and that is no copy of an earlier one.

A connector that restarts sends its last events again, at higher offsets and lower positions: they are copies, and prove nothing. Asked only
where a microbatch holds such events at all; then it costs a sort of its events, and a look at the earlier files that may hold the first
delivery.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame, Row, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import FILE, KIND, OFFSET, OP, ORDINAL, PARTITION, POSITION, REJECT, SNAPSHOT
from airflow_cdc.model.completeness import ArchivedOffsets
from airflow_cdc.model.epochs import Epochs
from airflow_cdc.model.errors import SourceLogWentBackError
from airflow_cdc.model.flow import OnLogWentBack
from airflow_cdc.model.lives import lane_text
from airflow_cdc.model.reach import UNKNOWN_PARTITION, Reach
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.across_lives import ACROSS, SENT, falls_across, highest_of_earlier_lives, when_sent, without_misplaced
from airflow_cdc.pipeline.count_events import Staged, partition_of, position_of
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.lanes import is_lane
from airflow_cdc.pipeline.events_between import OF_LOG, events_between
from airflow_cdc.pipeline.microbatch_run import MicrobatchRun

_IS_READ = "__cdc_is_read"
_HIGHEST = "__cdc_highest"
_DELIVERY = "__cdc_delivery"


def may_have_fallen(run: MicrobatchRun, decoder: Decoder, staged: Staged) -> bool:
    """Tell whether events may stand behind a higher position of their lane; costs nothing."""
    if decoder.dialect.clock_positions or run.microbatch.is_again:
        return False
    applied = run.checkpoint.reach
    through = _offsets_through(run)
    new = {str(item.partition) for item in run.microbatch.offsets if item.last > through.get(str(item.partition), -1)}
    behind = any(
        first.commit < applied.streamed_through[lane].commit
        for lane, first in staged.reach.streamed_from.items()
        if lane in applied.streamed_through and (lane in new or lane == UNKNOWN_PARTITION)
    )
    return behind or staged.falls or staged.conflicts > 0 or falls_across(applied, staged.reach)


def find_epochs(run: MicrobatchRun, decoder: Decoder) -> Epochs | None:
    """Return the epochs with the one that begins in the microbatch; None where the log did not go back.

    Of several that begin here the first is found; it is asked again with that one known.

    :raises SourceLogWentBackError: where no snapshot follows, and the flow's policy is to stop.
    """
    if decoder.dialect.clock_positions or run.microbatch.is_again:
        return None
    events = decoder.events(run.lines())
    keys = [sql.name(key) for key in decoder.columns.keys]
    fallen = run.write_down(_fallen(run, events, keys), "fallen")
    if fallen.isEmpty():
        return None
    fresh = without_misplaced(run, decoder, _without_archived(run, decoder, fallen, keys), events)
    places = fresh.groupBy(PARTITION).agg(F.min_by(F.struct("*"), ORDINAL).alias("first")).collect()
    if not places:
        return None
    firsts = {partition_of(row): row["first"] for row in places}
    epochs = run.epochs
    lagging = all(epochs.of(lane) < epochs.newest for lane in firsts)
    reads = {lane: first for lane, first in firsts.items() if first[_IS_READ]}
    if not reads and not lagging and run.flow.on_log_went_back is OnLogWentBack.STOP:
        raise _went_back(run, firsts)
    _refuse_inside_of_a_file(run, events, firsts)
    begins = {lane: int(first[ORDINAL]["offset"]) for lane, first in firsts.items()}
    if reads:
        begins = {**_begins_of(events, {position_of(first[POSITION]).commit for first in reads.values()}), **begins}
    return epochs.beginning({**_joining(events, begins), **begins})


def _fallen(run: MicrobatchRun, events: DataFrame, keys: list[str]) -> DataFrame:
    """Return the first deliveries, in the microbatch, of streamed events and full snapshots' reads that stand behind a higher position."""
    in_lane = Window.partitionBy(PARTITION).orderBy(ORDINAL).rowsBetween(Window.unboundedPreceding, -1)
    is_read = f"{KIND} = 'r'"
    of_log = events.filter(f"{OF_LOG} AND NOT ({is_read} AND {SNAPSHOT} <=> 'incremental')")
    streamed = F.expr(f"CASE WHEN NOT {is_read} THEN {POSITION}.commit END")
    by_event = Window.partitionBy(*keys, PARTITION, POSITION, KIND).orderBy(ORDINAL)
    known = F.expr(_known_commit(run.checkpoint.reach, _offsets_through(run)))
    placed = of_log.select(*keys, POSITION, OP, KIND, PARTITION, OFFSET, ORDINAL, FILE, F.expr(is_read).alias(_IS_READ), when_sent())
    of_lane, of_earlier = F.greatest(F.max(streamed).over(in_lane), known), highest_of_earlier_lives(run.checkpoint.reach, streamed)
    across = F.coalesce(F.col(POSITION)["commit"] >= of_lane, F.lit(True))  # noqa: FBT003
    seen = {_HIGHEST: F.greatest(of_lane, of_earlier), ACROSS: across, _DELIVERY: F.row_number().over(by_event)}
    return placed.withColumns(seen).filter(f"{_DELIVERY} = 1 AND {POSITION}.commit < {_HIGHEST}").drop(_DELIVERY)


def _offsets_through(run: MicrobatchRun) -> dict[str, int]:
    """Return by lane the highest offset that earlier microbatches held; one that only a missing tombstone may account for is none."""
    applied = run.checkpoint.offsets.get(run.microbatch.archive, ArchivedOffsets())
    return {str(lane): offsets.runs[-1].certain for lane, offsets in applied.partitions.items() if offsets.runs}


def _known_commit(applied: Reach, through: Mapping[str, int]) -> str:
    """Return the SQL of the highest commit that earlier microbatches streamed in an event's lane, where they all stand before it."""
    cases = [
        f"WHEN {is_lane(lane)} AND coalesce({ORDINAL}.offset > {through.get(lane, -1)}, true) THEN {last.commit}BD"
        for lane, last in sorted(applied.streamed_through.items())
    ]
    return f"CASE {' '.join(cases)} ELSE CAST(NULL AS DECIMAL(38,0)) END" if cases else "CAST(NULL AS DECIMAL(38,0))"


def _without_archived(run: MicrobatchRun, decoder: Decoder, fallen: DataFrame, keys: list[str]) -> DataFrame:
    """Return the events that no earlier microbatch delivered."""
    ends = fallen.agg(F.min(f"{POSITION}.commit").alias("first"), F.max(f"{POSITION}.commit").alias("last")).collect()[0]
    seen = [each.select(*keys, POSITION, KIND) for each in events_between(run, decoder, int(ends["first"]), int(ends["last"]))]
    if not seen:
        return fallen
    known = reduce(DataFrame.unionByName, seen).distinct().alias("k")
    same = [F.expr(f"s.{key} <=> k.{key}") for key in keys]
    same += [F.expr(f"s.{POSITION} = k.{POSITION}"), F.expr(f"s.{KIND} = k.{KIND}")]
    return run.write_down(fallen.alias("s").join(known, reduce(lambda one, other: one & other, same), "left_anti"), "fell")


def _begins_of(events: DataFrame, commits: set[int]) -> dict[str, int]:
    """Return by lane the first offset of reads at some commits: one snapshot reads all lanes at one position."""
    wanted = ", ".join(f"{commit}BD" for commit in sorted(commits))
    reads = events.filter(f"{REJECT} IS NULL AND {KIND} = 'r' AND {POSITION}.commit IN ({wanted})")
    rows = reads.groupBy(PARTITION).agg(F.min(F.col(ORDINAL)["offset"]).alias("begin")).collect()
    return {partition_of(row): int(row["begin"]) for row in rows if row["begin"] is not None}


def _refuse_inside_of_a_file(run: MicrobatchRun, events: DataFrame, firsts: Mapping[str, Row]) -> None:
    """Stop where an epoch begins in the middle of a file whose records have no offsets: its lines are at one place of the lane."""
    for lane, first in sorted(firsts.items()):
        ordinal = first[ORDINAL]
        if first[OFFSET] is not None:
            continue
        place = f"{is_lane(lane)} AND {FILE} = {sql.text(first[FILE])} AND {ORDINAL}.block <= {ordinal['block']}"
        if ordinal["offset"] is None or events.filter(f"{place} AND {ORDINAL}.row < {ordinal['row']}").head(1):
            raise SourceLogWentBackError(
                f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: the source's log went back inside of"
                f" {first[FILE]}, to commit {position_of(first[POSITION])} behind commit {first[_HIGHEST]}, and the file's records carry no"
                " offsets that would divide it. Nothing of the microbatch was merged.",
                next_step="Divide the file where the positions fall, the second part under a name with its own first offset; or archive"
                " whole records, with their offsets.",
                lane=lane,
                file=first[FILE],
            )


def _joining(events: DataFrame, begins: Mapping[str, int]) -> dict[str, int]:
    """Return by lane the first offset that the connector processed after it met the log that went back.

    Positions of another lane need not fall: it was quiet, or is new. What the connector sent later is of the new epoch all the same; the
    envelope's ``ts_ms`` is its own clock, not the source's.
    """
    timed = events.filter(OF_LOG).select(PARTITION, F.col(ORDINAL)["offset"].alias("offset"), when_sent())
    here = " OR ".join(f"({is_lane(lane)} AND offset >= {offset})" for lane, offset in sorted(begins.items()))
    met = timed.filter(here).agg(F.min(SENT)).collect()[0][0]
    if met is None:
        return {}
    rows = timed.filter(F.col(SENT) > met).groupBy(PARTITION).agg(F.min("offset").alias("begin")).collect()
    return {lane: int(row["begin"]) for row in rows if (lane := partition_of(row)) not in begins and row["begin"] is not None}


def _went_back(run: MicrobatchRun, firsts: Mapping[str, Row]) -> SourceLogWentBackError:
    lane, first = min(firsts.items())
    where = lane if lane == UNKNOWN_PARTITION else lane_text(int(lane))
    return SourceLogWentBackError(
        f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: the source's log went back. {where}, offset"
        f" {first[ORDINAL]['offset']} ({first[FILE]}) holds an event at commit {position_of(first[POSITION])} behind commit"
        f" {first[_HIGHEST]}, and no earlier file holds the same event. No snapshot follows. Nothing of the microbatch was merged.",
        next_step="Rows that changed while nobody captured them are known only to the source: let the connector take a snapshot. Then, or"
        " where none is needed, set on_log_went_back to accept, which takes the events in the archive's order, and run again"
        " (docs/how-to/when-the-source-was-rebuilt.md).",
        lane=lane,
        offset=first[ORDINAL]["offset"],
        file=first[FILE],
    )
