"""Distinguish a log that went back while its topic was created again from files that arrived in another order.

In both cases a life of the topic begins below positions of the life before. A file of the new life, archived before the file that begins
it, continues the old life's offsets, and was taken for its end. The connector's own clock distinguishes the two.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, PARTITION, POSITION
from airflow_cdc.model.position.lives import LANES, is_earlier
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.locate.epoch_begins import SENT, sent
from airflow_cdc.pipeline.microbatch.events_between import events_between
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun


def without_misplaced(run: MicrobatchRun, decoder: Decoder, fallen: DataFrame, events: DataFrame) -> DataFrame:
    """Return the fallen events, without those of a life whose end was taken for that of the life before.

    Costs a pass over the earlier files, only where a life of the topic may begin below the one before.

    :param fallen: events below a higher position of their partition, with
        :data:`~airflow_cdc.pipeline.locate.epoch_begins.SENT`.
    :param events: all events of the microbatch.
    """
    later = [lane for lane in run.lanes if any(is_earlier(other, lane) for other in run.lanes)]
    if not later:
        return fallen
    here = fallen.filter(F.col(PARTITION).isin([int(lane) for lane in later]) & F.col(SENT).isNotNull())
    firsts = here.groupBy(PARTITION).agg(F.min(f"{POSITION}.commit").alias("commit"), F.min(SENT).alias("sent")).collect()
    if not firsts:
        return fallen
    streamed = f"{KIND} IN ('c', 'u', 'd', 't')"
    earlier = events_between(run, decoder, min(int(row["commit"]) for row in firsts), None)
    seen = reduce(DataFrame.unionByName, [each.filter(streamed).select(PARTITION, POSITION, sent()) for each in (events, *earlier)])
    misplaced = [int(row[PARTITION]) for row in firsts if not seen.filter(_contradicts(row)).isEmpty()]
    return fallen.filter(~F.col(PARTITION).isin(misplaced)) if misplaced else fallen


def _contradicts(first: Row) -> str:
    """Return the SQL of an event at a higher position in an earlier life that the connector processed later."""
    lane = int(first[PARTITION])
    earlier = f"pmod({PARTITION}, {LANES}) = {lane % LANES} AND {PARTITION} < {lane}"
    return f"{earlier} AND {POSITION}.commit > {int(first['commit'])}BD AND {SENT} > {int(first['sent'])}"
