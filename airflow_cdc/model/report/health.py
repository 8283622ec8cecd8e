"""FlowHealth: what of a flow asks for a person's look although nothing stops. The page, the metrics and the notifier share this rule.

A microbatch that rejects records, or merges beside missing ones, succeeds, and the next one would hide it. So its counts are kept for the
day on which it began and the day after, and compared with the bounds that the flow's settings give.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.flow.warn_above import WarnAbove
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.batches import batches_by_flow
from airflow_cdc.model.report.findings import Finding, FindingKind

_MOST_CHANGES = 20
"""Schema changes that are kept by name; the others are only counted."""
_DAYS = 2


@dataclass(frozen=True)
class HealthCounts(JsonObject, omits_defaults=True):
    """What microbatches did that may need a look."""

    read: int = 0
    rejects: dict[str, int] = field(default_factory=dict)
    """Rejected records by reason."""
    rows_not_found: int = 0
    unavailable_unresolved: int = 0
    missing_offsets: int = 0
    schema_changes: int = 0
    changes: tuple[str, ...] = ()
    """The first of the schema changes, as sentences."""
    rows_unconfirmed: int = 0

    @property
    def rejected(self) -> int:
        """Number of rejected records."""
        return sum(self.rejects.values())

    def __add__(self, other: HealthCounts) -> HealthCounts:
        summed = {each.name: getattr(self, each.name) + getattr(other, each.name) for each in fields(self) if each.type == "int"}
        rejects = Counter(self.rejects) + Counter(other.rejects)
        return HealthCounts(**summed, rejects=dict(rejects), changes=(*self.changes, *other.changes)[:_MOST_CHANGES])


def health_counts(report: BatchReport) -> HealthCounts:
    """Return what one microbatch did that may need a look."""
    changes = report.schema_changes
    return HealthCounts(
        read=report.events.read,
        rejects=report.rejects,
        rows_not_found=report.rows_not_found,
        unavailable_unresolved=report.unavailable_unresolved,
        missing_offsets=report.offsets.newly_missing,
        schema_changes=len(changes),
        changes=changes[:_MOST_CHANGES],
        rows_unconfirmed=report.rows_unconfirmed or 0,
    )


@dataclass(frozen=True)
class FlowHealth(JsonObject, omits_defaults=True):
    """The counts of a flow's last microbatches, with its bounds."""

    days: dict[str, HealthCounts] = field(default_factory=dict)
    """By the day (UTC, ISO-8601) on which the microbatches began; the last two with any."""
    last: HealthCounts = field(default_factory=HealthCounts)
    """Of the last microbatch that read records."""
    bounds: WarnAbove = field(default_factory=WarnAbove)
    rows_unconfirmed: int = 0
    """Rows that the newest full snapshot did not find."""

    def after(self, report: BatchReport) -> FlowHealth:
        """Return the health after one more microbatch; one without a time, whose report was rebuilt, counts for no day."""
        counts, days = health_counts(report), dict(self.days)
        if report.started_at is not None:
            day = datetime.fromtimestamp(report.started_at / 1000, timezone.utc).date().isoformat()
            days[day] = days.get(day, HealthCounts()) + replace(counts, rows_unconfirmed=0)
        return FlowHealth(
            days=dict(sorted(days.items())[-_DAYS:]),
            last=counts if counts.read else self.last,
            bounds=report.warn_above,
            rows_unconfirmed=self.rows_unconfirmed if report.rows_unconfirmed is None else report.rows_unconfirmed,
        )

    def findings(self, flow: str, *, is_undecided: bool, today: date | None = None) -> tuple[Finding, ...]:
        """Return what of a flow needs a look.

        :param is_undecided: whether nobody has decided about the newest snapshot's missing rows.
        :param today: the day in UTC.
        """
        now = today or datetime.now(timezone.utc).date()
        recent = {now.isoformat(), (now - timedelta(days=1)).isoformat()}
        counts = sum((each for day, each in self.days.items() if day in recent), HealthCounts())
        counts = replace(counts, rows_unconfirmed=self.rows_unconfirmed if is_undecided else 0)
        found = tuple(_findings(flow, counts, self.bounds))
        if recent & self.days.keys() and not any(finding.kind is FindingKind.REJECTED for finding in found):
            # Good records of a whole day must not hide that nothing is taken any more.
            found = (*_rejected(flow, self.last, self.bounds), *found)
        return found


def findings_of_run(report: Any) -> Iterator[Finding]:
    """Yield what a run did that needs a look.

    :param report: of any job.
    """
    for flow, batches in batches_by_flow(report):
        if batches:
            yield from _findings(flow, sum(map(health_counts, batches), HealthCounts()), batches[-1].warn_above)
    yield from held_findings(topic for topic in getattr(report, "held_topics", ()) if topic.added)


def held_findings(topics: Iterable[HeldTopic]) -> Iterator[Finding]:
    """Yield the topics that no flow can take."""
    for topic in topics:
        if topic.is_refused:
            yield Finding(FindingKind.REJECTED, None, str(topic), topic.added or topic.records)


def _findings(flow: str, counts: HealthCounts, bounds: WarnAbove) -> Iterator[Finding]:
    yield from _rejected(flow, counts, bounds)
    for kind, (name, text) in _COUNTED.items():
        bound, count = getattr(bounds, name), getattr(counts, name)
        if bound is not None and count > bound:
            yield Finding(kind, flow, text.format(count=count, flow=flow, changes=_spelled(counts)), count)


def _rejected(flow: str, counts: HealthCounts, bounds: WarnAbove) -> Iterator[Finding]:
    if bounds.rejected is not None and counts.rejected > bounds.rejected * counts.read:
        reasons = ", ".join(f"{count:,} {reason}" for reason, count in sorted(counts.rejects.items()))
        yield Finding(FindingKind.REJECTED, flow, f"{counts.rejected:,} of {counts.read:,} records ({reasons})", counts.rejected)


def _spelled(counts: HealthCounts) -> str:
    more = counts.schema_changes - len(counts.changes)
    return "; ".join([*counts.changes, *([f"and {more:,} more"] if more else [])])


_COUNTED: Mapping[FindingKind, tuple[str, str]] = {
    FindingKind.NOT_FOUND: ("rows_not_found", "{count:,} rows. Next step: airflow-cdc verify"),
    FindingKind.UNRESOLVED: ("unavailable_unresolved", "{count:,} rows"),
    FindingKind.MISSING: ("missing_offsets", "{count:,} offsets"),
    FindingKind.UNCONFIRMED: ("rows_unconfirmed", "{count:,} rows. Next step: airflow-cdc confirm-snapshot {flow}"),
    FindingKind.SCHEMA: ("schema_changes", "{changes}"),
}
"""By kind: the count and its bound, and the finding's text."""
