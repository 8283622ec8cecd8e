"""State that is older or poorer than its table, and tables that others changed, are recognised before anything is planned."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow import CdcFlow, OnForeignChange, WriteDisposition
from airflow_cdc.model.outcome import ApplyReport, FlowOutcome
from airflow_cdc.pipeline.check_state import StateCheck
from airflow_cdc.pipeline.inspect_lake import read_rows
from airflow_cdc.pipeline.reprocess import Reprocessing, reprocess
from tests.conftest import Apply
from tests.events import TOPIC, numbered, sqlserver, write_records

WARN = {TOPIC: CdcFlow(TOPIC, on_foreign_change=OnForeignChange.WARN)}
HISTORY = {TOPIC: CdcFlow(TOPIC, stored_as_scd_type=2)}
LOG = {TOPIC: CdcFlow(TOPIC, write_disposition=WriteDisposition.APPEND)}


class CrashError(BaseException):
    """The process ends."""


def archive_create(archive: Path, number: int) -> None:
    """Archive file ``number``, which creates the row of that key."""
    write_records(archive / f"{number}.jsonl", numbered([sqlserver("c", commit=number, after={"id": number})], first=number))


def steps(apply: Apply, archive: Path, lake: Path, *numbers: int, flows: dict[str, CdcFlow] | None = None) -> None:
    for number in numbers:
        archive_create(archive, number)
        apply(archive, lake, flows=flows)


def ids(spark: SparkSession, lake: Path) -> list[int]:
    return [row["id"] for row in read_rows(spark, str(lake), TOPIC).rows]


def state_of(lake: Path) -> Path:
    return lake / "_cdc" / "flows" / TOPIC


def files_of(state: Path) -> dict[str, bytes]:
    return {str(path.relative_to(state)): path.read_bytes() for path in state.rglob("*") if path.is_file()}


def failure(report: ApplyReport) -> dict[str, Any]:
    (flow,) = report.flows
    assert flow.error, flow
    assert not flow.error["transient"]
    return flow.error


def version(spark: SparkSession, lake: Path) -> int:
    return int(spark.sql(f"DESCRIBE HISTORY delta.`{lake / TOPIC}` LIMIT 1").collect()[0]["version"])


def forget(state: Path, number: int) -> None:
    """Leave the state as it was before microbatch ``number``."""
    for path in ("checkpoint.json", f"commits/{number:08d}.json", f"intents/{number:08d}.json"):
        (state / path).unlink()


# State that is older than the table


def test_a_state_from_an_older_backup_stops_the_flow_and_the_newer_state_lets_it_go_on(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, tmp_path: Path
) -> None:
    steps(apply, archive, lake, 1, 2, 3)
    shutil.copytree(state_of(lake), tmp_path / "newer")
    forget(state_of(lake), 3)
    archive_create(archive, 4)
    before = files_of(state_of(lake))

    error = failure(apply(archive, lake, may_fail=True))

    assert error["type"] == "StateLostError"
    assert f"Flow {TOPIC}, table {lake / TOPIC}: the table holds microbatch 3 (version 3)" in error["message"].replace("file:", "")
    assert "stands at microbatch 2" in error["message"]
    assert {name for name in files_of(state_of(lake)) if name.startswith("intents/")} == {n for n in before if n.startswith("intents/")}
    assert ids(spark, lake) == [1, 2, 3]

    shutil.rmtree(state_of(lake))
    shutil.copytree(tmp_path / "newer", state_of(lake))
    assert apply(archive, lake).flows[0].events.merged == 1
    assert ids(spark, lake) == [1, 2, 3, 4]


def test_a_flow_whose_state_is_older_is_rebuilt_by_removing_table_and_state(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2, 3)
    forget(state_of(lake), 3)
    archive_create(archive, 4)
    assert "remove its table and that folder, both" in failure(apply(archive, lake, may_fail=True))["next_step"]
    shutil.rmtree(state_of(lake))
    shutil.rmtree(lake / TOPIC)
    apply(archive, lake)
    assert ids(spark, lake) == [1, 2, 3, 4]


@pytest.mark.parametrize("lost", ["checkpoint too", "intents alone"])
def test_commit_markers_without_their_intents_count_no_other_file_as_done(lost: str, apply: Apply, archive: Path, lake: Path) -> None:
    steps(apply, archive, lake, 1, 2, 3)
    shutil.rmtree(state_of(lake) / "intents")
    checkpoint = state_of(lake) / "checkpoint.json"
    if lost == "checkpoint too":
        checkpoint.unlink()
    else:
        # As of microbatch 2: the third marker stands behind it.
        document = json.loads(checkpoint.read_text())
        checkpoint.write_text(json.dumps({**document, "number": 2, "table_version": 2}))
    archive_create(archive, 4)
    error = failure(apply(archive, lake, may_fail=True))
    assert error["type"] == "StateLostError"
    assert "no intent" in error["message"]
    assert not (state_of(lake) / "intents").exists()


def test_an_intent_that_the_table_does_not_know_under_its_number_is_not_taken_for_the_one_that_it_does(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2, 3)
    forget(state_of(lake), 3)
    # Planned by a version that did not look at the table.
    third = json.loads((state_of(lake) / "intents" / "00000002.json").read_text())
    (state_of(lake) / "intents" / "00000003.json").write_text(json.dumps({**third, "number": 3}))
    error = failure(apply(archive, lake, may_fail=True))
    assert error["type"] == "StateLostError"
    assert "microbatch 3" in error["message"]
    assert ids(spark, lake) == [1, 2, 3]


@pytest.mark.parametrize("lost", ["all surveys", "the newest ones"])
def test_surveys_that_are_gone_count_no_new_file_as_planned(
    lost: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    (folder,) = (lake / "_cdc" / "archives").iterdir()
    if lost == "all surveys":
        shutil.rmtree(folder)
    else:
        (folder / "surveys" / "00000002.json").unlink()
        (folder / "ledger.json").unlink()
    for number in (3, 4):
        archive_create(archive, number)
        error = failure(apply(archive, lake, may_fail=True))
        assert error["type"] == "StateLostError"
        assert "surveys of archive" in error["message"]
    assert ids(spark, lake) == [1, 2]
    shutil.rmtree(lake)
    apply(archive, lake)
    assert ids(spark, lake) == [1, 2, 3, 4]


# State that is lost


@pytest.mark.parametrize("flows", [None, LOG, HISTORY], ids=["rows", "change log", "versions"])
def test_a_table_without_its_state_stops_the_flow_as_it_is(
    flows: dict[str, CdcFlow] | None, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    events = [sqlserver("c", commit=1, after={"id": 1, "n": 1}), sqlserver("c", commit=2, after={"id": 2, "n": 1})]
    write_records(archive / "1.jsonl", numbered(events))
    apply(archive, lake, flows=flows)
    later = [sqlserver("u", commit=3, after={"id": 1, "n": 2}), sqlserver("d", commit=4, before={"id": 2, "n": 1})]
    write_records(archive / "2.jsonl", numbered(later, first=2))
    apply(archive, lake, flows=flows)
    before, was = version(spark, lake), read_rows(spark, str(lake), TOPIC, history=True).rows
    shutil.rmtree(state_of(lake))

    error = failure(apply(archive, lake, flows=flows, may_fail=True))

    assert error["type"] == "StateLostError"
    assert "the flow's state knows of no microbatch" in error["message"]
    assert version(spark, lake) == before
    assert not (state_of(lake) / "intents").exists()
    shutil.rmtree(lake / TOPIC)
    shutil.rmtree(state_of(lake))
    apply(archive, lake, flows=flows)
    ours = ("__cdc_microbatch",)
    again = read_rows(spark, str(lake), TOPIC, history=True).rows
    assert [{k: v for k, v in row.items() if k not in ours} for row in again] == [
        {k: v for k, v in row.items() if k not in ours} for row in was
    ]


def test_rows_that_somebody_else_wrote_before_the_flow_began_stop_it(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    spark.sql(f"CREATE TABLE delta.`{lake / TOPIC}` USING delta AS SELECT 7 AS id")
    archive_create(archive, 1)
    error = failure(apply(archive, lake, may_fail=True))
    assert error["type"] == "StateLostError"
    assert "holds rows in 1 files" in error["message"]


def test_a_crash_behind_the_first_merge_is_no_lost_state(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    archive_create(archive, 1)

    def crash(effect: str) -> None:
        if effect == "merge":
            raise CrashError

    with pytest.raises(CrashError):
        apply(archive, lake, after_effect=crash)
    archive_create(archive, 2)
    assert [batch.microbatch for batch in apply(archive, lake).flows[0].batches] == [1, 2]
    assert ids(spark, lake) == [1, 2]


# A table that somebody else changed


def change_delete(spark: SparkSession, table: str) -> None:
    spark.sql(f"DELETE FROM {table} WHERE id = 2")


def change_update(spark: SparkSession, table: str) -> None:
    spark.sql(f"UPDATE {table} SET id = 20 WHERE id = 2")


def change_restore(spark: SparkSession, table: str) -> None:
    spark.sql(f"RESTORE TABLE {table} TO VERSION AS OF 1")


def change_overwrite(spark: SparkSession, table: str) -> None:
    spark.sql(f"INSERT OVERWRITE {table} SELECT * FROM {table} WHERE id = 1")


CHANGES = [
    pytest.param(change_delete, "DELETE", id="delete"),
    pytest.param(change_update, "UPDATE", id="update"),
    pytest.param(change_restore, "RESTORE to version 1", id="restore"),
    pytest.param(change_overwrite, "WRITE", id="overwrite"),
]
Change = Callable[[SparkSession, str], None]


@pytest.mark.parametrize(("change", "operation"), CHANGES)
@pytest.mark.parametrize("flows", [None, HISTORY], ids=["rows", "versions"])
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
    steps(apply, archive, lake, 1, 2, 3)
    table = f"delta.`{lake / TOPIC}`"
    spark.sql(f"OPTIMIZE {table}")
    spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('mine' = '1')")
    spark.sql(f"VACUUM {table}")
    spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", "airflow_cdc: intended, ticket 7")
    change_delete(spark, table)
    spark.conf.unset("spark.databricks.delta.commitInfo.userMetadata")
    steps(apply, archive, lake, 4)
    assert ids(spark, lake) == [1, 3, 4]


def test_rows_that_somebody_deleted_come_back_by_reprocessing_and_the_flow_goes_on(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    change_delete(spark, f"delta.`{lake / TOPIC}`")
    reprocess(Reprocessing(spark, str(archive), str(lake), TOPIC))
    steps(apply, archive, lake, 3)
    assert ids(spark, lake) == [1, 2, 3]


def test_what_reprocessing_cannot_give_back_still_stops_the_flow_behind_it(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    change_update(spark, f"delta.`{lake / TOPIC}`")
    reprocess(Reprocessing(spark, str(archive), str(lake), TOPIC))
    archive_create(archive, 3)
    assert "version 3: UPDATE" in failure(apply(archive, lake, may_fail=True))["message"]


@pytest.mark.parametrize("flows", [None, WARN], ids=["stop", "warn"])
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


@pytest.mark.parametrize("is_older", [False, True], ids=["state of today", "older state"])
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
