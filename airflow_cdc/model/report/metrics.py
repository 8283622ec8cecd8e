"""Metrics of flows: one catalogue for what Airflow sends and what ``airflow-cdc metrics`` prints (docs/reference/metrics.md)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, total_events, total_rows
from airflow_cdc.model.report.reprocessing import ReprocessReport


class MetricKind(str, Enum):
    """How a metric's values relate to each other."""

    COUNTER = "counter"
    """Sums: they only grow."""
    GAUGE = "gauge"
    """The state at one moment."""


@dataclass(frozen=True)
class Metric:
    """One metric, with a value per flow."""

    name: str
    """Its parts separated by dots, as Airflow spells metrics."""
    kind: MetricKind
    meaning: str
    unit: str = ""
    """The name's last word where it is a unit of OpenMetrics; empty otherwise."""
    part: str = ""
    """Name of a further label, by which the values add up; empty where there is none."""


_COUNTER, _GAUGE = MetricKind.COUNTER, MetricKind.GAUGE

EVENTS = Metric("cdc.flow.events", _COUNTER, "Records read of the flow, by what became of them.", part="outcome")
ROWS = Metric("cdc.flow.rows", _COUNTER, "Rows of the table that merges changed.", part="change")
REJECTED = Metric("cdc.flow.rejected", _COUNTER, "Records that were set aside in the quarantine.", part="reason")
MICROBATCHES = Metric("cdc.flow.microbatches", _COUNTER, "Microbatches that were committed.")
MICROBATCH_SECONDS = Metric("cdc.flow.microbatch_seconds", _GAUGE, "Duration of the longest microbatch of the last run.", unit="seconds")
STOPPED = Metric("cdc.flow.stopped", _GAUGE, "1 where the flow failed in its last run, 0 where it did not.")
ATTENTION = Metric(
    "cdc.flow.attention",
    _GAUGE,
    "Number of findings of today and yesterday that ask for a look: rejects, gaps, rows not found, schema changes and the like.",
)
LAG_SECONDS = Metric(
    "cdc.flow.lag_seconds",
    _GAUGE,
    "Age of the last applied event's commit in the source while anything is pending, 0 otherwise.",
    unit="seconds",
)
PENDING_BYTES = Metric("cdc.flow.pending_bytes", _GAUGE, "Bytes of the archived files that are not applied.", unit="bytes")
PENDING_FILES = Metric("cdc.flow.pending_files", _GAUGE, "Archived files that are not applied.")

METRICS = (EVENTS, ROWS, REJECTED, MICROBATCHES, MICROBATCH_SECONDS, STOPPED, ATTENTION, LAG_SECONDS, PENDING_BYTES, PENDING_FILES)


@dataclass(frozen=True)
class Sample:
    """A value of a metric for one flow."""

    metric: Metric
    flow: str
    value: float
    """For a counter: what to add, or the sum, as the receiver takes it."""
    part: str = ""
    """Value of the metric's further label."""

    def labels(self, lake: str) -> dict[str, str]:
        """Return the sample's labels, those of a lake added."""
        return {"flow": self.flow, "lake": lake, **({self.metric.part: self.part} if self.metric.part else {})}


def samples_of_run(report: ApplyReport) -> Iterator[Sample]:
    """Yield what a run adds to its flows' counters, and the gauges that it sets."""
    for flow in report.flows:
        yield from samples_of_batches(flow.flow, flow.batches)
        yield Sample(STOPPED, flow.flow, int(flow.status is FlowStatus.FAILED))
        if flow.status is not FlowStatus.FAILED:
            yield Sample(ATTENTION, flow.flow, len(flow.attention))


def samples_of_reading_again(report: ReprocessReport) -> Iterator[Sample]:
    """Yield what microbatches of files that were read again add to the flows' counters; nothing for a dry run."""
    for flow in report.flows:
        yield from samples_of_batches(flow.flow, flow.done)


def outcomes_of(events: EventCounts) -> dict[str, int]:
    """Return the parts whose sum is the number of records read."""
    return {name: count for name, count in vars(events).items() if name != "read"}


def samples_of_batches(flow: str, batches: Sequence[BatchReport]) -> Iterator[Sample]:
    """Yield what microbatches of a flow add to its counters, and the duration of the longest."""
    if not batches:
        return
    rejects: Counter[str] = Counter()
    for batch in batches:
        rejects.update(batch.rejects)
    for metric, parts in ((EVENTS, outcomes_of(total_events(batches))), (ROWS, vars(total_rows(batches))), (REJECTED, rejects)):
        # A counter without a change says nothing new, and StatsD takes one message each.
        yield from (Sample(metric, flow, count, part) for part, count in parts.items() if count)
    yield Sample(MICROBATCHES, flow, len(batches))
    yield Sample(MICROBATCH_SECONDS, flow, max(batch.seconds for batch in batches))
