"""A table of wrong types is made anew from the archive in one command, whatever crashes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError, TableChangedError, TableModeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.report.retyping import Retyped, RetypeReport
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.repair.retype import Retyping, retype
from airflow_cdc.pipeline.repair.retype_flows import FlowsRetyping, retype_flows
from airflow_cdc.pipeline.target.target_table import columns_of, read_target
from tests.conftest import Apply
from tests.stories.test_types_of_bare_json import ROW, TYPES, bare, failure, row, rows, types
from tests.support.crashes import CrashError
from tests.support.events import TOPIC, sqlserver, write_records
from tests.support.stories import CHOSEN
from tests.support.tables import read_quarantine, read_rows

GUESSED = CdcFlow(TOPIC, on_unknown_types=OnUnknownTypes.GUESS, max_microbatch_bytes=1)
COLUMNS: dict[str, Any] = {
    "total": {"type": "DECIMAL(12,2)", "encoding": "base64"},
    "placed": {"type": "TIMESTAMP_NTZ", "unit": "micros"},
    "due": {"type": "DATE", "unit": "days"},
}
RIGHT = CdcFlow.from_mapping({"topic": TOPIC, "columns": COLUMNS, "max_microbatch_bytes": 1})
AFTER = {**TYPES, "id": "BIGINT"}
CHANGED = {"total": ("STRING", "DECIMAL(12,2)"), "placed": ("BIGINT", "TIMESTAMP_NTZ"), "due": ("BIGINT", "DATE")}


@pytest.fixture
def guessed(apply: Apply, archive: Path, lake: Path) -> Path:
    """A lake with a table that was made of what the values look like; a row was deleted, and an event of it may come late."""
    write_records(archive / "1.jsonl", [bare(1), bare(2), bare(3)])
    write_records(archive / "2.jsonl", [sqlserver("d", commit=30, before=bare(3)["value"]["after"], key={"id": 3}, offset=30)])
    apply(archive, lake, flows={TOPIC: GUESSED})
    return lake


def again(spark: SparkSession, archive: Path, lake: Path, **more: Any) -> Retyped:
    return retype(Retyping(spark, str(archive), str(lake), TOPIC, **{"flows": {TOPIC: RIGHT}, **more}))


def test_the_table_takes_the_types_that_are_known_now_and_the_flow_goes_on(
    apply: Apply, spark: SparkSession, archive: Path, guessed: Path
) -> None:
    # With the new types the flow stops first.
    write_records(archive / "3.jsonl", [bare(4)])
    stopped = failure(apply(archive, guessed, flows={TOPIC: RIGHT}, may_fail=True).flows[0])
    assert f"airflow-cdc retype {TOPIC}" in stopped["next_step"]

    looked = again(spark, archive, guessed, dry_run=True)
    assert looked == Retyped(TOPIC, CHANGED, (2, 2), (0, 0))
    assert types(spark, guessed)["total"] == "STRING"
    assert looked.lines() == [
        "column total: STRING -> DECIMAL(12,2)",
        "column placed: BIGINT -> TIMESTAMP_NTZ",
        "column due: BIGINT -> DATE",
        "rows: 2 -> 2",
        "rejected records: 0 -> 0",
    ]

    done = again(spark, archive, guessed)
    assert (done.is_done, done.columns) == (True, CHANGED)
    assert (types(spark, guessed), rows(spark, guessed)) == (AFTER, {1: row(1), 2: row(2)})
    # A late event of the row that was deleted, beside the file that waits.
    write_records(
        archive / "4.jsonl",
        [sqlserver("u", commit=4, before={**bare(3)["value"]["after"]}, after=bare(3)["value"]["after"], offset=0, partition=1)],
    )
    report = apply(archive, guessed, flows={TOPIC: RIGHT})
    assert rows(spark, guessed) == {number: row(number) for number in (1, 2, 4)}
    assert report.flows[0].events.stale == 1
    assert not list((guessed / "_cdc" / "retypes").iterdir())
    # It records which columns were declared, as a table that was made so.
    target = read_target(spark, str(guessed / TOPIC))
    assert target
    assert (target.declared, target.guessed) == ({"total", "placed", "due"}, {"id", "note"})


@pytest.mark.deep
def test_a_second_retyping_changes_nothing(spark: SparkSession, archive: Path, guessed: Path) -> None:
    again(spark, archive, guessed)
    assert again(spark, archive, guessed) == Retyped(TOPIC, {}, (2, 2), (0, 0), is_done=True)
    assert rows(spark, guessed) == {1: row(1), 2: row(2)}


@pytest.mark.deep
def test_records_in_the_quarantine_are_taken_where_they_fit_now(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    values = [bare(number, **({"due": f"2026-11-{number:02}"} if number > 12 else {})) for number in range(10, 25)]
    write_records(archive / "1.jsonl", [*values, bare(30, due="never")])
    apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, columns={**RIGHT.columns, "due": "DATE"})})
    assert len(read_quarantine(spark, str(lake))) == 4
    done = again(spark, archive, lake, flows={TOPIC: CdcFlow(TOPIC, columns={**RIGHT.columns, "due": "STRING"})})
    assert (done.rejects, done.rows, done.columns) == ((4, 0), (12, 16), {"due": ("DATE", "STRING")})
    assert read_quarantine(spark, str(lake)) == []
    assert rows(spark, lake)[30] == {**row(30), "due": "never"}


@pytest.mark.deep
@pytest.mark.parametrize("effect", ["repeat", "note", "replace"])
def test_one_that_is_cut_off_goes_on_and_no_run_begins_meanwhile(
    apply: Apply, spark: SparkSession, archive: Path, guessed: Path, effect: str
) -> None:
    def crash(name: str) -> None:
        if name == effect:
            raise CrashError(name)

    with pytest.raises(CrashError):
        again(spark, archive, guessed, after_effect=crash)
    write_records(archive / "3.jsonl", [bare(4)])
    stopped = failure(apply(archive, guessed, flows={TOPIC: RIGHT}, may_fail=True).flows[0])
    assert stopped["type"] == ("SchemaChangeError" if effect == "repeat" else "RetypeUnfinishedError")
    if effect != "repeat":
        with pytest.raises(CrashError):
            again(spark, archive, guessed, after_effect=crash)
    again(spark, archive, guessed)
    apply(archive, guessed, flows={TOPIC: RIGHT})
    assert (types(spark, guessed), rows(spark, guessed)) == (AFTER, {number: row(number) for number in (1, 2, 4)})


@pytest.mark.deep
def test_what_was_made_by_other_settings_is_made_anew(spark: SparkSession, archive: Path, guessed: Path) -> None:
    text = CdcFlow.from_mapping({"topic": TOPIC, "columns": {**COLUMNS, "due": "STRING"}, "max_microbatch_bytes": 1})
    assert again(spark, archive, guessed, dry_run=True, flows={TOPIC: text}).columns["due"] == ("BIGINT", "STRING")
    again(spark, archive, guessed)
    assert rows(spark, guessed)[1] == ROW


@pytest.mark.deep
def test_versions_are_retyped_with_their_log(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [bare(1)])
    write_records(archive / "2.jsonl", [sqlserver("u", commit=9, after={**bare(1)["value"]["after"], "note": "second"}, offset=9)])
    kept = {"stored_as_scd_type": 2, "max_microbatch_bytes": 1}
    guessing = CdcFlow(TOPIC, on_unknown_types=OnUnknownTypes.GUESS, scd_columns=CHOSEN, **kept)
    apply(archive, lake, flows={TOPIC: guessing})
    right = {TOPIC: CdcFlow.from_mapping({"topic": TOPIC, "columns": COLUMNS, "scd_columns": CHOSEN.to_json(), **kept})}
    for other, words in ((replace(guessing, scd_columns=ScdColumns()), "was made with scd_columns"), (RIGHT, "was made as scd2")):
        with pytest.raises(TableModeError, match=words):
            again(spark, archive, lake, flows={TOPIC: other})
    assert again(spark, archive, lake, flows=right).columns == CHANGED
    # An event in between, which came late, is sorted in by the log.
    write_records(
        archive / "3.jsonl", [sqlserver("u", commit=5, after={**bare(1)["value"]["after"], "note": "between"}, offset=0, partition=1)]
    )
    apply(archive, lake, flows=right)
    history = [each["note"] for each in read_rows(spark, str(lake), TOPIC, history=True).rows]
    assert history == ["first", "between", "second"]
    log = FlowState(fsspec.filesystem("file"), str(lake), TOPIC).folder
    assert columns_of(spark, str(lake / "_cdc" / "flows" / log / "events"))["total"] == "DECIMAL(12,2)"


def test_a_flow_without_a_table_and_one_whose_files_are_gone_are_refused(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, guessed: Path
) -> None:
    with pytest.raises(ConfigurationError, match="knows no flow other"):
        retype(Retyping(spark, str(archive), str(lake), "other"))
    (archive / "2.jsonl").unlink()
    with pytest.raises(TableChangedError, match="microbatch 2 cannot be applied once more"):
        again(spark, archive, lake)
    assert types(spark, lake)["total"] == "STRING"
    assert rows(spark, lake) == {number: bare(number)["value"]["after"] for number in (1, 2)}


@pytest.mark.deep
def test_of_several_flows_one_that_fails_stops_no_other(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    orders = "server1.testDB.dbo.orders"
    write_records(archive / "1.jsonl", [bare(1)])
    write_records(archive / "2.jsonl", [sqlserver("c", commit=2, after={"id": 2}, topic=orders, offset=0)])
    apply(archive, lake, flows={TOPIC: GUESSED})
    (archive / "2.jsonl").unlink()
    lines: list[str] = []
    run = FlowsRetyping(spark, str(archive), str(lake), ("*",), flows={TOPIC: RIGHT}, progress=lines.append)
    # A name that matches nothing stops everything: silence would look like success.
    with pytest.raises(ConfigurationError, match=r"knows no flow \*\.odrers"):
        retype_flows(replace(run, tables=("*", "*.odrers")))

    report = retype_flows(run)

    assert RetypeReport.from_json(report.to_json()) == report
    found = {flow.flow: flow for flow in report.flows}
    assert (found[orders].error or {})["type"] == "TableChangedError"
    assert found[TOPIC].retyped == Retyped(TOPIC, CHANGED, (1, 1), (0, 0), is_done=True)
    assert rows(spark, lake) == {1: row(1)}
    assert f"{TOPIC}: the table was replaced" in lines
