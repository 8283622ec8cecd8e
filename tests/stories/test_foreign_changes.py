"""A table that somebody else changed is recognised before anything is planned, and the flow's policy decides."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnForeignChange
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.repair.reprocess import Reprocessing, reprocess
from airflow_cdc.pipeline.run.check_state import StateCheck
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.support.table_and_state import (
    HISTORY,
    WARN,
    Change,
    archive_create,
    change_delete,
    change_overwrite,
    change_restore,
    change_update,
    failure,
    forget,
    ids,
    state_of,
    steps,
    version,
)
from tests.support.tables import read_rows

CHANGES = [
    pytest.param(change_delete, "DELETE", id="delete"),
    pytest.param(change_update, "UPDATE", id="update", marks=pytest.mark.deep),
    pytest.param(change_restore, "RESTORE to version 1", id="restore", marks=pytest.mark.deep),
    pytest.param(change_overwrite, "WRITE", id="overwrite", marks=pytest.mark.deep),
]


@pytest.mark.parametrize(("change", "operation"), CHANGES)
@pytest.mark.parametrize("flows", [None, pytest.param(HISTORY, marks=pytest.mark.deep)], ids=["rows", "versions"])
def test_a_change_by_others_stops_the_flow_and_is_named_until_it_is_undone(
    flows: dict[str, CdcFlow] | None, change: Change, operation: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2, flows=flows)
    change(spark, f"delta.`{lake / TOPIC}`")
    archive_create(archive, 3)

    error = failure(apply(archive, lake, flows=flows, may_fail=True))

    assert error["type"] == "TableChangedError"
    assert "changed by others since microbatch 2 (version 2)" in error["message"]
    assert f"version 3: {operation} at 20" in error["message"]
    assert not (state_of(lake) / "intents" / "00000003.json").exists()
    assert "TO VERSION AS OF 2)" in error["next_step"]
    spark.sql(f"RESTORE TABLE delta.`{lake / TOPIC}` TO VERSION AS OF 2")
    apply(archive, lake, flows=flows)
    assert ids(spark, lake) == [1, 2, 3]


@pytest.mark.parametrize("policy", [OnForeignChange.STOP, OnForeignChange.REPAIR])
def test_a_column_that_somebody_renamed_is_a_change(
    policy: OnForeignChange, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    """Under the old name the flow would make a new column, NULL in all older rows."""
    flows, table = {TOPIC: CdcFlow(TOPIC, on_foreign_change=policy)}, f"delta.`{lake / TOPIC}`"
    row = {"id": 1, "name": "ann"}
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=row)]))
    apply(archive, lake, flows=flows)
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')")
    spark.sql(f"ALTER TABLE {table} RENAME COLUMN name TO label")
    write_records(archive / "2.jsonl", numbered([sqlserver("c", commit=2, after={"id": 2, "name": "ben"})], first=1))

    report = apply(archive, lake, flows=flows, may_fail=True)

    if policy is OnForeignChange.STOP:
        error = failure(report)
        assert error["type"] == "TableChangedError"
        assert "version 3: RENAME COLUMN at 20" in error["message"]
        assert "TO VERSION AS OF 2)" in error["next_step"]
        spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 2")
        apply(archive, lake, flows=flows)
    names = {row["id"]: row["name"] for row in read_rows(spark, str(lake), TOPIC).rows}
    assert names == {1: "ann", 2: "ben"}


def test_a_flow_that_only_warns_names_the_change_once_and_goes_on(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    steps(apply, archive, lake, 1, 2)
    change_delete(spark, f"delta.`{lake / TOPIC}`")
    archive_create(archive, 3)
    (flow,) = apply(archive, lake, flows=WARN).flows
    assert [(change.version, change.operation) for change in flow.foreign_changes] == [(3, "DELETE")]
    assert any("changed by others: version 3: DELETE" in line for line in flow.gap_lines())
    assert FlowOutcome.from_json(flow.to_json()) == flow
    assert ids(spark, lake) == [1, 3]
    archive_create(archive, 4)
    (flow,) = apply(archive, lake).flows
    assert (flow.foreign_changes, ids(spark, lake)) == ((), [1, 3, 4])


def test_a_change_between_the_check_and_its_merge_stops_the_next_microbatch(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    archive_create(archive, 3)

    def meddle(effect: str) -> None:
        if effect == "stage" and version(spark, lake) == 2:
            change_delete(spark, f"delta.`{lake / TOPIC}`")

    assert apply(archive, lake, after_effect=meddle).flows[0].batches[0].table_version == 4
    archive_create(archive, 4)
    error = failure(apply(archive, lake, may_fail=True))
    assert "version 3: DELETE" in error["message"]
    assert error["next_step"].startswith("Rebuild the flow")


def test_upkeep_by_anybody_and_changes_that_are_vouched_for_are_no_foreign_changes(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    table = f"delta.`{lake / TOPIC}`"
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('mine' = '1')")
    spark.sql(f"VACUUM {table}")
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "airflow_cdc: intended, ticket 7")
    change_delete(spark, table)
    spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    steps(apply, archive, lake, 3)
    assert ids(spark, lake) == [1, 3]


@pytest.mark.deep
def test_rows_that_somebody_deleted_come_back_by_reprocessing_and_the_flow_goes_on(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    change_delete(spark, f"delta.`{lake / TOPIC}`")
    reprocess(Reprocessing(spark, str(archive), str(lake), TOPIC))
    steps(apply, archive, lake, 3)
    assert ids(spark, lake) == [1, 2, 3]


@pytest.mark.deep
def test_what_reprocessing_cannot_give_back_still_stops_the_flow_behind_it(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    change_update(spark, f"delta.`{lake / TOPIC}`")
    reprocess(Reprocessing(spark, str(archive), str(lake), TOPIC))
    archive_create(archive, 3)
    assert "version 3: UPDATE" in failure(apply(archive, lake, may_fail=True))["message"]


@pytest.mark.parametrize("flows", [None, pytest.param(WARN, marks=pytest.mark.deep)], ids=["stop", "warn"])
def test_a_table_that_is_gone_or_older_than_the_state_stops_the_flow_whatever_its_policy(
    flows: dict[str, CdcFlow] | None, apply: Apply, archive: Path, lake: Path, tmp_path: Path
) -> None:
    steps(apply, archive, lake, 1, 2, flows=flows)
    shutil.copytree(lake / TOPIC, tmp_path / "older")
    steps(apply, archive, lake, 3, flows=flows)
    shutil.rmtree(lake / TOPIC)
    archive_create(archive, 4)
    error = failure(apply(archive, lake, flows=flows, may_fail=True))
    assert (error["type"], "no table is there" in error["message"]) == ("TableChangedError", True)
    shutil.copytree(tmp_path / "older", lake / TOPIC)
    error = failure(apply(archive, lake, flows=flows, may_fail=True))
    assert (error["type"], "its newest version is 2" in error["message"]) == ("TableChangedError", True)


def test_another_table_in_the_place_of_the_flows_stops_it(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    steps(apply, archive, lake, 1, 2)
    shutil.rmtree(lake / TOPIC)
    spark.sql(f"CREATE TABLE delta.`{lake / TOPIC}` USING delta AS SELECT 7 AS id")
    for number in (8, 9):
        spark.sql(f"INSERT INTO delta.`{lake / TOPIC}` VALUES ({number})")
    archive_create(archive, 3)
    error = failure(apply(archive, lake, may_fail=True))
    assert error["type"] == "TableChangedError"
    assert "it is another table" in error["message"]


@pytest.mark.parametrize("is_older", [pytest.param(False, marks=pytest.mark.deep), True], ids=["state of today", "older state"])
def test_a_log_that_does_not_go_back_to_the_last_merge_changes_nothing_of_what_is_found(
    is_older: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2, 3)
    for number in range(10):
        spark.sql(f"ALTER TABLE delta.`{lake / TOPIC}` SET TBLPROPERTIES ('mine' = '{number}')")
    log = lake / TOPIC / "_delta_log"
    assert (log / f"{10:020d}.checkpoint.parquet").exists()
    for number in range(10):
        (log / f"{number:020d}.json").unlink()
        (log / f".{number:020d}.json.crc").unlink(missing_ok=True)
    archive_create(archive, 4)
    if is_older:
        forget(state_of(lake), 3)
        error = failure(apply(archive, lake, may_fail=True))
        assert (error["type"], "holds microbatch 3" in error["message"]) == ("StateLostError", True)
    else:
        apply(archive, lake)
        assert ids(spark, lake) == [1, 2, 3, 4]


@pytest.mark.deep
def test_a_table_in_another_store_than_the_lake_is_checked_by_its_history(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StateCheck, "_may_read_log", False)
    steps(apply, archive, lake, 1, 2)
    spark.sql(f"OPTIMIZE delta.`{lake / TOPIC}`")
    change_delete(spark, f"delta.`{lake / TOPIC}`")
    archive_create(archive, 3)
    error = failure(apply(archive, lake, may_fail=True))
    assert (error["type"], "version 4: DELETE at 20" in error["message"]) == ("TableChangedError", True)
    spark.sql(f"RESTORE TABLE delta.`{lake / TOPIC}` TO VERSION AS OF 3")
    apply(archive, lake)
    assert ids(spark, lake) == [1, 2, 3]
    forget(state_of(lake), 3)
    archive_create(archive, 4)
    assert failure(apply(archive, lake, may_fail=True))["type"] == "StateLostError"
    shutil.rmtree(lake / TOPIC)
    assert "no table is there" in failure(apply(archive, lake, may_fail=True))["message"]
