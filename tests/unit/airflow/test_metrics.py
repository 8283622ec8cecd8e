"""What Airflow's metrics get of a flow: through Airflow's own Stats into a socket of StatsD and into a collector of OpenTelemetry."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException

from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.metrics import METRICS, MetricKind
from airflow_cdc.operators.replay import CdcReplayOperator
from airflow_cdc.sensors.lag import CdcLagSensor
from airflow_cdc.triggers.lag import CdcLagTrigger
from tests.unit.airflow.statsd_server import StatsdServer, statsd_server, unconfigured

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
TERMINAL = {"type": "SchemaChangeError", "message": "Column total shrank.", "next_step": "Widen it.", "transient": False}
REPORT = {"ok": False, "archive": "a", "lake": "l", "flows": [], "control_topics": [], "ignored_files": [], "error": None}


@pytest.fixture
def statsd(monkeypatch: pytest.MonkeyPatch) -> Iterator[StatsdServer]:
    with statsd_server(monkeypatch) as server:
        yield server


def tags(flow: str = TOPIC, lake: str = "cdc_lake_default", **part: str) -> str:
    return "".join(f",{name}={value}" for name, value in {"flow": flow, "lake": lake, **part}.items())


def batch(number: int, events: EventCounts, **fields: Any) -> dict[str, Any]:
    return BatchReport(TOPIC, number, 1, 9, events, **fields).to_json()


def report_of(*batches: dict[str, Any], **fields: Any) -> dict[str, Any]:
    flow = {"flow": TOPIC, "status": "applied", "table": f"l/{TOPIC}", "batches": list(batches), "error": None}
    return {**REPORT, "ok": True, "flows": [{**flow, **fields}]}


def run_by_dag_test(scene: Any, *tasks: Any) -> str:
    """Run a Dag of these tasks in this process, and return its state."""
    from airflow.sdk import DAG

    with DAG("cdc_observed", schedule=None) as dag:
        for make in tasks:
            make()
    scene.save(dag)
    return str(dag.test().state)


@pytest.mark.slow
def test_a_merge_in_a_dag_sends_what_it_did_and_the_lag_that_remains(scene: Any, airflow_database: None, statsd: StatsdServer) -> None:
    scene.land("0000000000")
    scene.land("0000000001")
    assert run_by_dag_test(scene, scene.merge) == "success"
    assert statsd.came() == {
        f"flow.events{tags(outcome='merged')}": "2|c",
        f"flow.rows{tags(change='inserted')}": "2|c",
        f"flow.microbatches{tags()}": "1|c",
        f"flow.microbatch_seconds{tags()}": "0.0|g",
        f"flow.stopped{tags()}": "0|g",
        f"flow.attention{tags()}": "0|g",
        f"flow.pending_files{tags()}": "0|g",
        f"flow.pending_bytes{tags()}": "0|g",
        f"flow.lag_seconds{tags()}": "0.0|g",
    }


def test_the_parts_of_a_counter_add_up_over_all_microbatches_of_a_run(scene: Any, context: Any, statsd: StatsdServer) -> None:
    first = batch(1, EventCounts(read=9, merged=5, stale=1, rejected=3), rejects={"missing_key": 3}, seconds=7.5)
    rejects = {"missing_key": 1}
    second = batch(2, EventCounts(read=3, merged=2, rejected=1), rejects=rejects, rows=RowCounts(deleted=2), seconds=2.0)
    scene.submit_leaves(report_of(first, second), exit_code=0)
    scene.merge().execute(context)
    came = statsd.came()
    assert {name: value for name, value in came.items() if value.endswith("|c")} == {
        f"flow.events{tags(outcome='merged')}": "7|c",
        f"flow.events{tags(outcome='stale')}": "1|c",
        f"flow.events{tags(outcome='rejected')}": "4|c",
        f"flow.rejected{tags(reason='missing_key')}": "4|c",
        f"flow.rows{tags(change='deleted')}": "2|c",
        f"flow.microbatches{tags()}": "2|c",
    }
    assert came[f"flow.microbatch_seconds{tags()}"] == "7.5|g"


def test_a_failed_task_sends_which_flow_stopped(scene: Any, context: Any, statsd: StatsdServer) -> None:
    scene.submit_leaves(report_of(status="failed", error=TERMINAL), exit_code=1)
    with pytest.raises(AirflowFailException):
        scene.merge().execute(context)
    assert statsd.came()[f"flow.stopped{tags()}"] == "1|g"


def test_records_that_were_read_again_count_and_a_dry_run_does_not(scene: Any, context: Any, statsd: StatsdServer) -> None:
    done = batch(8, EventCounts(read=4, merged=4), rows=RowCounts(updated=4), seconds=1.25)
    for flow in ({"flow": TOPIC, "found": done, "done": [done]}, {"flow": TOPIC, "found": done, "done": []}):
        scene.submit_leaves({"ok": True, "archive": "a", "lake": "l", "dry_run": not flow["done"], "flows": [flow]}, exit_code=0)
        CdcReplayOperator(task_id="replay", spark_binary=str(scene.spark_submit)).execute(context)
        counted = {name: value for name, value in statsd.came().items() if value.endswith("|c")}
        merged = {f"flow.events{tags(outcome='merged')}": "4|c", f"flow.rows{tags(change='updated')}": "4|c"}
        assert counted == ({**merged, f"flow.microbatches{tags()}": "1|c"} if flow["done"] else {})


def test_the_lag_is_sent_by_the_sensor_and_by_its_trigger_and_falls_to_nothing(
    scene: Any, context: Any, statsd: StatsdServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    scene.land("0000000000")
    scene.merge().execute(context)
    scene.land("0000000000", topic=OTHER_TOPIC)
    statsd.came()
    behind = {f"flow.pending_files{tags(OTHER_TOPIC)}": "1|g", f"flow.pending_bytes{tags(OTHER_TOPIC)}": "12|g"}
    kept_up = {f"flow.pending_files{tags()}": "0|g", f"flow.pending_bytes{tags()}": "0|g", f"flow.lag_seconds{tags()}": "0.0|g"}
    CdcLagSensor(task_id="lag", max_files=0, timeout=0).poke(context)
    # One that was never applied has no age.
    assert statsd.came() == {**behind, **kept_up}

    question = {"archive_conn_id": "cdc_archive_default", "lake_conn_id": "cdc_lake_default", "tables": ["*.customers"]}
    trigger = CdcLagTrigger(poke_interval=0.01, max_files=1, max_bytes=None, max_seconds=None, **question)
    unconfigured(monkeypatch)

    async def fired() -> Any:
        return await asyncio.wait_for(anext(trigger.run()), 10)

    assert asyncio.run(fired()).payload["found"]["files"] == 1
    assert statsd.came() == behind


def test_an_age_is_sent_where_the_source_committed_at_a_known_time(scene: Any, context: Any, statsd: StatsdServer) -> None:
    scene.submit_by(
        scene.spark_submit.read_text().replace("table_version=batch.number", "committed_through=1000, table_version=batch.number")
    )
    scene.land("0000000000")
    scene.merge().execute(context)
    scene.land("0000000001")
    statsd.came()
    CdcLagSensor(task_id="lag", max_files=0, timeout=0).poke(context)
    seconds = float(statsd.came()[f"flow.lag_seconds{tags()}"].removesuffix("|g"))
    assert 0 <= time.time() - 1 - seconds < 60


def test_a_metric_that_cannot_be_sent_fails_no_task(
    scene: Any, context: Any, statsd: StatsdServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_PORT", "no number")
    scene.land("0000000000")
    assert scene.merge().execute(context)["rows"]["inserted"] == 1
    assert "Metrics of cdc_lake_default were not sent" in caplog.text
    assert statsd.came() == {}


def test_without_metrics_nobody_looks_for_the_lag_after_a_merge(scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow_cdc.hooks import archive

    looks: list[Any] = []
    monkeypatch.setattr(archive, "find_lag", lambda **asked: looks.append(asked) or (None, {}))
    scene.land("0000000000")
    scene.merge().execute(context)
    assert looks == []
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    scene.merge().execute(context)
    assert [asked["lake_root"] for asked in looks] == [str(scene.lake)]


class Collector:
    """Takes what OpenTelemetry's exporter sends by HTTP."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        collector = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                collector.bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: Any) -> None:
                """Keep quiet."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def came(self) -> dict[tuple[str, str], tuple[str, float]]:
        """Return kind and value by name and attributes."""
        from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

        found = {}
        for body in self.bodies:
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    kind = str(metric.WhichOneof("data"))
                    for point in getattr(metric, kind).data_points:
                        named = "".join(f",{item.key}={item.value.string_value}" for item in point.attributes)
                        found[metric.name, named] = kind, point.as_double or point.as_int
        return found


def end_opentelemetry() -> None:
    """Stop the thread that exports, and the hook that would export once more when this process ends."""
    import atexit

    from airflow.sdk._shared.observability.metrics.otel_logger import flush_otel_metrics
    from opentelemetry import metrics

    atexit.unregister(flush_otel_metrics)
    metrics.get_meter_provider().shutdown()  # type: ignore[attr-defined]


def test_opentelemetry_gets_it_before_the_process_of_the_task_is_gone(scene: Any, context: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from airflow.providers.common.compat.sdk import Stats

    if not hasattr(Stats, "initialize"):
        pytest.skip("Airflow 3.1 reads the settings of metrics only once, when it is imported")
    collector = Collector()
    host, port = collector.server.server_address[:2]
    settings = {"OTEL_ON": "True", "OTEL_HOST": host, "OTEL_PORT": port, "OTEL_SSL_ACTIVE": "False", "OTEL_INTERVAL_MILLISECONDS": 10**7}
    for name, value in settings.items():
        monkeypatch.setenv(f"AIRFLOW__METRICS__{name}", str(value))
    unconfigured(monkeypatch)
    scene.land("0000000000")
    scene.merge().execute(context)
    came = collector.came()
    end_opentelemetry()
    collector.server.shutdown()
    collector.server.server_close()
    assert came["airflow.cdc.flow.events", tags(outcome="merged")] == ("sum", 1)
    assert came["airflow.cdc.flow.rows", tags(change="inserted")] == ("sum", 1)
    assert came["airflow.cdc.flow.pending_bytes", tags()] == ("gauge", 0)


def test_names_are_what_airflow_and_its_backends_take() -> None:
    assert len({metric.name for metric in METRICS}) == len(METRICS)
    for metric in METRICS:
        assert metric.name.startswith("cdc.flow.")
        assert set(metric.name) <= set("abcdefghijklmnopqrstuvwxyz._")
        assert not metric.unit or metric.name.endswith(f"_{metric.unit}")
        # A counter of OpenMetrics may not have such an ending of its own.
        assert metric.kind is MetricKind.GAUGE or not metric.name.endswith(("_total", "_seconds"))
