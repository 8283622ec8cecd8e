"""FlowCheckpoint: how far a flow has applied its archives, derived from its commit markers in order."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TypeVar

from airflow_cdc.model.archive.completeness import ArchivedOffsets
from airflow_cdc.model.places import place_at
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.report.findings import Finding
from airflow_cdc.model.report.health import FlowHealth
from airflow_cdc.model.state.microbatch import HeldFile, Microbatch, PlanPosition

_Kept = TypeVar("_Kept")


_REQUIRED = (
    *("number", "planned", "applied_through", "truncated_through", "events", "table", "table_version", "reach"),
    *("snapshot", "pending_snapshots", "replaced_by", "epochs", "unpaired_moves", "tables"),
)
"""Without one of these fields files would be applied again, or late events pass for new ones."""


@dataclass(frozen=True)
class FlowCheckpoint(JsonObject, required=_REQUIRED):
    """State of a flow after its last committed microbatch."""

    flow: str
    number: int = 0
    """Number of the last committed microbatch."""
    planned: dict[str, PlanPosition] = field(default_factory=dict)
    """By archive root: how far its surveys are applied."""
    applied_through: dict[str, Position] = field(default_factory=dict)
    """Highest merged position by Kafka partition."""
    truncated_through: dict[str, Position] = field(default_factory=dict)
    """By the source's table: position of the last applied truncate; older events of it are stale."""
    events: EventCounts = field(default_factory=EventCounts)
    """Sums since the flow began."""
    table: str | None = None
    """The target table, as :func:`airflow_cdc.model.places.place_in` keeps it; None before the first microbatch."""
    table_version: int | None = None
    held: dict[str, tuple[HeldFile, ...]] = field(default_factory=dict)
    """By archive root: files before ``planned`` that wait, wholly or in part, for missing offsets or a transaction."""
    offsets: dict[str, ArchivedOffsets] = field(default_factory=dict)
    """By archive root: Kafka offsets of the applied files."""
    reach: Reach = field(default_factory=Reach)
    """Range of the log and of the archive that the applied events cover."""
    snapshot: Snapshot | None = None
    """The newest full snapshot with applied reads."""
    pending_snapshots: tuple[Snapshot, ...] = ()
    """Older full snapshots that are not proven yet."""
    replaced_by: Snapshot | None = None
    """The last full snapshot that removed missing rows."""
    epochs: Epochs = field(default_factory=Epochs)
    """Where epochs of the source's log begin."""
    unpaired_moves: int = 0
    """Rows from a key whose delete has not come yet."""
    tables: frozenset[str] = frozenset()
    """The source's tables that the applied events name."""
    committed_through: int | None = None
    """When the source committed the last applied event, in milliseconds since 1970; None where no event carries it."""
    surveyed: dict[str, str] = field(default_factory=dict)
    """By archive root: digest of the last survey that ``planned`` reaches into."""
    logs: frozenset[str] = frozenset()
    """The source's logs that the applied events name."""
    moves_kept: int = 0
    """Key changes that were written down, since the flow began: 0 where no late event can concern a row under another key."""
    health: FlowHealth = field(default_factory=FlowHealth)
    """Counts of the last days that may need a person's look."""

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What of the flow needs a person's look, as of now."""
        return self.health.findings(self.flow, is_undecided=bool(self.undecided_snapshots))

    def table_in(self, lake: str) -> str | None:
        """Return the URI of the target table, in the lake whose state this is; None before the first microbatch."""
        return place_at(lake, self.table) if self.table else None

    def plan(self, archive: str) -> tuple[PlanPosition, tuple[HeldFile, ...]]:
        """Return how far an archive's surveys are applied, and the earlier files that wait."""
        return self.planned.get(archive, PlanPosition()), self.held.get(archive, ())

    @property
    def undecided_snapshots(self) -> tuple[Snapshot, ...]:
        """Full snapshots whose missing rows await a decision, the oldest first."""
        shield, known = self.replaced_by, sorted(self.known_snapshots.items())
        return tuple(each for position, each in known if each.is_undecided and not (shield and shield.position >= position))

    @property
    def known_snapshots(self) -> dict[Position, Snapshot]:
        """By position: the newest full snapshot, and the older ones that are not proven yet."""
        return {each.position: each for each in (*self.pending_snapshots, *([self.snapshot] if self.snapshot else []))}

    def withdrawn(self) -> BatchReport:
        """Return the report of the next microbatch where its intent was withdrawn: it owns nothing."""
        return BatchReport(
            self.flow,
            self.number + 1,
            0,
            0,
            pending_snapshots=self.pending_snapshots,
            merge_plan="withdrawn",
            warn_above=self.health.bounds,
        )

    def after(self, intent: Microbatch, report: BatchReport, table: str) -> FlowCheckpoint:
        """Return the checkpoint after one more committed microbatch."""
        applied = dict(self.applied_through)
        for partition, position in report.applied_through.items():
            applied[partition] = max(position, applied.get(partition, position))
        offsets = self.offsets.get(intent.archive, ArchivedOffsets())
        truncated = dict(self.truncated_through)
        for name, position in report.truncated_through.items():
            truncated[name] = max(position, truncated.get(name, position))
        times = [time for time in (self.committed_through, report.committed_through) if time is not None]
        return replace(
            self,
            number=intent.number,
            planned={**self.planned, intent.archive: intent.planned_through},
            applied_through=applied,
            truncated_through=truncated,
            reach=self.reach | report.reach,
            snapshot=report.snapshot or self.snapshot,
            pending_snapshots=report.pending_snapshots,
            replaced_by=report.replaced_by or self.replaced_by,
            epochs=report.epochs if report.epochs.begins else self.epochs,
            unpaired_moves=max(0, self.unpaired_moves + report.unpaired_moves),
            moves_kept=self.moves_kept + report.moves_kept,
            health=self.health.after(report),
            tables=self.tables | {shape.table for shape in intent.shapes if shape.table},
            logs=self.logs | intent.logs,
            committed_through=max(times, default=None),
            events=self.events + report.events,
            table=table,
            table_version=report.table_version if report.table_version is not None else self.table_version,
            held=_set(self.held, intent.archive, intent.held),
            offsets=_set(self.offsets, intent.archive, offsets.with_files(intent.offsets)) if intent.offsets else self.offsets,
            surveyed=_set(self.surveyed, intent.archive, intent.surveyed or ""),
        )


def _set(by_archive: dict[str, _Kept], archive: str, value: _Kept) -> dict[str, _Kept]:
    return {name: kept for name, kept in {**by_archive, archive: value}.items() if kept}
