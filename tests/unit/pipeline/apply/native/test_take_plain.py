"""The native engine without its packages, and where delta-rs fails."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from deltalake.exceptions import DeltaError

from airflow_cdc.model.errors import UnexpectedError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.apply.native import take_plain
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(take_plain, "find_spec", lambda name: None)


def apply_by(engine: Engine, apply: Apply, folder: Path) -> tuple[str, str]:
    write_records(folder / "archive" / "1.jsonl", numbered([sqlserver("c", commit=1, key={"id": 1}, after={"id": 1})]))
    report = apply(folder / "archive", folder / "lake", flows={TOPIC: CdcFlow(TOPIC, engine=engine)}, may_fail=True)
    flow = report.flows[0]
    return (flow.error["type"], flow.error["message"]) if flow.error else (flow.batches[0].engine, flow.batches[0].engine_reason)


def test_auto_without_the_packages_goes_to_spark_and_says_so(nothing_installed: None, apply: Apply, tmp_path: Path) -> None:
    engine, reason = apply_by(Engine.AUTO, apply, tmp_path)
    assert engine == "spark"
    assert reason.endswith("lacks duckdb, deltalake, numpy, pyarrow, pyroaring")


def test_native_without_the_packages_stops_the_flow(nothing_installed: None, apply: Apply, tmp_path: Path) -> None:
    error, message = apply_by(Engine.NATIVE, apply, tmp_path)
    assert error == "ConfigurationError"
    assert f"Flow {TOPIC}: engine is native" in message
    assert not (tmp_path / "lake" / TOPIC).exists()


def test_a_failure_of_delta_rs_names_the_microbatch_and_the_way_out() -> None:
    run: Any = SimpleNamespace(flow=SimpleNamespace(name="orders"), microbatch=SimpleNamespace(number=3), table="/lake/orders")
    with pytest.raises(UnexpectedError) as raised, take_plain.named_failure(run, "delta-rs could not merge"):
        raise DeltaError("no such column\nat line 1")
    assert raised.value.message == "Flow orders, microbatch 3, table /lake/orders: delta-rs could not merge (no such column)."
    assert "set the flow's engine to spark" in raised.value.next_step
