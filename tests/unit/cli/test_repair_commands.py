"""``quarantine replay``, and the jobs that the operators of repairs submit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.jobs import rebuild, replay, reprocess, retype, run_job
from tests.support.events import TOPIC, lsn
from tests.support.tables import read_rows
from tests.unit.cli.conftest import ANN, CLOSED_LATE, ORDERS, Run, Scene

pytestmark = CLOSED_LATE


@pytest.mark.deep
def test_what_still_cannot_be_merged_stays_set_aside_and_is_reported(scene: Scene, run: Run) -> None:
    flow = ("--archive", scene.archive, "--lake", scene.lake, "--flows", scene.flows)
    ended = run("quarantine", "replay", TOPIC, *flow, "--json")
    assert ended.code == 0, ended.stderr
    document = ended.document
    assert set(document) == {"flow", "dry_run", "files", "found", "report"}
    assert (document["files"], document["found"]["rejects"], document["report"]) == (1, {"missing_key": 1}, None)
    assert [row["microbatch"] for row in run("quarantine", "list", "--lake", scene.lake, "--json").document["quarantine"]] == [1]

    for_people = run("quarantine", "replay", ORDERS, *flow, "--reason", "missing_key")
    assert (for_people.code, for_people.stdout) == (0, f"{ORDERS}: nothing to read again\n")
    unknown = run("quarantine", "replay", "x.y.unknown", *flow)
    assert (unknown.code, unknown.stdout) == (2, "")
    assert "knows no flow x.y.unknown" in " ".join(unknown.stderr.split())


@pytest.fixture
def ended(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Run a job in this process; return its exit code and its report."""
    # spark-submit would be this process's parent.
    monkeypatch.setattr(run_job, "die_with_parent", lambda farewell: None)
    report = tmp_path / "report.json"

    def main(job: Any, scene: Scene, *arguments: object) -> tuple[int, dict[str, Any]]:
        given = ["--archive", scene.archive, "--lake", scene.lake, "--flows", scene.flows, *arguments, "--report", report]
        return job.main(list(map(str, given))), json.loads(report.read_text())

    return main


def test_the_jobs_write_their_report_in_every_case(scene: Scene, ended: Any, spark: SparkSession, tmp_path: Path) -> None:
    code, report = ended(reprocess, scene, "--table", TOPIC, "--from-position", lsn(2), "--to-position", lsn(2), "--dry-run")
    ((found, done),) = [(flow["found"], flow["done"]) for flow in report["flows"]]
    assert (code, report["ok"], report["dry_run"], found["events"]["read"], done) == (0, True, True, 1, [])
    code, report = ended(reprocess, scene, "--table", "*.unknown")
    assert (code, report["ok"], report["error"]["type"]) == (1, False, "ConfigurationError")
    # One that fails is reported beside the others; it is no failure of the run.
    code, report = ended(reprocess, scene, "--table", TOPIC, "--from-position", "0/16B3748")
    assert (code, report["error"], report["flows"][0]["error"]["type"]) == (1, None, "ConfigurationError")

    code, report = ended(replay, scene, "--table", "*.customers", "--reason", "missing_key", "--dry-run")
    assert (code, [flow["found"]["rejects"] for flow in report["flows"]]) == (0, [{"missing_key": 1}])
    code, report = ended(replay, scene, "--reason", "bad_luck")
    assert (code, report["flows"], report["error"]["type"]) == (1, [], "ConfigurationError")

    # Without a flow of its name nothing is made in the lake that the tests share.
    code, report = ended(retype, scene, "--table", "*.unknown", "--dry-run")
    assert (code, report["flows"], report["dry_run"], report["error"]["type"]) == (1, [], True, "ConfigurationError")

    new = tmp_path / "new"
    code, report = ended(rebuild, scene, "--table", "*.customers", "--as-of", lsn(1), "--into", new)
    assert (code, report["lake"], [flow["flow"] for flow in report["flows"]]) == (0, str(new), [TOPIC])
    assert list(read_rows(spark, str(new), TOPIC).rows) == [ANN]
    code, report = ended(rebuild, scene, "--into", scene.lake)
    assert (code, report["flows"], report["error"]["type"]) == (1, [], "ConfigurationError")
