"""``airflow-cdc metrics``: a text that Prometheus takes, in a process that starts no Spark."""

from __future__ import annotations

from pathlib import Path

from tests.support.open_metrics import read_open_metrics
from tests.support.small_lakes import FLOW, write_flow
from tests.unit.cli.conftest import CLOSED_LATE, Run

pytestmark = CLOSED_LATE


def test_it_prints_each_flows_metrics_and_nothing_else(tmp_path: Path, run_alone: Run) -> None:
    write_flow(tmp_path, microbatches=2)
    found = read_open_metrics(run_alone("metrics", "--lake", tmp_path, "--rows").stdout)
    labels = {"flow": FLOW, "lake": str(tmp_path)}
    assert found["cdc_flow_events"][frozenset({**labels, "outcome": "merged"}.items())] == 4
    assert found["cdc_flow_rows"] == {frozenset({**labels, "change": "inserted"}.items()): 4}
    assert found["cdc_flow_lag_seconds"] == {frozenset(labels.items()): 0}
    named = read_open_metrics(run_alone("metrics", "--lake", tmp_path, "--name", "cdc_lake_default").stdout)
    assert named["cdc_flow_microbatches"] == {frozenset({"flow": FLOW, "lake": "cdc_lake_default"}.items()): 2}


def test_a_damaged_state_prints_nothing_on_stdout(tmp_path: Path, run_alone: Run) -> None:
    write_flow(tmp_path)
    (tmp_path / "_cdc" / "flows" / FLOW / "checkpoint.json").write_text("{")
    ended = run_alone("metrics", "--lake", tmp_path)
    assert (ended.code, ended.stdout) == (1, "")
    assert "StateUnreadableError" in ended.stderr
