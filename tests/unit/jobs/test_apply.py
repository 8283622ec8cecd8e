"""What the job's arguments ask the run for, and how it takes and keeps the storage's credentials."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.jobs import apply, run_job
from airflow_cdc.model.archive.archive_shape import ArchiveFormat, ArchiveLayout, ArchiveShape
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.storage import JobStorage
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark import session, storage


@dataclass
class Job:
    """A job whose Spark and run are only written down."""

    folder: Path
    runs: list[ArchiveRun] = field(default_factory=list)
    options: Mapping[str, str] = field(default_factory=dict)
    remote: str | None = None
    starts: int = 0
    farewells: list[object] = field(default_factory=list)
    failure: Exception | None = None

    uses_spark: bool = True

    def start(self, _: str, *, options: Mapping[str, str], remote: str | None = None, master: str | None = None) -> SparkSession:
        assert master is None, "spark-submit chooses it"
        self.starts += 1
        self.options, self.remote = options, remote
        return cast("SparkSession", SimpleNamespace(version="4.2"))

    def apply(self, run: ArchiveRun) -> ApplyReport:
        self.runs.append(run)
        if self.uses_spark:
            assert run.spark.version == "4.2"
        if self.failure:
            raise self.failure
        return ApplyReport(run.archive, run.lake)

    def main(self, *arguments: str, archive: str = "/a") -> dict[str, Any]:
        report = self.folder / "report.json"
        apply.main(["--archive", archive, "--lake", "/l", "--report", str(report), *arguments])
        document: dict[str, Any] = json.loads(report.read_text())
        return document


@pytest.fixture
def job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    recorded = Job(tmp_path)
    # At once for a server, and late for a Spark of its own.
    monkeypatch.setattr(run_job, "start_session", recorded.start)
    monkeypatch.setattr(session, "start_session", recorded.start)
    monkeypatch.setattr(run_job, "die_with_parent", lambda farewell: None)
    monkeypatch.setattr(run_job, "end_on_sigterm", recorded.farewells.append)
    monkeypatch.setattr(apply, "apply_archive", recorded.apply)
    monkeypatch.setattr(storage, "_OPTIONS", {})
    return recorded


@pytest.mark.parametrize(
    ("switches", "asked"),
    [([], (False, False)), (["--check-transactions"], (True, False)), (["--consistent"], (False, True))],
)
def test_the_job_looks_at_transactions_only_on_request(switches: list[str], asked: tuple[bool, bool], job: Job) -> None:
    assert job.main(*switches)["ok"] is True
    assert [(run.check_transactions, run.consistent) for run in job.runs] == [asked]


def test_the_run_s_engine_is_each_flow_s_own_unless_one_is_named(job: Job) -> None:
    job.main()
    job.main("--engine", "native")
    assert [run.engine for run in job.runs] == [None, Engine.NATIVE]


def test_the_run_only_surveys_on_request(job: Job) -> None:
    job.main()
    job.main("--only-survey")
    assert [run.only_survey for run in job.runs] == [False, True]


def test_the_run_knows_what_the_archive_shall_hold(job: Job) -> None:
    job.main()
    job.main("--layout", "sink", "--format", "avro")
    assert [run.expected for run in job.runs] == [ArchiveShape(), ArchiveShape(ArchiveLayout.SINK, ArchiveFormat.AVRO)]


def test_credentials_are_read_once_and_their_file_is_gone_before_spark_starts(job: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    given = JobStorage({"spark.hadoop.fs.s3a.bucket.b.secret.key": "s3cr3t"}, {"memory://b": {"secret": "s3cr3t"}})
    handed = job.folder / "storage.json"
    handed.write_text(json.dumps(given.to_json()))
    there: list[bool] = []
    monkeypatch.setattr(session, "start_session", lambda _, **given: there.append(handed.exists()) or job.start(_, **given))
    assert job.main("--storage", str(handed))["ok"] is True
    assert there == [False]
    assert (job.options, job.remote) == (given.spark, None)
    # The job's own calls find the store's options by its URL alone.
    assert storage.file_system("memory://b/topics")[0].storage_options == {"secret": "s3cr3t"}
    assert storage.file_system("memory://c/topics")[0].storage_options == {}


def test_a_client_of_a_server_gets_its_url_by_the_same_file_and_ends_what_it_runs_there(job: Job) -> None:
    handed = job.folder / "storage.json"
    handed.write_text(json.dumps(JobStorage({"spark.sql.x": "1"}, remote="sc://h:1/;token=s3cr3t").to_json()))
    assert job.main("--storage", str(handed))["ok"] is True
    assert (job.options, job.remote, handed.exists()) == ({"spark.sql.x": "1"}, "sc://h:1/;token=s3cr3t", False)
    assert job.farewells == [run_job.release_sessions]


def test_a_run_that_uses_no_spark_starts_none_but_asks_a_server_at_once(job: Job) -> None:
    job.uses_spark = False
    assert job.main()["ok"] is True
    assert job.starts == 0
    job.main("--storage", json.dumps(JobStorage(remote="sc://h:1").to_json()))
    assert job.starts == 1


def test_what_is_no_secret_may_stand_in_the_arguments(job: Job) -> None:
    job.main("--storage", json.dumps(JobStorage({"spark.hadoop.x": "1"}).to_json()))
    assert job.options == {"spark.hadoop.x": "1"}


def test_a_store_that_refuses_is_not_asked_again(job: Job) -> None:
    job.failure = PermissionError("Forbidden")
    error = job.main()["error"]
    assert (error["type"], error["transient"]) == ("ConfigurationError", False)
    assert "Check the storage connections' credentials" in error["next_step"]
    for passing in (OSError("time-out"), PermissionError("The provided token has expired.")):
        job.failure = passing
        assert job.main()["error"]["transient"] is True


def test_the_report_is_left_in_a_lake_that_is_mounted_and_has_no_folder_for_it(job: Job, tmp_path: Path) -> None:
    report = tmp_path / "lake" / "_cdc" / "reports" / "r.json"
    assert apply.main(["--archive", "/a", "--lake", "/l", "--report", f"file://{report}"]) == 0
    assert json.loads(report.read_text())["ok"] is True
    assert [found.name for found in report.parent.iterdir()] == ["r.json"]
