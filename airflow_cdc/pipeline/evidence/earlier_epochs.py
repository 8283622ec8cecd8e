"""Find events from before the source's log went back that come when events from behind it are applied: their positions do not compare.

A file that comes late stands before applied files, by its offsets. If it holds a higher position than they do, either they hold copies that
a restarted connector sent, or the log went back between them. Then the late events belong to an epoch before the first one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.archive.completeness import ArchivedOffsets
from airflow_cdc.model.columns import KIND, ORDINAL, PARTITION, POSITION
from airflow_cdc.model.errors import SourceLogWentBackError
from airflow_cdc.model.position.lives import lane_text
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.lanes import is_lane
from airflow_cdc.pipeline.decode.place_of_row import partition_of
from airflow_cdc.pipeline.locate.epoch_begins import OF_LOG, content, without_delivered
from airflow_cdc.pipeline.microbatch.events_between import events_between
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun

_STREAMED = f"{OF_LOG} AND {KIND} <> 'r'"


def lowest_behind(run: MicrobatchRun, highest: Mapping[str, int]) -> dict[str, int]:
    """Return by lane the lowest commit of earlier microbatches that stand behind this one by all their offsets, where it is below the
    microbatch's own highest. Reads reports only if the microbatch is late in a lane.

    :param highest: by lane: the highest commit that the microbatch streamed.
    """
    late = {lane: last for lane, last in _late_through(run).items() if lane in highest}
    reports = filter(None, map(run.past.report, range(1, run.microbatch.number))) if late else ()
    lowest = dict(highest)
    for reach in (report.reach for report in reports):
        for lane, last in late.items():
            if lane in reach.streamed_from and reach.offset_from.get(lane, -1) > last:
                lowest[lane] = min(reach.streamed_from[lane].commit, lowest[lane])
    return {lane: commit for lane, commit in lowest.items() if commit < highest[lane]}


def refuse_earlier_epoch(run: MicrobatchRun, decoder: Decoder, events: DataFrame, keys: Sequence[str]) -> None:
    """Stop where the microbatch holds events from before the log went back, and events from behind it are applied.

    :param keys: SQL names of the columns that, with the position and the images, identify an event.
    :raises SourceLogWentBackError: with the way out.
    """
    if not (last := _late_through(run)):
        return
    commits = events.filter(_STREAMED).groupBy(PARTITION).agg(F.max(f"{POSITION}.commit").alias("highest")).collect()
    highest = {partition_of(row): int(row["highest"]) for row in commits}
    lowest = lowest_behind(run, highest)
    known = run.checkpoint.offsets.get(run.microbatch.archive, ArchivedOffsets()).with_files(run.microbatch.offsets)
    # What is missing below may hold the first deliveries.
    suspects = [lane for lane in sorted(lowest) if not known.missing_below(run.flow.topic, int(lane), last[lane])]
    if not suspects:
        return
    between = events_between(run, decoder, min(lowest[lane] for lane in suspects), max(highest[lane] for lane in suspects))
    if not between:
        return
    named = [*map(F.col, (*keys, POSITION, KIND, PARTITION, ORDINAL)), content()]
    applied = reduce(DataFrame.unionByName, [each.select(*named) for each in between])
    is_behind = {lane: f"({is_lane(lane)} AND {ORDINAL}.offset > {last[lane]})" for lane in suspects}
    before = applied.filter(f"NOT ({' OR '.join(is_behind.values())})").unionByName(events.filter(OF_LOG).select(*named))
    fallen = " OR ".join(f"({behind} AND {POSITION}.commit < {highest[lane]}BD)" for lane, behind in is_behind.items())
    found = without_delivered(applied.filter(f"{KIND} <> 'r' AND ({fallen})"), before, keys)
    if (row := found.select(PARTITION, f"{ORDINAL}.offset", f"{POSITION}.commit").head()) is None:
        return
    lane = partition_of(row)
    place = f"{lane_text(int(lane))}, offset {last[lane]}"
    raise SourceLogWentBackError(
        f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: {place}: commit {highest[lane]} is at or before it."
        f" Offset {row['offset']} behind it, at commit {row['commit']}, is no copy, and is applied already: the source's log went back"
        " between them, and the older file came later. Nothing of the microbatch was merged.",
        next_step="Rebuild the table from the archive (airflow-cdc rebuild): it reads the files in the order of their offsets.",
        lane=lane,
        offset=last[lane],
    )


def _late_through(run: MicrobatchRun) -> dict[str, int]:
    """Return the microbatch's last offset by lane, where earlier microbatches reach further."""
    last: dict[str, int] = {}
    for item in run.microbatch.offsets:
        last[str(item.partition)] = max(item.last, last.get(str(item.partition), -1))
    applied = run.checkpoint.reach.offset_through
    return {lane: offset for lane, offset in last.items() if offset < applied.get(lane, -1)}
