"""Order: one total order for the events of a key.

Streamed events sort by position. A snapshot read's position is not comparable with theirs: PostgreSQL records in it the log's position when
the snapshot was taken, which under load lies above streamed events that the read does not include
(docs/sources/postgresql.md#snapshot-position).
The archive's order is reliable: a connector emits a key's events in one partition, so a read is newer than what the partition holds before
it and older than what comes after it. Between two lanes (partitions, or lives of a topic) offsets do not compare, and positions decide; so
they do between two files without offsets.

A crashed connector sends its last records again: reads, and the streamed events behind them. The first delivery may lie in an earlier
microbatch, so a copy is recognised by its surroundings. A read below a commit that its lane streamed before it is a copy, as a log that
went back is recognised before events are ordered. A read behind which its lane repeats what stands before it is older than the repetition.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OP, ORDINAL, PARTITION, POSITION
from airflow_cdc.pipeline.spark import sql

ORDER = "__cdc_order"
"""struct<position, read int, tie int, ordinal>: sorts a key's events; ``read``: 1 for an event that the archive's order places; ``tie``: 0,
or what :mod:`airflow_cdc.pipeline.reconcile.settle_ties` found."""

IS_COPY = "is_copy"
"""boolean: whether an event is a redelivered copy of an earlier one."""
_PLACE, _STREAMED, _DIGEST = "__cdc_place", "__cdc_streamed", "__cdc_digest"
_PLACED = f"{OP} = 'r' AND ({ORDINAL}.offset IS NOT NULL OR {ORDINAL}.file IS NOT NULL)"
_RUN = f"{ORDINAL}.run"


def order_events(events: DataFrame, keys: Sequence[str], *, reads_among_changes: bool, change_restarts: bool) -> DataFrame:
    """Return the events with :data:`ORDER`.

    >>> #  offset  op  position        order
    >>> #       1   u        10   ->   (10, 0)
    >>> #       2   r        99        (10, 1)     its partition holds 20 behind it: only 10 stands before it
    >>> #       3   u        20        (20, 0)

    :param reads_among_changes: whether snapshot reads and streamed events may meet; costs a sort of each key's events.
    :param change_restarts: as :attr:`airflow_cdc.model.connectors.connector.PositionRule.change_restarts`; costs another.
    """
    placed = F.expr(_PLACED)
    events = events.withColumn(_PLACE, _raised(keys) if change_restarts else F.col(POSITION))
    position = F.col(_PLACE)
    if reads_among_changes:
        archived_before = (
            Window.partitionBy(*[F.col(sql.name(key)) for key in keys], F.col(PARTITION), F.col(_RUN))
            .orderBy(ORDINAL)
            .rowsBetween(Window.unboundedPreceding, -1)
        )
        archived_behind = archived_before.rowsBetween(1, Window.unboundedFollowing)
        streamed = F.expr(f"CASE WHEN {OP} <> 'r' THEN {_PLACE} END")
        before, behind = F.max(streamed).over(archived_before), F.min(streamed).over(archived_behind)
        # The read's own position compares with what other partitions hold; this partition's order takes precedence.
        fits = F.coalesce(before < F.col(POSITION), F.lit(True)) & F.coalesce(F.col(POSITION) <= behind, F.lit(True))  # noqa: FBT003
        # As rule.is_known_newer has it between microbatches.
        is_copy = F.col(POSITION)["commit"] < before["commit"]
        placed_at = F.when(fits | is_copy, F.col(POSITION)).when(behind <= before, _at_most_below(behind)).otherwise(before)
        # Of two reads, the one archived later is newer, whatever its position.
        up_to_here = archived_before.rowsBetween(Window.unboundedPreceding, Window.currentRow)
        events = events.withColumn(_STREAMED, F.when(placed, placed_at))
        streamed = F.max(_STREAMED).over(up_to_here)
        # A crashed connector sends its last records again, behind those that followed them. A read's copy includes no more than the read.
        of_read = (F.col(PARTITION), F.col(_RUN), F.col(POSITION))
        copies = Window.partitionBy(*[F.col(sql.name(key)) for key in keys], *of_read).orderBy(ORDINAL)
        events = events.withColumn(_STREAMED, streamed).withColumn(_STREAMED, F.first(_STREAMED).over(copies))
        # NULL, where no streamed event precedes the read, sorts below every position.
        position = F.when(placed, F.col(_STREAMED)).otherwise(position)
    return events.withColumn(ORDER, order_of(position, placed.cast("int"), ordinal=F.col(ORDINAL))).drop(_PLACE, _STREAMED)


def _raised(keys: Sequence[str]) -> Column:
    """Return the place of an event by which its run's events of one commit are in the archive's order: at least that of those before it."""
    of_commit = Window.partitionBy(*[F.col(sql.name(key)) for key in keys], F.col(PARTITION), F.expr(_RUN), F.expr(f"{POSITION}.commit"))
    up_to_here = of_commit.orderBy(ORDINAL).rowsBetween(Window.unboundedPreceding, Window.currentRow)
    change = F.max(F.expr(f"CASE WHEN {OP} <> 'r' THEN {POSITION}.change END")).over(up_to_here)
    raised = F.struct(F.expr(f"{POSITION}.commit AS commit"), change.alias("change"), F.lit(0).cast("bigint").alias("serial"))
    return F.when(F.col(OP) == "r", F.col(POSITION)).otherwise(raised)


def order_of(position: Column, read: Column, *, ordinal: Column, tie: Column | None = None) -> Column:
    """Return an :data:`ORDER`."""
    members = {"position": position, "read": read, "tie": F.lit(0) if tie is None else tie, "ordinal": ordinal}
    return F.struct(*[value.alias(name) for name, value in members.items()])


def _at_most_below(behind: Column) -> Column:
    """Return a read's position, but one that stands right before a streamed event where it would stand at or behind that."""
    below = F.struct(behind["commit"].alias("commit"), behind["change"].alias("change"), (behind["serial"] - 1).alias("serial"))
    return F.least(F.col(POSITION), below)


def shared_place(*, change_restarts: bool) -> str:
    """Return the SQL of what events have in common that may be copies, or in another order than that of their positions."""
    return f"{POSITION}.commit" if change_restarts else POSITION


def with_copies(events: DataFrame, keys: Sequence[str], content: Sequence[str], *, by: str = ORDER, change_restarts: bool) -> DataFrame:
    """Return the events with :data:`IS_COPY`.

    Several connectors give one position to all events of a transaction: only if all events of a key and position are equal, those after
    the first are copies of it. Otherwise each is an event of its own, in the archive's order: a connector that repeats some repeats all
    that follow, so that the last one is right (docs/explanation/exactness.md#position).

    :param content: columns of which equal events have equal values: operation and images.
    :param by: the column that orders them.
    :param change_restarts: as for :func:`order_events`.
    """
    at_position = Window.partitionBy(*[F.col(sql.name(key)) for key in keys], F.expr(shared_place(change_restarts=change_restarts)))
    digest = F.xxhash64(*[F.expr(comparable(events, name)) for name in content])
    numbered = events.withColumn(_DIGEST, digest).withColumn(IS_COPY, F.row_number().over(at_position.orderBy(by)) > 1)
    alike = F.min(_DIGEST).over(at_position) == F.max(_DIGEST).over(at_position)
    is_copy = F.col(IS_COPY) & alike
    if by == ORDER:
        is_copy = is_copy | (F.col(ORDER)["tie"] < 0)
    return numbered.withColumn(IS_COPY, is_copy).drop(_DIGEST)


def comparable(rows: DataFrame, name: str, alias: str = "") -> str:
    """Return the SQL of a column in a form that Spark compares and hashes.

    :param alias: of the rows; empty: none.
    """
    kind, column = rows.schema[name].dataType.simpleString(), f"{alias}.{sql.name(name)}" if alias else sql.name(name)
    return f"to_json(struct({column}))" if "map<" in kind or "variant" in kind else column


def gathered_in_order(events: DataFrame, event: Column) -> Column:
    """Return the aggregate that collects events (structs that begin with :data:`ORDER` as ``order``) into a sorted array."""
    gathered = F.collect_list(event)
    if not any(kind == "variant" for _, kind in events.dtypes):
        return F.array_sort(gathered)
    # Spark cannot sort a VARIANT, hence not the structs either.
    return F.array_sort(
        gathered, lambda one, other: F.when(one["order"] < other["order"], -1).when(one["order"] > other["order"], 1).otherwise(0)
    )
