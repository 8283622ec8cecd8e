"""What is folded natively for Spark is, column by column, what Spark's own fold gives."""

from __future__ import annotations

import dataclasses
import random
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from pyspark.sql import SparkSession
from pyspark.testing import assertDataFrameEqual

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.apply.native.fold import folding
from airflow_cdc.pipeline.apply.native.for_spark import changes_for_spark, count_for_spark, stage_changes
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.decode.decode_events import IS_ROW_EVENT
from airflow_cdc.pipeline.microbatch.count_events import count_staged
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.read.read_lines import read_lines
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import HAZARD, keep_latest_per_key
from airflow_cdc.pipeline.reconcile.order_events import order_events
from airflow_cdc.pipeline.spark.storage import file_system
from tests.support.events import Record, Row, numbered, sqlserver
from tests.support.natively import bytes_of, decoder_of

TYPES = {"id": "BIGINT", "name": "STRING", "price": "DECIMAL(9,2)", "on": "DATE", "at": "TIMESTAMP", "local": "TIMESTAMP_NTZ"}


RANGED = {"id": "BIGINT"}


def history(seed: int) -> list[Record]:
    """Return a snapshot's reads and random changes in three partitions; some events come twice, one behind the other."""
    pick = random.Random(seed)
    held = set(range(10))
    records = [sqlserver("r", commit=10, after=_row(pick, key), key={"id": key}, partition=key % 3) for key in sorted(held)]
    for commit in range(11, 71):
        key = pick.randrange(20)
        op = pick.choice("uud") if key in held else "c"
        held ^= {key} if op in "cd" else set()
        records += [sqlserver(op, commit=commit, after=_row(pick, key), key={"id": key}, partition=key % 3)] * pick.choice([1, 1, 2])
    return numbered(records)


def _row(pick: random.Random, key: int) -> Row:
    return {"id": key, "name": pick.choice([None, "", "text"])}


def run_in(folder: Path, spark: SparkSession, effects: list[str]) -> MicrobatchRun:
    return MicrobatchRun(
        spark=spark,
        lake=str(folder / "lake"),
        flow=CdcFlow("t"),
        application="t:1",
        checkpoint=FlowCheckpoint("t"),
        microbatch=Microbatch("t", 7, str(folder), (), PlanPosition(), ()),
        past=FlowState(*file_system(str(folder / "lake")), "t"),
        after_effect=effects.append,
    )


@pytest.mark.parametrize("seed", [1, 2])
def test_the_staged_frame_is_that_of_spark_s_fold(seed: int, spark: SparkSession, tmp_path: Path) -> None:
    records = history(seed)
    (tmp_path / "a.jsonl").write_bytes(bytes_of("a.jsonl", records))
    decoder = decoder_of({"a.jsonl": records}, {"id": "BIGINT", "name": "STRING"})
    decoder = dataclasses.replace(decoder, files=[dataclasses.replace(file, size=10**6) for file in decoder.files])
    events = decoder.events(read_lines(spark, str(tmp_path), decoder.files)).filter(IS_ROW_EVENT)
    ordered = order_events(events, ["id"], reads_among_changes=True, change_restarts=False)
    by_spark = keep_latest_per_key(ordered, ["id"], ["id", "name"], change_restarts=False)
    assert by_spark.filter(f"{HAZARD} = 1").count() == 0

    effects: list[str] = []
    with folding(decoder, str(tmp_path)) as fold:
        rows = fold.stream(changes_for_spark(fold.how))
        staged = stage_changes(run_in(tmp_path, spark, effects), rows, {"id": "BIGINT", "name": "STRING"})
        counted = count_for_spark(fold, RANGED)
    assert effects == ["stage"]
    assert staged.columns == by_spark.columns
    # Types with the names of their members; what may be NULL is no part of them.
    assert [kind for _, kind in staged.dtypes] == [kind for _, kind in by_spark.dtypes]
    assertDataFrameEqual(staged, by_spark, rtol=0, atol=0, ignoreNullable=True)
    assert counted == count_staged(by_spark, cancelled="false", shielded="false", ranged=RANGED)


def test_each_type_of_a_column_comes_through_a_file(spark: SparkSession, tmp_path: Path) -> None:
    with folding(decoder_of_types(tmp_path), str(tmp_path)) as fold:
        rows = fold.stream(changes_for_spark(fold.how))
        staged = stage_changes(run_in(tmp_path, spark, []), rows, TYPES)
    assert dict(staged.dtypes) | TYPES_IN_SPARK == dict(staged.dtypes)
    (row,) = staged.selectExpr("id", "CAST(price AS STRING)", "CAST(on AS STRING)", "CAST(at AS STRING)", "CAST(local AS STRING)").collect()
    assert tuple(row) == (1, "12.25", "2020-01-02", "2020-01-02 03:04:05.678", "2020-01-02 03:04:05")


TYPES_IN_SPARK = {"price": "decimal(9,2)", "on": "date", "at": "timestamp", "local": "timestamp_ntz"}


def decoder_of_types(folder: Path) -> Any:
    row = {"id": 1, "name": None, "price": "12.25", "on": "2020-01-02", "at": "2020-01-02T03:04:05.678Z", "local": "2020-01-02T03:04:05"}
    records = numbered([sqlserver("c", commit=1, after=row, key={"id": 1})])
    (folder / "types.jsonl").write_bytes(bytes_of("types.jsonl", records))
    return decoder_of({"types.jsonl": records}, TYPES)


def test_a_folder_that_cannot_be_written_leaves_the_microbatch_to_spark(tmp_path: Path) -> None:
    (tmp_path / "lake").write_text("a file where the lake should be", encoding="ascii")
    with folding(decoder_of_types(tmp_path), str(tmp_path)) as fold:
        rows = fold.read(changes_for_spark(fold.how)).to_batches()
    assert len(rows) == 1
    with pytest.raises(HandedOver, match="the staging folder cannot be written from the driver"):
        stage_changes(run_in(tmp_path, Mock(), []), rows, TYPES)
