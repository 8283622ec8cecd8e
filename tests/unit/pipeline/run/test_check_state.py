"""State that is older or poorer than its table is recognised before anything is planned."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.support.table_and_state import (
    HISTORY,
    LOG,
    CrashError,
    archive_create,
    failure,
    files_of,
    forget,
    ids,
    state_of,
    steps,
    version,
)
from tests.support.tables import read_rows

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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.deep
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


@pytest.mark.parametrize(
    "flows", [None, *(pytest.param(flows, marks=pytest.mark.deep) for flows in (LOG, HISTORY))], ids=["rows", "change log", "versions"]
)
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


@pytest.mark.deep
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


@pytest.mark.deep
def test_a_flow_whose_own_name_for_its_state_is_lost_stops_behind_its_merges(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    steps(apply, archive, lake, 1, 2)
    (state_of(lake) / "flow.json").unlink()
    archive_create(archive, 3)

    error = failure(apply(archive, lake, may_fail=True))

    assert error["type"] == "StateLostError"
    assert "another life of the flow's state" in error["message"]
    assert ids(spark, lake) == [1, 2]


@pytest.mark.deep
def test_a_change_log_whose_flow_lost_that_name_before_its_first_commit_marker_appends_nothing_twice(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    archive_create(archive, 1)

    def crash(effect: str) -> None:
        if effect == "append":
            raise CrashError

    with pytest.raises(CrashError):
        apply(archive, lake, flows=LOG, after_effect=crash)
    (state_of(lake) / "flow.json").unlink()

    error = failure(apply(archive, lake, flows=LOG, may_fail=True))

    assert error["type"] == "StateLostError"
    assert "holds microbatch 1 of another life of the flow's state" in error["message"]
    assert ids(spark, lake) == [1]
