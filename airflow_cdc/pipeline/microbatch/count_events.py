"""Count a microbatch's records, so that the report's parts add up to the survey's count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import reduce

from pyspark.sql import Column, DataFrame, Row
from pyspark.sql import functions as F

from airflow_cdc.model.archive.survey import CONTROL_KINDS, RecordKind, TopicShape
from airflow_cdc.model.columns import COMMITTED_AT, KIND, OFFSET, OP, PARTITION, POSITION, REJECT, UNAVAILABLE, VALUE_POSITIONS
from airflow_cdc.model.connectors.registry import without_database
from airflow_cdc.model.errors import TruncateRefusedError
from airflow_cdc.model.flow.policies import OnTruncate
from airflow_cdc.model.operation import KEEP, ROW_OPERATIONS, Operation
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.decode.place_of_row import partition_of, position_of
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import CONFLICTS, EVENTS, IS_HAZARD, REACH, REDELIVERED
from airflow_cdc.pipeline.reconcile.value_positions import HAS_UNKNOWN
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.key_range import KeyRange, ends, key_ranges

TABLE_OF_EVENT = f"""concat_ws('.', {in_line("source.name")},
    if({in_line("source.connector")} IN ({", ".join(map(sql.text, without_database()))}), NULL, {in_line("source.db")}),
    {in_line("source.schema")}, {in_line("source.table")})"""
"""SQL of the table that an event names, in the form of :attr:`airflow_cdc.model.archive.survey.TopicShape.table`."""


@dataclass(frozen=True, kw_only=True)
class Surveyed:
    """The survey's own count of a microbatch's records, by kind."""

    read: int = 0
    rows: int = 0
    """Create, read, update and delete events."""
    reads: int = 0
    """Those from a snapshot."""
    truncates: int = 0
    tombstones: int = 0
    control: int = 0
    broken: int = 0
    """Lines that are not JSON or not a change event."""

    @property
    def to_account_for(self) -> int:
        """Number of records that are events, or should be: taken in, or rejected."""
        return self.rows + self.truncates + self.broken

    @property
    def is_mixed(self) -> bool:
        """Whether snapshot reads and streamed events may meet."""
        return 0 < self.reads < self.rows


def count_surveyed(shapes: Iterable[TopicShape]) -> Surveyed:
    """Return the survey's count of a microbatch's records."""
    by_kind: dict[str, int] = {}
    for shape in shapes:
        by_kind[shape.kind] = by_kind.get(shape.kind, 0) + shape.records
    return count_kinds(by_kind)


def count_kinds(by_kind: Mapping[str, int]) -> Surveyed:
    """Return the count of records by kind."""
    control = [*(kind.value for kind in CONTROL_KINDS), Operation.MESSAGE.value]
    return Surveyed(
        read=sum(by_kind.values()),
        rows=sum(by_kind.get(operation.value, 0) for operation in ROW_OPERATIONS),
        reads=by_kind.get(Operation.READ.value, 0),
        truncates=by_kind.get(Operation.TRUNCATE.value, 0),
        tombstones=by_kind.get(RecordKind.TOMBSTONE.value, 0),
        control=sum(by_kind.get(kind, 0) for kind in control),
        broken=by_kind.get(RecordKind.MALFORMED.value, 0) + by_kind.get(RecordKind.UNKNOWN.value, 0),
    )


@dataclass(frozen=True, kw_only=True)
class Truncates:
    """The truncate events of a microbatch."""

    good: int = 0
    """Those with a position."""
    ignored: int = 0
    """Those ignored by the flow's policy."""
    stale: int = 0
    """Those at or before a truncate that was applied earlier."""
    through: Mapping[str, Position] = field(default_factory=dict)
    """By the source's table: position of the last one to apply."""
    reach: Reach = field(default_factory=Reach)
    """Their extent in lanes, positions and offsets."""
    committed_micros: Mapping[str, int] = field(default_factory=dict)
    """By table: commit time in the source, in microseconds since 1970, where the event carries one."""


def find_truncates(events: DataFrame, surveyed: Surveyed, tables: PhysicalTables, *, applied: Mapping[str, Position]) -> Truncates:
    """Return the microbatch's truncates; costs a job only where the survey saw any.

    :param applied: by table: position of the last truncate that an earlier microbatch applied.
    :raises TruncateRefusedError: when the flow's policy is to stop, or when the target holds rows of several tables without naming them.
    """
    flow = tables.flow
    if not surveyed.truncates:
        return Truncates()
    good = events.filter((F.col(KIND) == Operation.TRUNCATE.value) & F.col(REJECT).isNull())
    place = (PARTITION, OFFSET, f"unix_micros({COMMITTED_AT}) AS micros", f"{TABLE_OF_EVENT} AS table")
    found = good.selectExpr(f"{POSITION}.*", *place).collect()
    positions = sorted(position_of(row) for row in found)
    if positions and flow.on_truncate is OnTruncate.FAIL:
        raise TruncateRefusedError(
            f"Flow {flow.name}: the source truncated the table at position {positions[-1]}, and the flow's policy is to stop.",
            next_step="Set on_truncate to 'apply' or 'ignore' in the flows file and run again.",
        )
    if flow.on_truncate is OnTruncate.IGNORE:
        return Truncates(good=len(positions), ignored=len(positions))
    if positions and tables.are_several and not tables.are_distinct:
        raise TruncateRefusedError(
            f"Flow {flow.name}: the source truncated {sorted({row['table'] or 'a table' for row in found})} at position {positions[-1]};"
            f" the topic holds the tables {sorted(tables.names)}, and no column of the target names the table of a row.",
            next_step=f"{tables.way_to_name_tables}, or set on_truncate to 'ignore'; run again.",
        )
    through: dict[str, Position] = {}
    micros: dict[str, int] = {}
    stale = 0
    for row in sorted(found, key=position_of):
        table, position = row["table"] or "", position_of(row)
        if table in applied and position <= applied[table]:
            stale += 1
            continue
        through[table] = position
        if row["micros"] is not None:
            micros[table] = row["micros"]
    reach = reduce(Reach.__or__, (_reach_of_truncate(row) for row in found), Reach())
    return Truncates(good=len(positions), stale=stale, through=through, reach=reach, committed_micros=micros)


def _reach_of_truncate(row: Row) -> Reach:
    lane, position, offset = partition_of(row), position_of(row), row[OFFSET]
    offsets = {} if offset is None else {lane: int(offset)}
    places = {lane: position}
    return Reach(streamed_from=places, streamed_through=places, offset_from=offsets, offset_through=offsets, partitions=frozenset({lane}))


@dataclass(frozen=True, kw_only=True)
class Staged:
    """Counts and extent of a microbatch's reconciled row changes."""

    events: int = 0
    keys: int = 0
    redelivered: int = 0
    conflicts: int = 0
    cancelled: int = 0
    """Keys whose last event precedes a truncate of the same microbatch."""
    shielded: int = 0
    """Keys whose last event precedes a truncate that was applied earlier."""
    has_deletes: bool = False
    """Whether any event of a live key is a delete."""
    last: dict[str, Position] = field(default_factory=dict)
    """Highest live position by Kafka partition."""
    reach: Reach = field(default_factory=Reach)
    """Extent of the live events."""
    to_delete: int = 0
    """Live keys that are deleted, and whose first event here is an update or a delete: the target should hold them."""
    to_insert: int = 0
    """Live keys that are left, and whose first event here is a create or a read: the target need not hold them."""
    unknown: int = 0
    """Live keys with a value that neither the microbatch nor the row moved here provides."""
    left_out: tuple[str, ...] = ()
    """Columns that at least one live row change leaves out."""
    committed_through: int | None = None
    """Commit time in the source of the last live event, in milliseconds since 1970; None where no event carries one."""
    from_older_events: tuple[str, ...] = ()
    """Columns that at least one live row change has only from an event older than its last."""
    falls: bool = False
    """Whether a lane's last archived event is below another one of the lane."""
    hazards: int = 0
    """Keys with a :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.HAZARD`, if requested."""
    ranges: tuple[KeyRange, ...] = ()
    """Ranges that contain all row changes, for the requested key columns."""

    @property
    def live(self) -> int:
        """Number of keys that no truncate affects."""
        return self.keys - self.cancelled - self.shielded


@dataclass(frozen=True, kw_only=True)
class Counted:
    """All counts of a microbatch."""

    surveyed: Surveyed
    truncates: Truncates = field(default_factory=Truncates)
    staged: Staged = field(default_factory=Staged)


def count_staged(
    staged: DataFrame,
    *,
    cancelled: str,
    shielded: str,
    names_transactions: bool = False,
    and_hazards: bool = False,
    ranged: Mapping[str, str] | None = None,
) -> Staged:
    """Return the sums over the row changes, in one job.

    :param cancelled: SQL that is true for a change that a truncate or snapshot of this microbatch makes void.
    :param shielded: as above, of an earlier microbatch.
    :param names_transactions: whether :data:`~airflow_cdc.pipeline.reconcile.keep_latest_per_key.REACH` carries transaction identifiers.
    :param and_hazards: whether the rows mark the keys that have a hazard.
    :param ranged: types of the key columns whose range is requested.
    """
    ranged = ranged or {}
    judged = staged.withColumns({"shielded": F.expr(shielded), "cancelled": F.expr(cancelled)})
    live = ~F.col("shielded") & ~F.col("cancelled")
    more = [
        (F.count_if(F.expr(IS_HAZARD)) if and_hazards else F.lit(0)).alias("hazards"),
        (_outer_transactions(live) if names_transactions else F.array()).alias("outer_transactions"),
        *ends(ranged),
    ]
    rows = judged.groupBy(PARTITION).agg(*_sums(live), *_ends_of_live(live), *more).collect()
    sums = {
        name: sum(row[name] or 0 for row in rows)
        for name in ("events", "keys", "redelivered", "conflicts", "shielded", "cancelled", "unknown", "hazards", "to_delete", "to_insert")
    }
    return Staged(
        **sums,
        has_deletes=any(row["has_deletes"] for row in rows),
        last=_by_partition(rows, "last"),
        reach=_reach_of(rows),
        committed_through=max((row["committed_through"] for row in rows if row["committed_through"] is not None), default=None),
        left_out=_names(rows, "left_out"),
        from_older_events=_names(rows, "from_older_events"),
        falls=any(
            row["tail"] is not None and position_of(row["tail"]).commit < position_of(row["streamed_through"]).commit for row in rows
        ),
        ranges=key_ranges(ranged, rows),
    )


def _sums(live: Column) -> list[Column]:
    """Return the counts and collected values over row changes."""
    return [
        F.sum(EVENTS).alias("events"),
        F.count("*").alias("keys"),
        F.sum(REDELIVERED).alias("redelivered"),
        F.sum(CONFLICTS).alias("conflicts"),
        F.count_if(F.col("shielded")).alias("shielded"),
        F.count_if(F.col("cancelled") & ~F.col("shielded")).alias("cancelled"),
        F.max(live & F.col(REACH)["deletes"]).alias("has_deletes"),
        F.count_if(live & F.col(REACH)["expects"] & (F.col(OP) == "d")).alias("to_delete"),
        F.count_if(live & ~F.col(REACH)["expects"] & ~F.col(OP).isin("d", KEEP)).alias("to_insert"),
        F.count_if(live & F.expr(HAS_UNKNOWN)).alias("unknown"),
        F.array_distinct(F.flatten(F.collect_set(F.when(live, F.col(UNAVAILABLE))))).alias("left_out"),
        F.array_distinct(F.flatten(F.collect_set(F.when(live, F.col(VALUE_POSITIONS)["column"])))).alias("from_older_events"),
    ]


def _ends_of_live(live: Column) -> list[Column]:
    """Return the lowest and highest places of live row changes."""
    return [
        F.max(F.when(live, F.col(POSITION))).alias("last"),
        F.min(F.when(live, F.col(REACH)["first"])).alias("streamed_from"),
        F.max(F.when(live, F.col(REACH)["last"])).alias("streamed_through"),
        F.max_by(F.when(live, F.col(REACH)["last"]), F.when(live & F.col(REACH)["last"].isNotNull(), F.col(REACH)["last_offset"])).alias(
            "tail"
        ),
        F.min(F.when(live, F.col(REACH)["first_offset"])).alias("offset_from"),
        F.max(F.when(live, F.col(REACH)["last_offset"])).alias("offset_through"),
        F.max(F.when(live, F.unix_millis(COMMITTED_AT))).alias("committed_through"),
    ]


def _reach_of(rows: Sequence[Row]) -> Reach:
    return Reach(
        streamed_from=_by_partition(rows, "streamed_from"),
        streamed_through=_by_partition(rows, "streamed_through"),
        offset_from={partition_of(row): row["offset_from"] for row in rows if row["offset_from"] is not None},
        offset_through={partition_of(row): row["offset_through"] for row in rows if row["offset_through"] is not None},
        partitions=frozenset(partition_of(row) for row in rows if row["last"] is not None),
        outer_transactions={partition_of(row): tuple(sorted(set(row["outer_transactions"]))) for row in rows if row["outer_transactions"]},
    )


def _outer_transactions(live: Column) -> Column:
    """Return the identifiers of the first and the last transaction of live row changes."""
    first, last = (
        pick(F.when(live, F.col(REACH)[f"{end}_transaction"]), F.when(live, F.col(REACH)[end]))
        for pick, end in ((F.min_by, "first"), (F.max_by, "last"))
    )
    return F.array_compact(F.array(first, last))


def _names(rows: Iterable[Row], name: str) -> tuple[str, ...]:
    return tuple(sorted({column for row in rows for column in row[name]}))


def _by_partition(rows: Iterable[Row], name: str) -> dict[str, Position]:
    return {partition_of(row): position_of(row[name]) for row in rows if row[name] is not None}
