"""BatchReport: what one microbatch did, in numbers that add up."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields

from airflow_cdc.model.archive.completeness import OffsetReport
from airflow_cdc.model.flow.column_origin import TypeReport
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.position.snapshot import Snapshot


@dataclass(frozen=True)
class EventCounts(JsonObject):
    """Where every record that was read went; the parts sum to ``read`` (docs/explanation/exactness.md#the-sum-of-counts)."""

    read: int = 0
    """Records in the microbatch's files for this flow."""
    merged: int = 0
    """Events whose outcome is the row change of their key, or a truncate that was applied."""
    superseded: int = 0
    """Events followed by a later one of the same key, or cancelled by a later truncate, in the same microbatch."""
    redelivered: int = 0
    """Copies of an event of this microbatch: same key, same position."""
    stale: int = 0
    """Events at or below what the target already holds for their key."""
    tombstones: int = 0
    """Null values that follow a delete."""
    control: int = 0
    """Events that are not about rows: transaction, heartbeat, schema change, logical message."""
    rejected: int = 0
    """Records set aside in the quarantine."""

    def accounted(self) -> int:
        """Return the sum of the parts."""
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
"""Without one of them a checkpoint would forget what was applied."""


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
    """Highest merged position by Kafka partition ("-" where the archive does not tell it)."""
    committed_through: int | None = None
    """When the source committed the last merged event, in milliseconds since 1970; None where no event tells."""
    truncated_through: dict[str, Position] = field(default_factory=dict)
    """By the source's table: position of the last truncate in the microbatch."""
    reach: Reach = field(default_factory=Reach)
    """Where the merged events stand in the log and in the archive."""
    snapshot: Snapshot | None = None
    """The newest full snapshot that the flow has seen reads of; its ``cut`` is what vanished before it."""
    pending_snapshots: tuple[Snapshot, ...] = ()
    """Older full snapshots that are not proven to be whole yet."""
    replaced_by: Snapshot | None = None
    """The last full snapshot that removed the rows which it did not find; what stands before it stays void."""
    rows_unconfirmed: int | None = None
    """Rows that the newest full snapshot did not find and that were kept; None where no later snapshot came to its end."""
    epochs: Epochs = field(default_factory=Epochs)
    """Where epochs of the source's log begin, as far as the flow knows them."""
    unpaired_moves: int = 0
    """Rows with untold values that came from a key whose delete is not in the microbatch, less those for which it came now."""
    transactions_unjoined: int = 0
    """Keys whose transaction an earlier microbatch applied in part, and could not be put together: its file is gone from the archive."""
    asks_target: bool = False
    """Whether some events did not tell a value, so that it was the target's to tell."""
    unavailable_unresolved: int = 0
    """Rows merged with a NULL in place of a value that no event and no row tells."""
    rows_missing: int = 0
    """Of a table without a key: rows like those of the microbatch that events took, and that are not known to have been there."""
    order_conflicts: int = 0
    """Keys whose archive order contradicts their position order without being a redelivery."""
    columns_added: tuple[str, ...] = ()
    columns_renamed: dict[str, str] = field(default_factory=dict)
    """Columns of the table that took the source's newer name, by the older one."""
    columns_widened: tuple[str, ...] = ()
    """Columns that took a wider type."""
    columns_as_text: tuple[str, ...] = ()
    """Columns of the table that are STRING and got the text of values of another type."""
    columns_filled: tuple[str, ...] = ()
    """Columns that were taken out of the documents of all rows, because the flow defines them anew or otherwise."""
    misfits: dict[str, int] = field(default_factory=dict)
    """By column: rows of which the document tells a value that does not fit it, so that it is NULL there."""
    types: dict[str, TypeReport] = field(default_factory=dict)
    """By column whose type the events do not carry themselves: what it is, and who says so."""
    table_version: int | None = None
    """Delta version that the merge committed; None where nothing was to be merged."""
    merge_plan: str = ""
    """The way that was chosen to write, and why."""
    seconds: float = 0.0
    offsets: OffsetReport = field(default_factory=OffsetReport)
    """Kafka offsets that are missing, that came again, or that the files do not tell."""


def total_events(reports: Iterable[BatchReport]) -> EventCounts:
    """Return the sum of the reports' event counts."""
    return sum((report.events for report in reports), EventCounts())


def total_rows(reports: Iterable[BatchReport]) -> RowCounts:
    """Return the sum of the reports' row counts."""
    return sum((report.rows for report in reports), RowCounts())
