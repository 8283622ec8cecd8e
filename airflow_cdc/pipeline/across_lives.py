"""Compare positions across the lives of a topic: a log that went back while the topic was made anew.

A new life begins behind everything of the lives before. Where its positions lie below theirs, the log went back too. One thing looks the
same: a file of the new life that was archived before the file which begins it continues the old life's offsets, and was taken for its end.
The connector's own clock tells the two apart.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, PARTITION, POSITION
from airflow_cdc.model.lives import LANES
from airflow_cdc.model.reach import UNKNOWN_PARTITION, Reach
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.events_between import OF_LOG, events_between
from airflow_cdc.pipeline.microbatch_run import MicrobatchRun

KAFKA_PARTITION = f"pmod({PARTITION}, {LANES})"
SENT = "__cdc_sent"
"""bigint: when the connector processed an event, in milliseconds since 1970 by its own clock; NULL where it does not say."""
ACROSS = "__cdc_across"
"""boolean: whether an event stands below a higher position of earlier lives, and of none of its own."""


def when_sent() -> Column:
    """Return when the connector processed an event."""
    return F.expr(f"try_cast({in_line('ts_ms')} AS BIGINT)").alias(SENT)


def falls_across(applied: Reach, here: Reach) -> bool:
    """Tell whether a life of the topic may begin below what an earlier one streamed; costs nothing.

    :param applied: what earlier microbatches have been through.
    :param here: what the microbatch goes through.
    """
    ends = ((first, known.of_earlier_lives(lane)) for lane, first in here.streamed_from.items() for known in (applied, here))
    return any(end and first.commit < end.commit for first, end in ends)


def highest_of_earlier_lives(applied: Reach, streamed: Column) -> Column:
    """Return the highest commit that earlier lives of an event's partition streamed, in the microbatch or before; NULL where none did.

    :param streamed: commit of a streamed event, NULL for others.
    """
    by_partition = Window.partitionBy(F.expr(KAFKA_PARTITION)).orderBy(PARTITION)
    here = F.max(streamed).over(by_partition.rangeBetween(Window.unboundedPreceding, -1))
    lanes = sorted((int(name) for name in applied.streamed_through if name != UNKNOWN_PARTITION), reverse=True)
    ends = ((lane, applied.of_earlier_lives(str(lane + LANES))) for lane in lanes)
    cases = [f"WHEN {KAFKA_PARTITION} = {lane % LANES} AND {PARTITION} > {lane} THEN {end.commit}BD" for lane, end in ends if end]
    return F.greatest(here, F.expr(f"CASE {' '.join(cases)} END")) if cases else here


def without_misplaced(run: MicrobatchRun, decoder: Decoder, fallen: DataFrame, events: DataFrame) -> DataFrame:
    """Return the fallen events but for those of a life whose end was taken for that of the life before.

    :param fallen: events that stand below a higher position, with :data:`SENT` and :data:`ACROSS`.
    :param events: all events of the microbatch.
    """
    firsts = fallen.filter(ACROSS).groupBy(PARTITION).agg(F.min(f"{POSITION}.commit").alias("commit"), F.min(SENT).alias("sent")).collect()
    timed = [row for row in firsts if row["sent"] is not None]
    if not timed:
        return fallen
    earlier = events_between(run, decoder, min(int(row["commit"]) for row in timed), None)
    seen = reduce(DataFrame.unionByName, [_timed(each) for each in (events, *earlier)])
    misplaced = [int(row[PARTITION]) for row in timed if not seen.filter(_contradicts(row)).isEmpty()]
    return fallen.filter(~(F.col(ACROSS) & F.col(PARTITION).isin(misplaced))) if misplaced else fallen


def _timed(events: DataFrame) -> DataFrame:
    return events.filter(f"{OF_LOG} AND {KIND} <> 'r'").select(PARTITION, POSITION, when_sent())


def _contradicts(first: Row) -> str:
    """Return the SQL of an event that an earlier life holds at a higher position, though the connector processed it later."""
    lane = int(first[PARTITION])
    earlier = f"{KAFKA_PARTITION} = {lane % LANES} AND {PARTITION} < {lane}"
    return f"{earlier} AND {POSITION}.commit > {int(first['commit'])}BD AND {SENT} > {int(first['sent'])}"
