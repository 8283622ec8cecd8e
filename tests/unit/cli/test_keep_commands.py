"""``maintain`` and ``verify`` on lakes."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.jobs import maintain as maintain_job
from airflow_cdc.jobs import run_job
from airflow_cdc.jobs import verify as verify_job
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.unit.cli.conftest import ANN, CLOSED_LATE, ORDERS, Run, Scene

pytestmark = CLOSED_LATE
URL = "jdbc:derby:memory:cli;create=true"


def test_a_lake_with_nothing_to_do_is_left_alone_and_reported_as_such(scene: Scene, run: Run) -> None:
    ended = run("maintain", "--lake", scene.lake, "--table", "*.orders", "--dry-run", "--json")
    assert ended.code == 0
    assert (ended.document["ok"], ended.document["dry_run"]) == (True, True)
    (flow,) = ended.document["flows"]
    assert (flow["flow"], [(table["kind"], table["actions"]) for table in flow["tables"]]) == (ORDERS, [("target", [])])
    assert ended.document["reports_removed"] == 0
    for_people = run("maintain", "--lake", scene.lake, "--table", "*.orders")
    assert (for_people.code, for_people.stdout) == (0, f"{ORDERS}: nothing to do\n")


def test_old_job_reports_are_counted_by_a_dry_run_and_removed_by_another(scene: Scene, run: Run) -> None:
    report = scene.lake / "_cdc" / "reports" / "old.json"
    report.parent.mkdir()
    report.write_text("{}")
    os.utime(report, (0, 0))
    ended = run("maintain", "--lake", scene.lake, "--table", "*.orders", "--dry-run", "--json")
    assert (ended.code, ended.document["reports_removed"], report.exists()) == (0, 1, True)
    ended = run("maintain", "--lake", scene.lake, "--table", "*.orders")
    assert (ended.code, ended.stdout) == (0, f"{ORDERS}: nothing to do\n1 old job reports removed\n")
    assert not report.exists()


def test_a_flow_that_cannot_be_clustered_fails_alone(scene: Scene, run: Run, tmp_path: Path) -> None:
    flows = tmp_path / "flows.yaml"
    flows.write_text(f"flows: [{{topic: {ORDERS}, cluster_by: [nobody]}}]")
    ended = run("maintain", "--lake", scene.lake, "--flows", flows, "--dry-run", "--json")
    # A dry run asks Delta nothing that it would refuse.
    assert ended.code == 0
    ended = run("maintain", "--lake", scene.lake, "--flows", flows, "--json")
    assert ended.code == 1
    assert {flow["flow"]: flow["error"] and flow["error"]["type"] for flow in ended.document["flows"]} == {
        TOPIC: None,
        ORDERS: "ConfigurationError",
    }
    assert f"{ORDERS}: ConfigurationError" in ended.stderr


@pytest.mark.deep
def test_two_lakes_are_verified_by_their_sums(scene: Scene, run: Run) -> None:
    ended = run("verify", scene.lake, scene.lake, "--json")
    assert (ended.code, ended.document["equal"], len(ended.document["tables"])) == (0, True, 2)
    ended = run("verify", scene.lake, scene.other)
    assert ended.code == 1
    assert f"{TOPIC}: DIFFERENT: 2 rows against 2; the table stands at version" in ended.stdout
    assert f'airflow-cdc diff "{scene.lake}" "{scene.other}" --table "{TOPIC}"' in ended.stdout


@pytest.fixture
def in_process(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    # spark-submit would be this process's parent.
    monkeypatch.setattr(run_job, "die_with_parent", lambda farewell: None)


@pytest.fixture
def versions(spark: SparkSession, tmp_path: Path) -> Path:
    """A lake with one table that keeps every version of its rows."""
    records = [sqlserver("c", commit=1, after=ANN), sqlserver("u", commit=2, before=ANN, after={**ANN, "name": "ann b."})]
    write_records(tmp_path / "archive" / "1.jsonl", numbered(records))
    flows = {TOPIC: CdcFlow(TOPIC, stored_as_scd_type=2)}
    assert apply_archive(ArchiveRun(spark, str(tmp_path / "archive"), str(tmp_path / "versions"), flows)).ok
    return tmp_path / "versions"


@pytest.mark.usefixtures("in_process")
def test_a_history_without_overlaps_ends_with_0_and_one_with_an_overlap_with_1(
    versions: Path, run: Run, spark: SparkSession, tmp_path: Path
) -> None:
    ended = run("verify", versions, "--history", "--json")
    assert (ended.code, ended.document["equal"]) == (0, True), ended.stderr
    (table,) = ended.document["tables"]
    assert (table["flow"], table["rows"], table["overlapping"]) == (TOPIC, 2, 0)
    report = tmp_path / "report.json"
    assert verify_job.main(["--lake", str(versions), "--history", "--report", str(report)]) == 0
    assert json.loads(report.read_text()) == {"format": 1, **ended.document}

    spark.sql(f"UPDATE delta.`{versions / TOPIC}` SET __cdc_valid_to = TIMESTAMP '2100-01-01' WHERE name = 'ann'")
    ended = run("verify", versions, "--history")
    assert ended.code == 1
    assert ended.stdout.startswith(f"{TOPIC}: of 2 versions 1 OVERLAP")
    # A difference is the job's finding, not its failure.
    assert verify_job.main(["--lake", str(versions), "--history", "--report", str(report)]) == 0
    assert json.loads(report.read_text())["equal"] is False


def test_a_lake_without_histories_is_no_proof_of_one(scene: Scene, run: Run) -> None:
    ended = run("verify", scene.lake, "--history")
    assert (ended.code, ended.stdout) == (2, "")
    assert "keeps every version" in " ".join(ended.stderr.split())


@pytest.mark.deep
def test_a_table_is_verified_against_its_source_with_a_password_from_the_environment(
    scene: Scene, run: Run, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = spark.createDataFrame([(1, "ann"), (2, "bob")], "ID INT, NAME STRING")
    rows.write.format("jdbc").options(url=URL, dbtable="PEOPLE").mode("overwrite").save()
    monkeypatch.setenv("SHOP_PASSWORD", "hunter2")
    source = ("--jdbc-url", URL, "--query", "SELECT * FROM PEOPLE", "--jdbc-user", "app", "--jdbc-password-env", "SHOP_PASSWORD")
    ended = run("verify", scene.lake, "--table", TOPIC, *source, "--json")
    assert ended.code == 1
    (table,) = ended.document["tables"]
    assert (table["different"], table["columns"], table["sample"]) == (1, ["name"], [{"side": "different", "id": "2"}])
    assert "hunter2" not in ended.stdout + ended.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["maintain"], "--lake"),
        (["maintain", "--lake", "l", "--vacuum-after-days", "1"], "less than 7 days"),
        (["maintain", "--lake", "l", "--purge-from", "2"], "purge_from is 2"),
        (["maintain", "--lake", "l", "--flows", "nowhere.yaml"], "nowhere.yaml"),
        (["verify", "a", "b", "--jdbc-url", "jdbc:x"], "at most one other side"),
        (["verify", "a", "--history", "--jdbc-url", "jdbc:x"], "at most one other side"),
        (["verify", "a", "--jdbc-url", "jdbc:x", "--query", "q"], "--table with the name of one flow"),
        (["verify", "a", "--jdbc-url", "jdbc:x", "--jdbc-password-env", "NO_SUCH_ONE"], "NO_SUCH_ONE"),
        (["verify", "a", "--jdbc-url", "jdbc:x", "--jdbc-option", "password=hunter2"], "--jdbc-password-env"),
        (["verify", "a", "--jdbc-url", "jdbc:x", "--jdbc-option", "fetchsize"], "'fetchsize' is not key=value"),
    ],
)
def test_a_wrong_command_line_ends_with_2_before_spark_starts(arguments: list[str], message: str, run: Run, no_spark: None) -> None:
    ended = run(*arguments)
    assert (ended.code, ended.stdout) == (2, "")
    assert message in " ".join(ended.stderr.split())


# The jobs that the operators submit: the same pipeline, with a report in every case.


@pytest.mark.usefixtures("in_process")
def test_the_jobs_write_their_report_in_every_case(scene: Scene, tmp_path: Path) -> None:
    report = tmp_path / "report.json"

    def ended(job: object, *arguments: object) -> tuple[int, dict[str, object]]:
        code = job.main([*map(str, arguments), "--report", str(report)])  # type: ignore[attr-defined]
        return code, json.loads(report.read_text())

    code, written = ended(maintain_job, "--lake", scene.lake, "--settings", '{"dry_run": true}')
    assert (code, written["ok"], written["dry_run"]) == (0, True, True)
    code, written = ended(maintain_job, "--lake", scene.lake, "--settings", '{"vacuum_after_days": 1}')
    assert (code, written["ok"], written["error"]["type"]) == (1, False, "ConfigurationError")  # type: ignore[index]
    # A difference is the job's finding, not its failure.
    code, written = ended(verify_job, "--lake", scene.lake, "--other", scene.other)
    assert (code, written["ok"], written["equal"]) == (0, True, False)
    options = tmp_path / "options.json"
    options.write_text(json.dumps({"url": "jdbc:nowhere:x", "query": "q", "password": "hunter2"}))
    code, written = ended(verify_job, "--lake", scene.lake, "--table", TOPIC, "--jdbc", options)
    assert (code, written["error"]["type"]) == (1, "SourceFailedError")  # type: ignore[index]
    assert "hunter2" not in report.read_text()
    assert not options.exists(), "it has a password, and the job has read it"
