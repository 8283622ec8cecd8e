"""The native engine's packages: without them auto goes to Spark, and native stops the flow."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.apply.native import settle_natively
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settle_natively, "find_spec", lambda name: None)


def apply_by(engine: Engine, apply: Apply, folder: Path) -> tuple[str, str]:
    write_records(folder / "archive" / "1.jsonl", numbered([sqlserver("c", commit=1, key={"id": 1}, after={"id": 1})]))
    report = apply(folder / "archive", folder / "lake", flows={TOPIC: CdcFlow(TOPIC, engine=engine)}, may_fail=True)
    flow = report.flows[0]
    return (flow.error["type"], flow.error["message"]) if flow.error else (flow.batches[0].engine, flow.batches[0].engine_reason)


def test_auto_without_the_packages_goes_to_spark_and_says_so(nothing_installed: None, apply: Apply, tmp_path: Path) -> None:
    engine, reason = apply_by(Engine.AUTO, apply, tmp_path)
    assert engine == "spark"
    assert reason.endswith("lacks duckdb, deltalake, pyarrow")


def test_native_without_the_packages_stops_the_flow(nothing_installed: None, apply: Apply, tmp_path: Path) -> None:
    error, message = apply_by(Engine.NATIVE, apply, tmp_path)
    assert error == "ConfigurationError"
    assert f"Flow {TOPIC}: engine is native" in message
    assert not (tmp_path / "lake" / TOPIC).exists()
