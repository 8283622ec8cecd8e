"""The steps that a run hands to those who watch it."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnTruncate
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.step import BEGUN, DONE, ENDED, FAILED, Step
from tests.support.events import TOPIC, numbered, sqlserver, write_records

ANN = {"id": 1, "name": "ann"}


def test_each_microbatch_begins_with_what_is_pending_and_is_done_with_its_own(spark: SparkSession, tmp_path: Path) -> None:
    for number in (1, 2):
        write_records(tmp_path / f"archive/{number}.jsonl", numbered([sqlserver("c", commit=number, after=ANN)], first=number))
    sizes = [(tmp_path / f"archive/{number}.jsonl").stat().st_size for number in (1, 2)]
    steps: list[Step] = []
    flows = {TOPIC: CdcFlow(TOPIC, max_microbatch_bytes=1)}
    run = ArchiveRun(spark, str(tmp_path / "archive"), str(tmp_path / "lake"), flows, watch=steps.append)
    assert apply_archive(run).ok
    begun = [(step.microbatch, step.files, step.bytes, step.records, step.pending_bytes) for step in steps if step.stage == BEGUN]
    assert begun == [(1, 1, sizes[0], 1, sum(sizes)), (2, 1, sizes[1], 1, sizes[1])]
    stages = [step.stage for step in steps if step.microbatch == 1]
    assert (stages[0], stages[1], stages[-1]) == (BEGUN, "intent", DONE)
    assert "merge" in stages
    assert steps[-1] == Step(TOPIC, ENDED)


def test_a_flow_that_fails_ends_with_that_step(spark: SparkSession, tmp_path: Path) -> None:
    write_records(tmp_path / "archive/1.jsonl", numbered([sqlserver("c", commit=1, after=ANN), sqlserver("t", commit=2)]))
    steps: list[Step] = []
    flows = {TOPIC: CdcFlow(TOPIC, on_truncate=OnTruncate.FAIL)}
    run = ArchiveRun(spark, str(tmp_path / "archive"), str(tmp_path / "lake"), flows, watch=steps.append)
    assert not apply_archive(run).ok
    assert steps[-1] == Step(TOPIC, FAILED)
