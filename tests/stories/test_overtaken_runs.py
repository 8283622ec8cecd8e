"""A run that lost its lease, did not notice, and goes on: what others merged meanwhile is neither doubled nor taken back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.policies import WriteDisposition
from airflow_cdc.model.state.lease import Leases
from tests.conftest import Apply
from tests.support.events import Record, postgresql, write_records
from tests.support.leases import hold_at_once
from tests.support.tables import read_rows

TOPIC = "pg.public.customers"
NUMBERS = {"n": "INT"}


def event(op: str, n: int) -> Record:
    return postgresql(op, commit=10 + n, change=10 + n, after={"id": 1, "n": n}, offset=n)


def overtake(apply: Apply, archive: Path, lake: Path, flow: CdcFlow) -> Callable[[str], None]:
    """Return a hook that, once a run's events are staged, lets another one apply them and a newer event of the same key."""
    left = ["stage"]

    def others(effect: str) -> None:
        if effect not in left:
            return
        left.remove(effect)
        # The run has planned its microbatch: this file is of the next one.
        write_records(archive / "3.jsonl", [event("u", 3)])
        apply(archive, lake, flows={TOPIC: flow})

    return others


@pytest.mark.parametrize("engine", [Engine.NATIVE, Engine.SPARK], indirect=True)
@pytest.mark.parametrize(("disposition", "expected"), [(WriteDisposition.MERGE, [3]), (WriteDisposition.APPEND, [1, 2, 3])])
def test_what_others_merged_meanwhile_is_neither_doubled_nor_taken_back(
    disposition: WriteDisposition,
    expected: list[int],
    engine: Engine,
    apply: Apply,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Leases, "hold", hold_at_once)
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    flow = CdcFlow(TOPIC, keys=("id",), columns=NUMBERS, write_disposition=disposition)
    write_records(archive / "1.jsonl", [event("c", 1)])
    apply(archive, lake, flows={TOPIC: flow})
    write_records(archive / "2.jsonl", [event("u", 2)])
    report = apply(archive, lake, flows={TOPIC: flow}, may_fail=True, after_effect=overtake(apply, archive, lake, flow))
    assert sorted(row["n"] for row in read_rows(spark, str(lake), TOPIC).rows) == expected
    (overtaken,) = report.flows
    assert overtaken.error
    assert overtaken.error["type"] == "ConcurrentRunError"
    # And nothing that it left stops the next one.
    write_records(archive / "4.jsonl", [event("u", 4)])
    (batch,) = apply(archive, lake, flows={TOPIC: flow}).flows[0].batches
    assert (batch.microbatch, batch.engine) == (4, engine.value)
    assert [row["n"] for row in read_rows(spark, str(lake), TOPIC).rows if row["n"] > 3] == [4]
