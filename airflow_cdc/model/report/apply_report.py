"""ApplyReport: what one run did for every flow of an archive. The job hands it to the operator, and the CLI prints it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from airflow_cdc.model.archive.completeness import OffsetGap, OffsetReport
from airflow_cdc.model.archive.cut import Cut
from airflow_cdc.model.archive.set_aside import SetAsideFile
from airflow_cdc.model.archive.transactions import TransactionReport
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts, total_events, total_rows
from airflow_cdc.model.report.foreign_change import ForeignChange

_NAMED_GAPS = 5
_NAMED_TOPICS = 20


class FlowStatus(str, Enum):
    """How a flow ended."""

    APPLIED = "applied"
    """At least one microbatch was committed."""
    UP_TO_DATE = "up_to_date"
    """Nothing was pending."""
    WAITING = "waiting"
    """Nothing was committed: pending files wait for missing offsets, or behind the cut."""
    FAILED = "failed"
    """The flow stopped; the others went on."""


@dataclass(frozen=True)
class FlowOutcome(JsonObject):
    """What one run did for one flow."""

    flow: str
    status: FlowStatus
    table: str | None = None
    """URI of the target table."""
    batches: tuple[BatchReport, ...] = ()
    error: dict[str, Any] | None = None
    """``type``, ``message``, ``next_step``, ``transient`` (:meth:`airflow_cdc.model.errors.CdcError.to_json`)."""
    waiting_for: tuple[OffsetGap, ...] = ()
    """Missing offsets that the flow waits for: with ``on_gap: wait``, or because they decide whether the source's log went back."""
    waiting_files: int = 0
    """Files that wait for them, not applied."""
    cut_files: int = 0
    """Files with records behind the run's cut."""
    cut_records: int = 0
    """Number of those records."""
    outside_files: int = 0
    """Pending files that were archived outside of the run's interval."""
    table_version: int | None = None
    """Delta version of the flow's last merge, in this run or an earlier one; None where there was none, or where the flow failed."""
    columns: dict[str, str] = field(default_factory=dict)
    """Spark SQL types of the source's columns in the table, where this run changed it."""
    document_columns: tuple[str, ...] = ()
    """Those of them that come from the document."""
    foreign_changes: tuple[ForeignChange, ...] = ()
    """Commits by which somebody else changed the table, where the flow accepted them or repaired the table."""
    is_new_table: bool = False
    """Whether this run made the table."""
    attention: tuple[str, ...] = ()
    """What of the flow needs a person's look, over today and yesterday (docs/reference/flows-file.md#warn_above)."""

    @property
    def changed(self) -> bool:
        """Whether this run made a commit in the table."""
        return any(batch.table_version is not None for batch in self.batches)

    @property
    def had_work(self) -> bool:
        """Whether the run found anything to apply for the flow, or anything that waits for missing offsets or behind the cut."""
        return self.status in (FlowStatus.APPLIED, FlowStatus.FAILED) or bool(self.waiting_files or self.cut_files or self.foreign_changes)

    @property
    def applied_position(self) -> dict[str, Position]:
        """Highest position that this run merged, by Kafka partition ("-" where the archive does not record it)."""
        highest: dict[str, Position] = {}
        for batch in self.batches:
            for partition, position in batch.applied_through.items():
                highest[partition] = max(position, highest.get(partition, position))
        return highest

    @property
    def events(self) -> EventCounts:
        """Sum over the microbatches."""
        return total_events(self.batches)

    @property
    def rows(self) -> RowCounts:
        """Sum over the microbatches."""
        return total_rows(self.batches)

    def reject_lines(self) -> Iterator[str]:
        """Yield lines on rejected records, by reason, and on columns whose types are in doubt."""
        rejects: Counter[str] = Counter()
        for batch in self.batches:
            rejects.update(batch.rejects)
        if rejects:
            yield f"{self.flow}: in the quarantine: " + ", ".join(f"{count:,} {reason}" for reason, count in sorted(rejects.items()))
        doubts = {name: column for batch in self.batches for name, column in batch.types.items() if column.doubt}
        yield from (f"{self.flow}: column {name} is {column.sql_type}, but {column.doubt}" for name, column in doubts.items())

    def gap_lines(self) -> Iterator[str]:
        """Yield lines on a new table, on missing offsets at the flow's end, and on what waits for them or behind the cut."""
        known = self.batches[-1].offsets if self.batches else OffsetReport()
        gaps = self.waiting_for or known.gaps
        if self.is_new_table:
            yield f"{self.flow}: new table {self.table}"
        yield from (f"{self.flow}: the table was changed by others: {change}" for change in self.foreign_changes)
        yield from (f"{self.flow}: {gap}" for gap in gaps[:_NAMED_GAPS])
        if self.waiting_files:
            yield f"{self.flow}: {self.waiting_files} files wait for what is missing"
        elif known.missing > sum(gap.missing for gap in gaps[:_NAMED_GAPS]):
            yield f"{self.flow}: {known.missing} offsets are missing in all"
        if unjoined := sum(batch.transactions_unjoined for batch in self.batches):
            yield f"{self.flow}: {unjoined} keys of cut transactions were not put together, for files applied earlier are gone"
        if self.cut_files:
            yield f"{self.flow}: {self.cut_records} records in {self.cut_files} files wait behind the cut"
        if self.outside_files:
            yield f"{self.flow}: {self.outside_files} files wait that were archived outside of the interval"

    def to_json(self) -> dict[str, Any]:
        """Return the outcome as plain JSON values, with the sums over its microbatches."""
        return {**super().to_json(), "events": self.events.to_json(), "rows": self.rows.to_json()}


@dataclass(frozen=True)
class ApplyReport(JsonObject):
    """What one run did for every flow."""

    archive: str
    lake: str
    flows: tuple[FlowOutcome, ...] = ()
    control_topics: tuple[str, ...] = ()
    """Recognised topics that are not tables."""
    ignored_files: tuple[str, ...] = ()
    """Files under the archive's root that are not archived records."""
    error: dict[str, Any] | None = field(default=None)
    """Set when the run stopped before it reached any flow, or when the check of transactions failed."""
    transactions: tuple[TransactionReport, ...] = ()
    """By connector: incomplete transactions; only where the run was asked to check them."""
    cuts: tuple[Cut, ...] = ()
    """By connector: the cut at which its tables end; only where the run was asked to be consistent."""
    set_aside_files: tuple[SetAsideFile, ...] = ()
    """Archived files that cannot be read; the flows of their topics failed."""
    held_topics: tuple[HeldTopic, ...] = ()
    """Topics that are no flows: their records are in the archive's quarantine."""

    @property
    def nothing_pending(self) -> bool:
        """True when the run succeeded and had nothing to apply: no flow had pending files that were archived in the run's interval."""
        has_work = any(flow.had_work for flow in self.flows) or any(topic.added for topic in self.held_topics)
        return self.ok and not self.set_aside_files and not has_work

    @property
    def ok(self) -> bool:
        """True when nothing failed."""
        return self.error is None and all(flow.status is not FlowStatus.FAILED for flow in self.flows)

    def set_aside_lines(self) -> Iterator[str]:
        """Yield lines on unreadable files, and on records that belong to no flow."""
        yield from map(str, self.held_topics[:_NAMED_TOPICS])
        if len(self.held_topics) > _NAMED_TOPICS:
            yield f"and {len(self.held_topics) - _NAMED_TOPICS} more topics; the report names them all"
        if self.set_aside_files:
            yield f"files set aside, for they cannot be read: {len(self.set_aside_files)}, for example {self.set_aside_files[0]}"

    def transaction_lines(self) -> Iterator[str]:
        """Yield lines on incomplete transactions, and on the cuts that they cause."""
        for item in self.transactions:
            yield from item.lines()
        for cut in self.cuts:
            yield from cut.lines()

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON values."""
        return {"ok": self.ok, "nothing_pending": self.nothing_pending, **super().to_json()}
