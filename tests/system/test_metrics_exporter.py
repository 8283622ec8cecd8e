"""Metrics on their way to Prometheus: by Airflow's own code into a real exporter for StatsD, and from there into the dashboard's queries.

``scripts/metrics_tools.py`` brings the exporter and ``promtool``, which is Prometheus' own reader and evaluator.
"""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import pytest
import yaml

from airflow_cdc.model.report.metrics import EVENTS, LAG_SECONDS, PENDING_BYTES, Sample
from airflow_cdc.model.report.open_metrics import open_metrics
from tests.support.dashboard import as_asked, queries

pytestmark = pytest.mark.system_deep

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("METRICS_TOOLS") or ROOT / ".tools" / "metrics")
_SECONDS_TO_START = 20
ORDERS, ITEMS = "server.db.orders", "server.db.items"

# Airflow's statistics in a process of their own, as in a task's; the package statsd is not in the environment.
SEND = """
import sys
from types import ModuleType
from tests.unit.airflow.statsd_server import StatsClient

client = ModuleType("statsd")
client.StatsClient = StatsClient
sys.modules["statsd"] = client

from airflow_cdc.metrics import send
from airflow_cdc.model.look.lag import Lag
from airflow_cdc.model.look.lag_metrics import samples_of_lag
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.metrics import samples_of_run

counts = EventCounts(read=10, merged=6, superseded=2, rejected=2)
batch = BatchReport("server.db.orders", 1, 1, 9, counts, RowCounts(5, 1, 0), rejects={"missing_key": 2}, seconds=4.5)
flows = (
    FlowOutcome("server.db.orders", FlowStatus.APPLIED, "t", (batch,)),
    FlowOutcome("server.db.items", FlowStatus.FAILED, "t", (), {"type": "SchemaChangeError"}),
)
send("lake_a", lambda: samples_of_run(ApplyReport("a", "l", flows)))
send("lake_a", lambda: samples_of_lag(["server.db.orders"], {"server.db.items": Lag(3, 4096, 7500.5)}))
"""


def tool(name: str) -> Path:
    found = TOOLS / "bin" / name
    assert found.is_file(), f"{found} is not there: run python3 scripts/metrics_tools.py"
    return found


def free_port(kind: socket.SocketKind) -> int:
    with socket.socket(socket.AF_INET, kind) as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
        return port


@contextmanager
def exporter() -> Iterator[tuple[int, Callable[[], dict[str, float]]]]:
    """Start the exporter as it comes, without a mapping; yield its port for StatsD, and what it answers to Prometheus."""
    statsd, web = free_port(socket.SOCK_DGRAM), free_port(socket.SOCK_STREAM)
    places = [f"--web.listen-address=127.0.0.1:{web}", f"--statsd.listen-udp=127.0.0.1:{statsd}", "--statsd.listen-tcp="]
    process = subprocess.Popen([tool("statsd_exporter"), *places], stderr=subprocess.DEVNULL)

    def scrape() -> dict[str, float]:
        with urlopen(f"http://127.0.0.1:{web}/metrics", timeout=5) as answer:
            text = answer.read().decode()
        lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith("airflow_cdc_"))
        return {series: float(value) for series, _, value in lines}

    try:
        until = time.monotonic() + _SECONDS_TO_START
        while True:
            try:
                scrape()
                break
            except OSError:
                assert time.monotonic() < until, "the exporter does not answer"
                time.sleep(0.05)
        yield statsd, scrape
    finally:
        process.terminate()
        process.wait()


def scraped_twice(tmp_path: Path) -> list[dict[str, float]]:
    """Send the same run twice, and return what Prometheus would read after each."""
    found: list[dict[str, float]] = []
    with exporter() as (port, scrape):
        settings = {"STATSD_ON": "True", "STATSD_HOST": "127.0.0.1", "STATSD_PORT": str(port), "STATSD_INFLUXDB_ENABLED": "True"}
        airflow = {"AIRFLOW_HOME": str(tmp_path / "airflow"), "PYTHONPATH": str(ROOT)}
        environment = {**os.environ, **airflow, **{f"AIRFLOW__METRICS__{name}": value for name, value in settings.items()}}
        for _ in range(2):
            subprocess.run([sys.executable, "-c", SEND], env=environment, cwd=ROOT, check=True, capture_output=True, timeout=120)
            before, until = found[-1] if found else {}, time.monotonic() + 10
            while (now := scrape()) == before or len(now) < 16:
                assert time.monotonic() < until, now
                time.sleep(0.05)
            found.append(now)
    return found


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, float]]:
    return scraped_twice(tmp_path_factory.mktemp("sent"))


def series(name: str, flow: str = ORDERS, **labels: str) -> str:
    inside = ",".join(f'{label}="{value}"' for label, value in sorted({"flow": flow, "lake": "lake_a", **labels}.items()))
    return f"airflow_cdc_flow_{name}{{{inside}}}"


def test_the_exporter_gives_every_value_its_labels_and_adds_up_counters(scraped: list[dict[str, float]]) -> None:
    first, second = scraped
    for number, found in ((1, first), (2, second)):
        assert found[series("events", outcome="merged")] == 6 * number
        assert found[series("rows", change="inserted")] == 5 * number
        assert found[series("rejected", reason="missing_key")] == 2 * number
        assert found[series("microbatch_seconds")] == 4.5
        assert (found[series("stopped")], found[series("stopped", ITEMS)]) == (0, 1)
        assert (found[series("lag_seconds")], found[series("lag_seconds", ITEMS)]) == (0, 7500.5)
        assert found[series("pending_bytes", ITEMS)] == 4096


def evaluate(tmp_path: Path, found: list[dict[str, float]], expected: dict[str, float]) -> subprocess.CompletedProcess[str]:
    """Let Prometheus evaluate queries over values that were scraped a minute apart; each must give one value without labels."""
    values = [{"series": name, "values": " ".join(str(scrape.get(name, 0)) for scrape in found)} for name in found[-1]]
    tests = [{"expr": query, "eval_time": "1m", "exp_samples": [{"labels": "{}", "value": value}]} for query, value in expected.items()]
    file = tmp_path / "queries.yaml"
    file.write_text(yaml.safe_dump({"tests": [{"interval": "1m", "input_series": values, "promql_expr_test": tests}]}))
    return subprocess.run([tool("promtool"), "test", "rules", file], capture_output=True, text=True, check=False, timeout=60)


def test_every_query_of_the_dashboard_finds_values(tmp_path: Path, scraped: list[dict[str, float]]) -> None:
    asked = {title: as_asked(query) for title, query in queries().items()}
    expected = {f"count({query}) > bool 0": 1.0 for query in asked.values()}
    exact = {"Flows stopped": 1, "Greatest lag": 7500.5, "Pending": 4096}
    ended = evaluate(tmp_path, scraped, {**expected, **{asked[title]: value for title, value in exact.items()}})
    assert ended.returncode == 0, ended.stdout + ended.stderr


def test_so_it_does_with_the_names_of_the_command_line_and_of_opentelemetry(tmp_path: Path, scraped: list[dict[str, float]]) -> None:
    counters = re.compile(r"^(airflow_cdc_flow_(?:events|rows|rejected|microbatches))")
    by_collector = [{counters.sub(r"\1_total", name): value for name, value in found.items()} for found in scraped]
    by_us = [{name.removeprefix("airflow_"): value for name, value in found.items()} for found in by_collector]
    expected = {f"count({as_asked(query)}) > bool 0": 1.0 for query in queries().values()}
    for named in (by_collector, by_us):
        ended = evaluate(tmp_path, named, expected)
        assert ended.returncode == 0, ended.stdout + ended.stderr


def test_a_query_that_finds_nothing_is_noticed(tmp_path: Path, scraped: list[dict[str, float]]) -> None:
    ended = evaluate(tmp_path, scraped, {"count(max(airflow_cdc_flow_lag)) > bool 0": 1.0})
    assert ended.returncode != 0
    assert "exp:" in ended.stdout + ended.stderr, "a value that differs, not a file that cannot be read"


def test_prometheus_reads_the_text_of_the_command_line(tmp_path: Path) -> None:
    samples = [Sample(EVENTS, 'a"b\\c\n', 3, "merged"), Sample(LAG_SECONDS, ORDERS, 0.5), Sample(PENDING_BYTES, ORDERS, 2**40)]
    # Blocks are made of samples with times only.
    text = re.sub(r"^(cdc_.*)$", rf"\1 {int(time.time()) - 60}", open_metrics(samples, "/lake"), flags=re.MULTILINE)
    for content, is_read in ((text, True), (text.replace("# EOF\n", ""), False)):
        file = tmp_path / "metrics.txt"
        file.write_text(content)
        command = [tool("promtool"), "tsdb", "create-blocks-from", "openmetrics", file, tmp_path / "blocks"]
        ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
        assert (ended.returncode == 0) is is_read, ended.stderr
