"""The Dags that ship: they parse without Spark, and run by schedule and by hand."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

DAGS = Path(__file__).parents[3] / "dags"
FILES = sorted(path.name for path in DAGS.glob("*.py"))


def _bag(file: str) -> Any:
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:
        # Airflow 3.1.
        from airflow.models.dagbag import DagBag

    return DagBag(str(DAGS / file))


@pytest.mark.parametrize("file", FILES)
def test_a_dag_parses_without_errors(file: str) -> None:
    bag = _bag(file)
    assert bag.import_errors == {}
    assert bag.dags


@pytest.mark.parametrize("file", FILES)
def test_parsing_imports_neither_spark_nor_the_pipeline(file: str) -> None:
    program = (
        "import runpy, sys; runpy.run_path(sys.argv[1]);"
        "print(sorted(m for m in sys.modules if m.split('.')[0] in ('pyspark', 'py4j', 'delta', 'pandas', 'pyarrow')"
        " or m.startswith('airflow_cdc.pipeline')))"
    )
    told = subprocess.run(
        [sys.executable, "-c", program, str(DAGS / file)], capture_output=True, text=True, check=False, cwd=DAGS.parent, timeout=120
    )
    assert told.stdout.splitlines()[-1:] == ["[]"], told.stderr[-2000:]


@pytest.mark.parametrize("file", FILES)
def test_a_dag_is_quoted_by_the_docs_between_markers(file: str) -> None:
    text = (DAGS / file).read_text()
    name = file.removesuffix(".py")
    assert text.count(f"# [START howto_{name}]") == text.count(f"# [END howto_{name}]") == 1


@pytest.mark.parametrize("task", ["merge", "maintain"])
def test_a_dag_has_one_writer_at_a_time_also_in_backfills(task: str) -> None:
    dags = [dag for file in FILES for dag in _bag(file).dags.values() if dag.has_task(task)]
    assert dags
    for dag in dags:
        # max_active_runs does not hold for backfills.
        assert dag.get_task(task).max_active_tis_per_dag == 1
        assert (dag.max_active_runs, dag.catchup) == (1, False)


@pytest.fixture
def run_dag(scene: Any, monkeypatch: pytest.MonkeyPatch, airflow_database: None) -> Any:
    """Run a Dag through Airflow, the merge's where none is named, with a spark-submit that needs no Spark."""
    from airflow.sdk import DAG

    # A master that is not local takes spark-submit from PATH.
    scene.connect("spark_default", conn_type="spark", host="spark://127.0.0.1:7077")
    monkeypatch.setenv("PATH", f"{scene.folder}:/usr/bin:/bin")

    def run(logical_date: datetime | None, dag_id: str = "cdc_merge", **conf: Any) -> dict[str, Any]:
        dag: DAG = _bag(f"{dag_id}.py").dags[dag_id]
        # Airflow 3.1 does not do it by itself.
        scene.save(dag)
        run = dag.test(logical_date=logical_date, run_conf=conf)
        return {"state": str(run.state), **{ti.task_id: str(ti.state) for ti in run.get_task_instances()}}

    return run


DATES = [datetime(2026, 11, 1, 10, 20, tzinfo=timezone.utc), None]


@pytest.mark.parametrize("logical_date", DATES, ids=["scheduled", "without a date"])
def test_a_run_applies_what_waits_and_the_next_is_skipped(scene: Any, run_dag: Any, logical_date: datetime | None) -> None:
    scene.land("0000000000")
    assert run_dag(logical_date) == {"state": "success", "wait_for_files": "success", "merge": "success"}
    again = logical_date and logical_date.replace(minute=30)
    assert run_dag(again) == {"state": "success", "wait_for_files": "skipped", "merge": "skipped"}


@pytest.mark.parametrize("logical_date", DATES, ids=["scheduled", "without a date"])
def test_the_maintenance_hands_the_forms_values_to_the_job(scene: Any, run_dag: Any, logical_date: datetime | None) -> None:
    scene.submit_leaves({"ok": True, "lake": "l", "dry_run": True, "flows": [], "error": None}, exit_code=0)
    form = {"tables": ["a.*", "b"], "vacuum_after_days": 14, "only_plan": True}
    assert run_dag(logical_date, "cdc_maintenance", **form) == {"state": "success", "maintain": "success"}
    settings = json.loads(dict(scene.pairs)["--settings"])
    assert (settings["vacuum_after_days"], settings["expire_after_days"], settings["purge_from"]) == (14, 30, 0.1)
    assert settings["dry_run"] is True
    assert [value for name, value in itertools.pairwise(scene.arguments) if name == "--table"] == ["a.*", "b"]


def test_files_that_land_start_the_merge_by_a_watcher_and_it_runs_by_hand_too(scene: Any, run_dag: Any) -> None:
    from airflow_cdc.triggers.archive_event import CdcArchiveEventTrigger

    dag = _bag("cdc_merge_on_files.py").dags["cdc_merge_on_files"]
    (asset,) = dag.timetable.asset_condition.objects
    (watcher,) = asset.watchers
    trigger = watcher.trigger
    assert CdcArchiveEventTrigger(**trigger["kwargs"] if isinstance(trigger, dict) else trigger.serialize()[1]).poke_interval == 30
    scene.land("0000000000")
    assert run_dag(None, "cdc_merge_on_files") == {"state": "success", "merge": "success"}
    assert scene.arguments.count("--table") == 0
