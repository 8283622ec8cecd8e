"""OpenTelemetry spans of a run's microbatches and their stages, below the span that Airflow gives the task (``[traces] otel_on``)."""

from __future__ import annotations

import logging
from typing import Any

from opentelemetry import trace
from opentelemetry.trace import Tracer

from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.batches import batches_by_flow

_log = logging.getLogger(__name__)
_NANOSECONDS = 1_000_000_000
_MILLISECOND = 1_000_000


def trace_microbatches(lake_conn_id: str, report: Any) -> None:
    """Add a span for each microbatch that a job committed, with one for each of its stages (``BatchReport.stage_seconds``).

    The job measures, and the task adds the spans when it has the job's report: the job needs no exporter. Without one nothing is sent. It
    raises nothing: a span must not fail a task that did its work.

    :param lake_conn_id: connection of the lake, the attribute ``cdc.lake``.
    :param report: of any job; without microbatches it makes no span.
    """
    try:
        tracer = trace.get_tracer(__name__)
        for batch in (batch for _, batches in batches_by_flow(report) for batch in batches):
            if batch.started_at is not None:
                _trace(tracer, lake_conn_id, batch, start=batch.started_at * _MILLISECOND)
    except Exception as error:  # noqa: BLE001 - as promised above.
        _log.warning("Spans of %s were not made: %s: %s", lake_conn_id, type(error).__name__, error)


def _trace(tracer: Tracer, lake_conn_id: str, batch: BatchReport, *, start: int) -> None:
    counts = {f"cdc.events.{name}": count for name, count in vars(batch.events).items()}
    counts |= {f"cdc.rows.{name}": count for name, count in vars(batch.rows).items()}
    about: dict[str, str | int] = {
        "cdc.lake": lake_conn_id,
        "cdc.flow": batch.flow,
        "cdc.microbatch": batch.microbatch,
        "cdc.engine": batch.engine,
    }
    span = tracer.start_span("cdc.microbatch", start_time=start, attributes={**about, **counts})
    within = trace.set_span_in_context(span)
    at = start
    for stage, seconds in batch.stage_seconds.items():
        part = tracer.start_span(f"cdc.{stage}", context=within, start_time=at)
        at += round(seconds * _NANOSECONDS)
        part.end(at)
    span.end(at)
