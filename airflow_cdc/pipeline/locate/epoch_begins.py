"""Begins of epochs of the source's log, found in events: decoded ones in a run, raw ones in a search of the archive.

Events have the columns of :meth:`airflow_cdc.pipeline.decode.decode_events.Decoder.events`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from pyspark.sql import Column, DataFrame, Row, Window
from pyspark.sql import functions as F

from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets, OffsetGap
from airflow_cdc.model.columns import FILE, KIND, OFFSET, OP, ORDINAL, PARTITION, POSITION, REJECT, SNAPSHOT
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import LANES
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.decode.lanes import is_lane
from airflow_cdc.pipeline.decode.place_of_row import partition_of, position_of

OF_LOG = f"{REJECT} IS NULL AND {KIND} IN ('r', 'c', 'u', 'd', 't')"
"""SQL over an event: whether it has a position in the source's log."""
IS_READ = "__cdc_is_read"
"""boolean: whether the event is a full snapshot's read."""
HIGHEST = "__cdc_highest"
"""decimal(38,0): the highest commit that precedes the event in its partition."""
SENT = "__cdc_sent"
"""bigint: when the connector processed the event, in milliseconds since 1970 by its own clock; NULL if unknown."""
CONTENT = "__cdc_content"
"""bigint: a hash of the event's images as text. In a log that went back, an event of a key may get the position of an older one."""
_DELIVERY = "__cdc_delivery"


def sent() -> Column:
    """Return :data:`SENT` of an event."""
    return F.expr(f"try_cast({in_line('ts_ms')} AS BIGINT)").alias(SENT)


def content() -> Column:
    """Return :data:`CONTENT` of an event."""
    return F.expr(f"xxhash64({in_line('before')}, {in_line('after')})").alias(CONTENT)


def fallen_events(events: DataFrame, keys: Sequence[str], known: str | None = None) -> DataFrame:
    """Return the first deliveries of streamed events and full snapshots' reads that follow a higher position in their partition.

    A later life of the topic follows the earlier ones.

    :param keys: SQL names of the columns that, with the position and the images, identify an event.
    :param known: SQL of the highest commit known to precede an event, from outside these events; None if there is none.
    """
    partition, life = F.expr(f"pmod({PARTITION}, {LANES})"), F.expr(f"floor({PARTITION} / {LANES})")
    in_partition = Window.partitionBy(partition).orderBy(life, ORDINAL).rowsBetween(Window.unboundedPreceding, -1)
    is_read = f"{KIND} = 'r'"
    of_log = events.filter(f"{OF_LOG} AND NOT ({is_read} AND {SNAPSHOT} <=> 'incremental')")
    highest = F.max(F.expr(f"CASE WHEN NOT {is_read} THEN {POSITION}.commit END")).over(in_partition)
    by_event = Window.partitionBy(*keys, partition, POSITION, KIND, CONTENT).orderBy(life, ORDINAL)
    named = (*keys, POSITION, OP, KIND, PARTITION, OFFSET, ORDINAL, FILE)
    placed = of_log.select(*named, F.expr(is_read).alias(IS_READ), sent(), content())
    placed = placed.withColumn(HIGHEST, F.greatest(highest, F.expr(known)) if known else highest)
    placed = placed.withColumn(_DELIVERY, F.row_number().over(by_event))
    return placed.filter(f"{_DELIVERY} = 1 AND {POSITION}.commit < {HIGHEST}").drop(_DELIVERY)


def without_delivered(events: DataFrame, delivered: DataFrame, keys: Sequence[str]) -> DataFrame:
    """Return the events that are no copies of delivered ones: of another key, position, kind or :data:`CONTENT`."""
    identity = (*keys, POSITION, KIND, CONTENT)
    known = delivered.select(*identity).distinct()
    same = " AND ".join(f"s.{name} <=> k.{name}" for name in identity)
    return events.alias("s").join(known.alias("k"), F.expr(same), "left_anti")


def first_by_lane(fallen: DataFrame) -> dict[str, Row]:
    """Return the first event of each lane."""
    places = fallen.groupBy(PARTITION).agg(F.min_by(F.struct("*"), ORDINAL).alias("first")).collect()
    return {partition_of(row): row["first"] for row in places}


def open_gaps(firsts: Mapping[str, Row], offsets: ArchivedOffsets, topic: str, pending: Sequence[FileOffsets] = ()) -> list[OffsetGap]:
    """Return the missing offsets that may hold the first deliveries of events below a higher position.

    :param pending: files of which only a part is applied.

    None where one lane misses no offset: the log went back there, and so for all lanes.
    """
    found: list[OffsetGap] = []
    for lane, first in sorted(firsts.items()):
        # A value has its file's first offset.
        offset = None if lane == UNKNOWN_PARTITION else first[ORDINAL]["offset"]
        missing = [] if offset is None else _not_applied(int(lane), offset, topic, offsets=offsets, pending=pending)
        if not missing:
            return []
        found += missing
    return found


def _not_applied(lane: int, below: int, topic: str, *, offsets: ArchivedOffsets, pending: Sequence[FileOffsets]) -> list[OffsetGap]:
    rests = (item for item in pending if item.partition == lane and item.first < below)
    found = [OffsetGap(topic, lane, item.first, item.last, after=item.file, before=item.file) for item in rests]
    return [*offsets.missing_below(topic, lane, below), *found]


def with_next_epoch(events: DataFrame, epochs: Epochs, firsts: Mapping[str, Row]) -> Epochs:
    """Return the epochs with a new one, which begins in each lane at its first event that follows a higher position."""
    begins = {lane: int(first[ORDINAL]["offset"]) for lane, first in firsts.items()}
    sent_ms = {lane: first[SENT] for lane, first in firsts.items()}
    found = epochs.beginning(begins, sent_ms)
    reads = {position_of(first[POSITION]).commit: found.of(lane) for lane, first in firsts.items() if first[IS_READ]}
    read_too = _begins_of(events, reads) if reads else {}
    others = {lane: place for lane, place in read_too.items() if lane not in begins and found.of(lane) < place[1]}
    return found.joined({**_joining(events, found, {*begins, *others}), **others})


def with_new_lanes(events: DataFrame, epochs: Epochs, lanes: Collection[str]) -> Epochs:
    """Return the epochs with new lanes: each begins in the epoch in which its first event was processed."""
    if not (lanes and epochs.since_ms):
        return epochs
    listed = " OR ".join(is_lane(lane) for lane in sorted(lanes))
    rows = events.filter(f"{OF_LOG} AND ({listed})").select(PARTITION, sent()).groupBy(PARTITION).agg(F.min(SENT).alias("first")).collect()
    begins = {lane: places for lane, places in epochs.begins.items() if lane not in lanes}
    places = {partition_of(row): (0, epochs.at(row["first"])) for row in rows}
    return replace(epochs, begins=begins).joined(places)


def _begins_of(events: DataFrame, epochs: Mapping[int, int]) -> dict[str, tuple[int, int]]:
    """Return by lane the first offset of reads at the given commits, and their epoch: one snapshot reads all lanes at one position.

    :param epochs: by commit.
    """
    wanted = ", ".join(f"{commit}BD" for commit in sorted(epochs))
    reads = events.filter(f"{REJECT} IS NULL AND {KIND} = 'r' AND {POSITION}.commit IN ({wanted})")
    first = F.min_by(F.struct(F.col(ORDINAL)["offset"].alias("offset"), F.col(POSITION)["commit"].alias("commit")), ORDINAL)
    rows = [(partition_of(row), row["first"]) for row in reads.groupBy(PARTITION).agg(first.alias("first")).collect()]
    return {lane: (int(row["offset"]), epochs[int(row["commit"])]) for lane, row in rows if row["offset"] is not None}


def _joining(events: DataFrame, epochs: Epochs, others: Collection[str]) -> dict[str, tuple[int, int]]:
    """Return by lane the first offset that the connector processed after the log went back, and the epoch.

    The positions of a quiet or a new lane need not fall. Yet whatever the connector sent later is of the new epoch. The
    envelope's ``ts_ms`` is the connector's clock, not the source's.

    :param others: lanes whose begin is known.
    """
    since = epochs.since_ms.get(epochs.newest)
    if since is None:
        return {}
    timed = events.filter(OF_LOG).select(PARTITION, F.col(ORDINAL)["offset"].alias("offset"), sent())
    rows = timed.filter(F.col(SENT) > since).groupBy(PARTITION).agg(F.min("offset").alias("begin")).collect()
    places = {partition_of(row): int(row["begin"]) for row in rows if row["begin"] is not None}
    lagging = {lane for lane in places if lane not in others and epochs.of(lane) < epochs.newest}
    return {lane: (places[lane], epochs.newest) for lane in lagging}
