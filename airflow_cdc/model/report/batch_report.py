"""BatchReport: what one microbatch did, in numbers that add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from airflow_cdc.model.archive.completeness import OffsetReport
from airflow_cdc.model.flow.column_origin import TypeReport
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.warn_above import WarnAbove
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.position.snapshot import Snapshot


@dataclass(frozen=True)
class EventCounts(JsonObject):
    """Outcome of every record read; the parts sum to ``read`` (docs/explanation/exactness.md#the-sum-of-counts)."""

    read: int = 0
    """Records in the microbatch's files for this flow."""
    merged: int = 0
    """Events that determined their key's row, or applied truncates."""
    superseded: int = 0
    """Events followed by a later event of the same key, or by a later truncate, in the same microbatch."""
    redelivered: int = 0
    """Copies of an event of this microbatch: same key, same position."""
    stale: int = 0
    """Events at or below the position that the target already holds for their key."""
    tombstones: int = 0
    """Records with a null value, which follow a delete."""
    control: int = 0
    """Events that are not about rows: transaction, heartbeat, schema change, logical message."""
    rejected: int = 0
    """Records set aside in the quarantine."""

    def accounted(self) -> int:
        """Return the sum of all counts except ``read``."""
        return sum(int(getattr(self, item.name)) for item in fields(self)) - self.read

    def __add__(self, other: EventCounts) -> EventCounts:
        return EventCounts(*(getattr(self, item.name) + getattr(other, item.name) for item in fields(self)))


@dataclass(frozen=True)
class RowCounts(JsonObject):
    """What the merge did to the target's rows."""

    inserted: int = 0
    updated: int = 0
    deleted: int = 0

    def __add__(self, other: RowCounts) -> RowCounts:
        return RowCounts(self.inserted + other.inserted, self.updated + other.updated, self.deleted + other.deleted)


_REQUIRED = (
    *("events", "rows", "applied_through", "truncated_through", "reach", "snapshot", "pending_snapshots", "replaced_by", "epochs"),
    *("columns_added", "columns_widened"),
)
"""Without one of these fields a checkpoint would lose what was applied."""


@dataclass(frozen=True)
class BatchReport(JsonObject, required=_REQUIRED):
    """What one microbatch of one flow did."""

    flow: str
    microbatch: int
    files: int
    bytes: int
    events: EventCounts = field(default_factory=EventCounts)
    rows: RowCounts = field(default_factory=RowCounts)
    rejects: dict[str, int] = field(default_factory=dict)
    """Rejected records by :class:`~airflow_cdc.model.errors.RejectReason`."""
    applied_through: dict[str, Position] = field(default_factory=dict)
    """Highest merged position by Kafka partition ("-" where the archive does not record it)."""
    committed_through: int | None = None
    """When the source committed the last merged event, in milliseconds since 1970; None where no event carries it."""
    truncated_through: dict[str, Position] = field(default_factory=dict)
    """By the source's table: position of the last truncate in the microbatch."""
    reach: Reach = field(default_factory=Reach)
    """Range of the log and of the archive that the merged events cover."""
    snapshot: Snapshot | None = None
    """The newest full snapshot that the flow has seen reads of. Its ``cut`` is the position before which missing rows are void."""
    pending_snapshots: tuple[Snapshot, ...] = ()
    """Older full snapshots that are not proven yet."""
    replaced_by: Snapshot | None = None
    """The last full snapshot that removed missing rows; events before it stay void."""
    rows_unconfirmed: int | None = None
    """Rows that the newest full snapshot did not find and that were kept. Set by the microbatch that shows its end; None otherwise, and
    where nothing stood before it."""
    epochs: Epochs = field(default_factory=Epochs)
    """Where epochs of the source's log begin, as known to the flow."""
    unpaired_moves: int = 0
    """Rows with unavailable values from a key whose delete is not in the microbatch, less those whose delete came now."""
    transactions_unjoined: int = 0
    """Keys of transactions that an earlier microbatch applied in part and that could not be joined: the file is gone from the archive."""
    asks_target: bool = False
    """Whether some events had unavailable values that only the target can supply."""
    unavailable_unresolved: int = 0
    """Rows merged with NULL for a value that neither an event nor a row carries."""
    moves_kept: int = 0
    """Key changes without all of the row's values that the microbatch wrote down: a late event under the old key may still bring them."""
    rows_not_found: int = 0
    """Rows that an update or a delete should have found and did not, in a flow that holds a full snapshot: at least so many. Not counted
    where late events came, and in a table that keeps deleted rows."""
    rows_missing: int = 0
    """For a table without a key: rows equal to the microbatch's that events removed and that are not known to have existed."""
    updates_without_old_key: int = 0
    """Updates without a before image, where the flow's keys are others than the records': a change of such a key cannot be seen in them."""
    order_conflicts: int = 0
    """Keys whose archive order contradicts their position order, redeliveries excluded."""
    columns_added: tuple[str, ...] = ()
    columns_renamed: dict[str, str] = field(default_factory=dict)
    """Columns that took the source's newer name, by the older one."""
    columns_widened: tuple[str, ...] = ()
    """Columns whose type was widened."""
    columns_as_text: tuple[str, ...] = ()
    """STRING columns that received the text of values of another type."""
    columns_filled: tuple[str, ...] = ()
    """Document columns that were filled for all rows, because the flow defines them newly or differently."""
    misfits: dict[str, int] = field(default_factory=dict)
    """By column: rows whose document holds a value that does not fit; it is NULL there."""
    types: dict[str, TypeReport] = field(default_factory=dict)
    """By column whose type the events do not carry: its type and where that comes from."""
    table_version: int | None = None
    """Delta version that the merge committed; None where nothing was to be merged."""
    merge_plan: str = ""
    """How the microbatch was written, and why."""
    engine: str = Engine.SPARK.value
    """The engine that decoded, folded and merged the microbatch: ``spark`` or ``native``; ``mixed``: the native engine decoded and folded
    it, and Spark merged it."""
    engine_reason: str = ""
    """Why the native engine did not take the microbatch, or did not merge it, where the flow allows it."""
    started_at: int | None = None
    """When the microbatch began, in milliseconds since 1970; None where the report was rebuilt from the table's history."""
    seconds: float = 0.0
    stage_seconds: dict[str, float] = field(default_factory=dict)
    """The parts of ``seconds``, in order: up to each effect (:mod:`airflow_cdc.pipeline.apply.apply_microbatch`), and ``count`` behind
    the last."""
    offsets: OffsetReport = field(default_factory=OffsetReport)
    """Kafka offsets that are missing, repeated, or not recorded in the files."""
    warn_above: WarnAbove = field(default_factory=WarnAbove)
    """From how much on the flow asked for a person's look."""

    @property
    def schema_changes(self) -> tuple[str, ...]:
        """What changed in the table's columns because the source's did, a line each."""
        return (
            *(f"column {name} added" for name in self.columns_added),
            *(f"column {old} renamed to {new}" for old, new in self.columns_renamed.items()),
            *(f"column {name} widened" for name in self.columns_widened),
            *(f"column {name} took values of another type, as text" for name in self.columns_as_text),
        )

    @property
    def summary(self) -> str:
        """One line of counts."""
        events, rows = self.events, self.rows
        names = ("merged", "superseded", "redelivered", "stale", "tombstones", "control", "rejected")
        counts = ", ".join(f"{count:,} {name}" for name in names if (count := getattr(events, name)))
        return f"{events.read:,} records = {counts or 'none'}; rows +{rows.inserted:,} ~{rows.updated:,} -{rows.deleted:,}"


def total_events(reports: Iterable[BatchReport]) -> EventCounts:
    """Return the sum of the reports' event counts."""
    return sum((report.events for report in reports), EventCounts())


def total_rows(reports: Iterable[BatchReport]) -> RowCounts:
    """Return the sum of the reports' row counts."""
    return sum((report.rows for report in reports), RowCounts())
