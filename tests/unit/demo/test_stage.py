"""The demo's folder, and the processes that play in it."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.demo.stage import FolderTakenError, airflow_environment, set_stage
from airflow_cdc.demo.worker import Worker, WorkerFailedError

_WORKER = """
import sys
from airflow_cdc.demo.worker import serve

def handle(order):
    if order["do"] == "end":
        sys.exit(3)
    print("doing", order["do"], flush=True)
    return {"done": 1 / order["by"]}

serve(handle)
"""


def test_a_folder_that_the_demo_did_not_make_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("ten years of work")
    with pytest.raises(FolderTakenError, match="was not made by this demo"):
        set_stage(tmp_path)
    assert (tmp_path / "thesis.txt").read_text() == "ten years of work"


def test_its_own_folder_is_made_anew(tmp_path: Path) -> None:
    stage = set_stage(tmp_path / "demo")
    (stage.lake / "old").mkdir(parents=True)
    stage = set_stage(tmp_path / "demo")
    assert not stage.lake.exists()
    assert stage.dag_file.read_text() == (Path(__file__).parents[3] / "dags" / "cdc_merge.py").read_text()


def test_the_users_own_airflow_is_out_of_reach(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "postgresql://production")
    monkeypatch.setenv("AIRFLOW_CONN_CDC_LAKE_DEFAULT", "s3://production")
    monkeypatch.setenv("AIRFLOW__API__SECRET_KEY", "theirs")
    stage = set_stage(tmp_path / "demo")
    environment = airflow_environment(stage)
    assert "production" not in str(environment)
    assert "AIRFLOW__API__SECRET_KEY" not in environment
    assert str(stage.lake) in environment["AIRFLOW_CONN_CDC_LAKE_DEFAULT"]


@pytest.fixture
def worker(tmp_path: Path) -> Any:
    (tmp_path / "some_worker.py").write_text(_WORKER)
    repository = str(Path(__file__).parents[3])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), repository])}
    with Worker("some_worker", environment, tmp_path) as worker:
        yield worker


def test_a_worker_answers_and_is_watched(worker: Worker) -> None:
    seen: list[str] = []
    assert worker.ask({"do": "it", "by": 4}, seen.append) == {"done": 0.25}
    assert worker.ask({"do": "it again", "by": 2}) == {"done": 0.5}
    assert seen == ["doing it\n"]


def test_a_worker_that_fails_reports_why_and_goes_on(worker: Worker) -> None:
    with pytest.raises(WorkerFailedError, match=r"some_worker failed:\n  ZeroDivisionError: division by zero\n  The whole log: "):
        worker.ask({"do": "it", "by": 0})
    assert worker.ask({"do": "it", "by": 1}) == {"done": 1}


def test_a_worker_that_ends_is_noticed(worker: Worker) -> None:
    with pytest.raises(WorkerFailedError, match="exit code 3"):
        worker.ask({"do": "end"})
    with pytest.raises(WorkerFailedError, match="exit code 3"):
        worker.ask({"do": "it", "by": 1})


def test_the_demo_imports_no_airflow_and_no_spark_of_its_own() -> None:
    # They run in processes of their own, in an environment that is set before they start.
    import subprocess

    program = "import sys, airflow_cdc.demo; print(sorted({'airflow', 'pyspark'} & set(sys.modules)))"
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=Path(__file__).parents[3])
    assert ended.stdout == "[]\n"
