"""The spans of a run's microbatches, as OpenTelemetry's own SDK gets them from a task."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.operators.replay import CdcReplayOperator
from airflow_cdc.traces import trace_microbatches
from tests.unit.airflow.test_metrics import TERMINAL, TOPIC, report_of

STARTED = 1_700_000_000_000
STAGES = {"stage": 0.5, "merge": 1.25, "count": 0.25}


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    kept, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(kept))
    # A process has one provider for good.
    monkeypatch.setattr(trace, "get_tracer", provider.get_tracer)
    return kept


def measured(number: int, **fields: Any) -> dict[str, Any]:
    events = EventCounts(read=3, merged=2, rejected=1)
    return BatchReport(TOPIC, number, 1, 9, events, engine="native", seconds=2.0, **fields).to_json()


def lasted(span: ReadableSpan) -> tuple[float, float]:
    """Return when a span begins, in seconds behind the microbatch's start, and how long it is."""
    assert span.start_time is not None
    assert span.end_time is not None
    return (span.start_time - STARTED * 10**6) / 10**9, (span.end_time - span.start_time) / 10**9


def test_each_microbatch_has_a_span_below_the_tasks_and_its_stages_follow_each_other(
    scene: Any, context: Any, exporter: InMemorySpanExporter
) -> None:
    scene.submit_leaves(report_of(measured(7, started_at=STARTED, stage_seconds=STAGES)), exit_code=0)
    with trace.get_tracer("airflow").start_as_current_span("worker.merge") as task:
        scene.merge().execute(context)
    spans = {span.name: span for span in exporter.get_finished_spans()}
    batch = spans["cdc.microbatch"]
    assert batch.parent == task.get_span_context()
    assert lasted(batch) == (0.0, 2.0)
    about = dict(batch.attributes or {})
    named = {"cdc.lake": "cdc_lake_default", "cdc.flow": TOPIC, "cdc.microbatch": 7, "cdc.engine": "native"}
    assert about.items() >= {**named, "cdc.events.read": 3, "cdc.events.rejected": 1, "cdc.rows.inserted": 0}.items()
    assert {name: lasted(spans[f"cdc.{name}"]) for name in STAGES} == {"stage": (0.0, 0.5), "merge": (0.5, 1.25), "count": (1.75, 0.25)}
    assert all(spans[f"cdc.{name}"].parent == batch.get_span_context() for name in STAGES)


def test_a_failed_run_has_the_spans_of_what_it_did_and_a_report_rebuilt_from_the_table_none(
    scene: Any, context: Any, exporter: InMemorySpanExporter
) -> None:
    done = measured(7, started_at=STARTED, stage_seconds=STAGES), measured(8)
    scene.submit_leaves(report_of(*done, status="failed", error=TERMINAL), exit_code=1)
    with pytest.raises(AirflowFailException):
        scene.merge().execute(context)
    assert [
        span.attributes["cdc.microbatch"] for span in exporter.get_finished_spans() if span.name == "cdc.microbatch" and span.attributes
    ] == [7]


def test_what_was_read_again_has_spans_too(scene: Any, context: Any, exporter: InMemorySpanExporter) -> None:
    done = BatchReport.from_json(measured(9, started_at=STARTED, stage_seconds=STAGES))
    scene.submit_leaves(
        ReprocessReport("a", "l", flows=(FlowReprocess(TOPIC, done, (done,)), FlowReprocess("other"))).to_json(), exit_code=0
    )
    CdcReplayOperator(task_id="replay", spark_binary=str(scene.spark_submit)).execute(context)
    assert [span.name for span in exporter.get_finished_spans()] == ["cdc.stage", "cdc.merge", "cdc.count", "cdc.microbatch"]


def test_a_span_that_cannot_be_made_fails_nothing(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    def broken(_name: str) -> Any:
        raise RuntimeError("no tracer")

    monkeypatch.setattr(trace, "get_tracer", broken)
    report: Any = object()
    trace_microbatches("cdc_lake_default", report)
    assert "Spans of cdc_lake_default were not made: RuntimeError: no tracer" in caplog.text
