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
from airflow_cdc.pipeline.locate.epoch_begins import CONTENT, OF_LOG, content
from airflow_cdc.pipeline.microbatch.events_between import events_between
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun

_STREAMED = f"{OF_LOG} AND {KIND} <> 'r'"


def lowest_behind(run: MicrobatchRun, highest: Mapping[str, int]) -> dict[str, int]:
    """Return by lane the lowest commit of earlier microbatches that stand behind this one by all their offsets, where it is below the
    microbatch's own highest. Reads reports only if the microbatch is late in a lane.

    :param highest: by lane: the highest commit that the microbatch streamed.
    """
    late = {lane: last for lane, last in _last_offsets(run).items() if lane in highest and last < _applied_through(run, lane)}
    lowest: dict[str, int] = {}
    for number in range(1, run.microbatch.number) if late else ():
        report = run.past.report(number)
        for lane, last in late.items() if report else ():
            reach = report.reach if report else None
            if reach and lane in reach.streamed_from and reach.offset_from.get(lane, -1) > last:
                lowest[lane] = min(reach.streamed_from[lane].commit, lowest.get(lane, highest[lane]))
    return {lane: commit for lane, commit in lowest.items() if commit < highest[lane]}


def refuse_earlier_epoch(run: MicrobatchRun, decoder: Decoder, events: DataFrame, keys: Sequence[str]) -> None:
    """Stop where the microbatch holds events from before the log went back, and events from behind it are applied.

    :param keys: SQL names of the columns that, with the position and the images, identify an event.
    :raises SourceLogWentBackError: with the way out.
    """
    commits = events.filter(_STREAMED).groupBy(PARTITION).agg(F.max(f"{POSITION}.commit").alias("highest")).collect()
    highest = {partition_of(row): int(row["highest"]) for row in commits}
    lowest, last = lowest_behind(run, highest), _last_offsets(run)
    known = run.checkpoint.offsets.get(run.microbatch.archive, ArchivedOffsets()).with_files(run.microbatch.offsets)
    # What is missing below may hold the first deliveries.
    suspects = [lane for lane in sorted(lowest) if not known.missing_below(run.flow.topic, int(lane), last[lane])]
    if not suspects:
        return
    identity = (*keys, POSITION, KIND, CONTENT)
    first, highest_of_all = min(map(lowest.__getitem__, suspects)), max(map(highest.__getitem__, suspects))
    named = [
        each.select(*keys, POSITION, KIND, PARTITION, ORDINAL, content()) for each in events_between(run, decoder, first, highest_of_all)
    ]
    if not named:
        return
    applied, ours = reduce(DataFrame.unionByName, named), events.filter(OF_LOG).select(*keys, POSITION, KIND, content())
    is_behind = {lane: f"({is_lane(lane)} AND {ORDINAL}.offset > {last[lane]})" for lane in suspects}
    fallen = " OR ".join(f"({behind} AND {POSITION}.commit < {highest[lane]}BD)" for lane, behind in is_behind.items())
    before = applied.filter(f"NOT ({' OR '.join(is_behind.values())})").select(*identity).unionByName(ours.select(*identity)).distinct()
    same = [F.expr(f"s.{name} <=> k.{name}") for name in identity]
    found = (
        applied.filter(f"{KIND} <> 'r' AND ({fallen})").alias("s").join(before.alias("k"), reduce(lambda a, b: a & b, same), "left_anti")
    )
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


def _last_offsets(run: MicrobatchRun) -> dict[str, int]:
    last: dict[str, int] = {}
    for item in run.microbatch.offsets:
        last[str(item.partition)] = max(item.last, last.get(str(item.partition), -1))
    return last


def _applied_through(run: MicrobatchRun, lane: str) -> int:
    applied = run.checkpoint.reach.offset_through
    return applied.get(lane, -1)
