"""Where an epoch of the source's log begins, as events show it: a run asks it of decoded ones, a look at the archive of raw ones.

Events have the columns that :meth:`airflow_cdc.pipeline.decode.decode_events.Decoder.events` returns.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import FILE, KIND, OFFSET, OP, ORDINAL, PARTITION, POSITION, REJECT, SNAPSHOT
from airflow_cdc.model.epochs import Epochs
from airflow_cdc.model.lives import LANES
from airflow_cdc.pipeline.count_events import partition_of, position_of
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.decode.lanes import is_lane

OF_LOG = f"{REJECT} IS NULL AND {KIND} IN ('r', 'c', 'u', 'd', 't')"
"""SQL over an event: whether it has a place in the source's log."""
IS_READ = "__cdc_is_read"
"""boolean: whether the event is a full snapshot's read."""
HIGHEST = "__cdc_highest"
"""decimal(38,0): the commit behind which the event stands."""
SENT = "__cdc_sent"
"""bigint: when the connector processed the event, in milliseconds since 1970 by its own clock; NULL where it does not say."""
_DELIVERY = "__cdc_delivery"


def sent() -> Column:
    """Return :data:`SENT` of an event."""
    return F.expr(f"try_cast({in_line('ts_ms')} AS BIGINT)").alias(SENT)


def fallen_events(events: DataFrame, keys: Sequence[str], known: str | None = None) -> DataFrame:
    """Return the first deliveries of streamed events and full snapshots' reads that their partition holds behind a higher position.

    A later life of the topic stands behind the earlier ones.

    :param keys: SQL names of the columns that, with the position, identify an event.
    :param known: SQL of the highest commit that is known to stand before an event beside these events; None where nothing is.
    """
    partition, life = F.expr(f"pmod({PARTITION}, {LANES})"), F.expr(f"floor({PARTITION} / {LANES})")
    in_partition = Window.partitionBy(partition).orderBy(life, ORDINAL).rowsBetween(Window.unboundedPreceding, -1)
    is_read = f"{KIND} = 'r'"
    of_log = events.filter(f"{OF_LOG} AND NOT ({is_read} AND {SNAPSHOT} <=> 'incremental')")
    highest = F.max(F.expr(f"CASE WHEN NOT {is_read} THEN {POSITION}.commit END")).over(in_partition)
    by_event = Window.partitionBy(*keys, partition, POSITION, KIND).orderBy(life, ORDINAL)
    placed = of_log.select(*keys, POSITION, OP, KIND, PARTITION, OFFSET, ORDINAL, FILE, F.expr(is_read).alias(IS_READ), sent())
    placed = placed.withColumn(HIGHEST, F.greatest(highest, F.expr(known)) if known else highest)
    placed = placed.withColumn(_DELIVERY, F.row_number().over(by_event))
    return placed.filter(f"{_DELIVERY} = 1 AND {POSITION}.commit < {HIGHEST}").drop(_DELIVERY)


def first_by_lane(fallen: DataFrame) -> dict[str, Row]:
    """Return by lane the first of some events."""
    places = fallen.groupBy(PARTITION).agg(F.min_by(F.struct("*"), ORDINAL).alias("first")).collect()
    return {partition_of(row): row["first"] for row in places}


def with_next_epoch(events: DataFrame, epochs: Epochs, firsts: Mapping[str, Row]) -> Epochs:
    """Return the epochs with the one that begins at the first event of each lane that stands behind a higher position."""
    begins = {lane: int(first[ORDINAL]["offset"]) for lane, first in firsts.items()}
    reads = {position_of(first[POSITION]).commit for first in firsts.values() if first[IS_READ]}
    if reads:
        begins = {**_begins_of(events, reads), **begins}
    return epochs.beginning({**_joining(events, begins), **begins})


def _begins_of(events: DataFrame, commits: set[int]) -> dict[str, int]:
    """Return by lane the first offset of reads at some commits: one snapshot reads all lanes at one position."""
    wanted = ", ".join(f"{commit}BD" for commit in sorted(commits))
    reads = events.filter(f"{REJECT} IS NULL AND {KIND} = 'r' AND {POSITION}.commit IN ({wanted})")
    rows = reads.groupBy(PARTITION).agg(F.min(F.col(ORDINAL)["offset"]).alias("begin")).collect()
    return {partition_of(row): int(row["begin"]) for row in rows if row["begin"] is not None}


def _joining(events: DataFrame, begins: Mapping[str, int]) -> dict[str, int]:
    """Return by lane the first offset that the connector processed after it met the log that went back.

    Positions of another lane need not fall: it was quiet, or is new. What the connector sent later is of the new epoch all the same; the
    envelope's ``ts_ms`` is its own clock, not the source's.
    """
    timed = events.filter(OF_LOG).select(PARTITION, F.col(ORDINAL)["offset"].alias("offset"), sent())
    here = " OR ".join(f"({is_lane(lane)} AND offset >= {offset})" for lane, offset in sorted(begins.items()))
    met = timed.filter(here).agg(F.min(SENT)).collect()[0][0]
    if met is None:
        return {}
    rows = timed.filter(F.col(SENT) > met).groupBy(PARTITION).agg(F.min("offset").alias("begin")).collect()
    return {lane: int(row["begin"]) for row in rows if (lane := partition_of(row)) not in begins and row["begin"] is not None}
