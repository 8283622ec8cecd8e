"""What transaction topics announce against what is archived."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.archive.transactions import Lacking, TransactionReport
from airflow_cdc.model.report.apply_report import FlowStatus
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.pipeline.run import apply_archive
from airflow_cdc.pipeline.survey.check_transactions import check_transactions
from airflow_cdc.pipeline.survey.survey_files import survey_files
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, record, sqlserver, write_records

FS = fsspec.filesystem("file")
CAPTURE = Path(__file__).parents[3] / "golden" / "captures" / "sqlserver_synth"


def of(transaction: str, order: int, event: dict[str, Any]) -> dict[str, Any]:
    """Return the event as the order-th of its table in a transaction."""
    metadata = {"id": transaction, "total_order": order, "data_collection_order": order}
    return {**event, "value": {**event["value"], "transaction": metadata}}


def ending(transaction: str, count: int) -> dict[str, Any]:
    announced = {"testDB.dbo.customers": count, "testDB.dbo.not_archived": 9}
    collections = [{"data_collection": name, "event_count": number} for name, number in announced.items()]
    value = {"status": "END", "id": transaction, "event_count": count, "data_collections": collections, "ts_ms": 1}
    return record("server1.transaction", {"id": transaction}, value, 0)


@pytest.mark.deep
def test_a_run_that_is_asked_reports_which_transactions_lack_events_until_they_come(apply: Apply, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    creates = [sqlserver("c", commit=number, after={"id": number}) for number in range(4)]
    changes = [of("7:100", 1, creates[0]), of("7:101", 2, creates[1]), of("8:200", 1, creates[2])]
    first, second, third, fourth = numbered([*changes, creates[3]])
    write_records(archive / "1.jsonl", [first, first, third, fourth, ending("7:103", 2), ending("7:103", 0)])
    assert apply(archive, lake).transactions == ()
    report = apply(archive, lake, check_transactions=True)
    assert report.transactions == (TransactionReport("server1", (Lacking("7", TOPIC, 2, 1),), 1, 1),)

    write_records(archive / "2.jsonl", [second, ending("8:201", 1)])
    assert apply(archive, lake, check_transactions=True).transactions == (TransactionReport("server1"),)
    # A copy of a part of what is whole opens nothing.
    write_records(archive / "3.jsonl", [second, ending("7:103", 2)])
    assert apply(archive, lake, check_transactions=True).transactions == (TransactionReport("server1"),)


@pytest.mark.deep
@pytest.mark.parametrize("layout", ["s3/topics", "archive/schema"])
def test_a_real_capture_lacks_nothing_and_without_one_file_just_that_files_events(spark: SparkSession, tmp_path: Path, layout: str) -> None:
    for name, lost in (("whole", None), ("less", "dbo.ring+0+0000000500" if layout.startswith("s3") else "dbo.ring")):
        archive = tmp_path / name
        shutil.copytree(CAPTURE / layout, archive)
        lacked = [path.unlink() for path in archive.rglob("*.json*") if lost and lost in path.name]
        state = ArchiveState(FS, str(tmp_path / f"lake-{name}"), str(archive))
        files, shapes = survey_files(spark, str(archive), list_archive(FS, str(archive)).files)
        state.add(Survey(state.archive, 1, files, shapes))
        (report,) = check_transactions(spark, state, state.ledger(), files).reports(state.ledger().tables())
        # The capture's README: 1364 BEGIN, 1363 END.
        assert report.without_end == 1
        if lost and layout.startswith("s3"):
            assert lacked
            assert report.incomplete > 0
            assert {item.topic for item in report.lacking} == {"mssql.testDB.dbo.ring"}
        else:
            # A table of which no file is there is not waited for.
            assert (report.lacking, report.incomplete) == ((), 0)


def test_a_check_that_fails_does_not_hide_what_was_applied(apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise PySparkException("no space left")

    monkeypatch.setattr(apply_archive, "check_transactions", fails)
    write_records(tmp_path / "archive" / "1.jsonl", numbered([sqlserver("c", commit=1, after={"id": 1})]))
    report = apply(tmp_path / "archive", tmp_path / "lake", check_transactions=True, may_fail=True)
    assert report.flows[0].status is FlowStatus.APPLIED
    assert report.error
    assert (report.error["type"], report.ok) == ("SparkFailedError", False)
    assert "no space left" in report.error["message"]
