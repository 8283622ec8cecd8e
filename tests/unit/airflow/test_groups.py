"""Groups as tasks: the plan, the merges mapped over it, what a retry submits, and the survey before them."""

from __future__ import annotations

import json
import sys
from collections import Counter
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException
from deltalake import DeltaTable

from airflow_cdc.operators.groups import CdcPlanGroupsOperator
from airflow_cdc.operators.survey import CdcSurveyOperator
from tests.support.events import numbered, sqlserver, write_records
from tests.unit.airflow.dag_bag import dag_bag

ORDERS, CUSTOMERS, ITEMS = (f"server.db.{name}" for name in ("orders", "customers", "items"))
DAG_FILE = Path(__file__).parents[3] / "dags" / "cdc_merge_groups.py"
DATES = [datetime(2026, 11, 2, 10, 20, tzinfo=timezone.utc), None]

SUBMIT = '''\
#!{python}
"""Stands for spark-submit: writes down which tables it is asked for, fails the first time it is asked for one, and else does the job."""
import json, os, subprocess, sys
from pathlib import Path

tables = [value for name, value in zip(sys.argv, sys.argv[1:]) if name == "--table"]
log = Path({log!r})
before = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
with log.open("a") as file:
    file.write(json.dumps(tables) + "\\n")
if tables == {fails!r} and tables not in before:
    sys.exit(1)
sys.exit(subprocess.run([{job!r}, *sys.argv[1:]]).returncode)
'''


def plan(**settings: Any) -> CdcPlanGroupsOperator:
    return CdcPlanGroupsOperator(task_id="plan", **settings)


def submissions(scene: Any) -> list[list[str]]:
    log = scene.folder / "submissions.jsonl"
    return [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []


@pytest.fixture
def run_groups(scene: Any, monkeypatch: pytest.MonkeyPatch, airflow_database: None) -> Any:
    """Run the Dag through Airflow with groups of one table each, and return its task instances."""
    scene.connect("spark_default", conn_type="spark", host="spark://127.0.0.1:7077")
    monkeypatch.setenv("PATH", f"{scene.folder / 'bin'}:/usr/bin:/bin")

    def run(logical_date: datetime | None, *, fails: list[str] | None = None) -> tuple[str, list[Any]]:
        (scene.folder / "bin").mkdir(exist_ok=True)
        submit = scene.folder / "bin" / "spark-submit"
        log = str(scene.folder / "submissions.jsonl")
        submit.write_text(SUBMIT.format(python=sys.executable, log=log, fails=fails, job=str(scene.spark_submit)))
        submit.chmod(0o755)
        dag = dag_bag(DAG_FILE).dags["cdc_merge_groups"]
        dag.get_task("plan").group_bytes = 1
        dag.get_task("merge_group").partial_kwargs["retry_delay"] = timedelta(0)
        scene.save(dag)
        found = dag.test(logical_date=logical_date)
        return str(found.state), sorted(found.get_task_instances(), key=lambda ti: (ti.task_id, ti.map_index))

    return run


def states_of(instances: list[Any]) -> list[tuple[str, str, int]]:
    return [(ti.task_id, str(ti.state), ti.try_number) for ti in instances]


@pytest.mark.slow
@pytest.mark.parametrize("logical_date", DATES, ids=["scheduled", "without a date"])
def test_each_group_is_merged_by_a_mapped_task_and_a_retry_submits_only_the_group_that_failed(
    scene: Any, run_groups: Any, logical_date: datetime | None
) -> None:
    for topic in (CUSTOMERS, ITEMS, ORDERS):
        scene.land("0000000000", topic=topic)
    state, instances = run_groups(logical_date, fails=[ITEMS])
    assert state == "success"
    merges = [ti for ti in instances if ti.task_id == "merge_group"]
    assert {ti.rendered_map_index: (str(ti.state), ti.try_number) for ti in merges} == {
        CUSTOMERS: ("success", 1),
        ITEMS: ("success", 2),
        ORDERS: ("success", 1),
    }
    assert Counter(map(tuple, submissions(scene))) == {(CUSTOMERS,): 1, (ITEMS,): 2, (ORDERS,): 1}

    # Nothing waits: no group, no merge, and the run is none that failed.
    state, instances = run_groups(logical_date and logical_date.replace(minute=30))
    assert state == "success"
    assert states_of(instances) == [("merge_group", "skipped", 0), ("plan", "success", 1), ("survey", "success", 1)]
    assert len(submissions(scene)) == 4


@pytest.mark.deep
def test_with_spark_one_application_surveys_and_one_for_each_group_merges(scene: Any, airflow_database: None) -> None:
    for topic in (ORDERS, ITEMS):
        events = [sqlserver("c", commit=number, after={"id": number}, topic=topic) for number in (1, 2)]
        write_records(scene.archive / f"{topic}.jsonl", numbered(events))
    dag = dag_bag(DAG_FILE).dags["cdc_merge_groups"]
    dag.get_task("survey").min_bytes = 0
    dag.get_task("plan").group_bytes = 1
    scene.save(dag)
    instances = dag.test(logical_date=DATES[0].replace(hour=12)).get_task_instances()
    # Without the survey the plan would have known no table, and made one group of all.
    assert {(ti.task_id, ti.rendered_map_index, str(ti.state)) for ti in instances} == {
        ("survey", None, "success"),
        ("plan", None, "success"),
        ("merge_group", ITEMS, "success"),
        ("merge_group", ORDERS, "success"),
    }
    for topic in (ORDERS, ITEMS):
        table = DeltaTable(str(scene.lake / topic))
        assert sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == [1, 2]
    surveys = list((scene.lake / "_cdc" / "archives").glob("*/surveys/*.json"))
    assert len(surveys) == 1


def test_the_plan_is_a_list_of_lists_of_globs_within_what_is_asked_for(scene: Any, context: Any) -> None:
    for topic, count in ((ORDERS, 3), (ITEMS, 2), (CUSTOMERS, 1)):
        for number in range(count):
            scene.land(f"{number:010d}", topic=topic)
    size = len('{"op": "c"}\n')
    groups = plan(group_bytes=str(3 * size), max_groups="5").execute(context)
    assert groups == [[ITEMS, CUSTOMERS], [ORDERS]]
    assert json.loads(json.dumps(groups)) == groups
    assert plan(tables="*.items,*.customers").execute(context) == [[ITEMS, CUSTOMERS]]
    assert plan(tables="nothing.*").execute(context) == []


def test_a_wrong_bound_or_root_fails_the_plan_for_good(scene: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="max_groups is 'many', expected a whole number"):
        plan(max_groups="many").execute(context)
    scene.archive.rmdir()
    with pytest.raises(AirflowFailException, match="There is no archive"):
        plan().execute(context)


def test_a_backfill_is_refused_for_its_groups_could_meet_those_of_a_scheduled_run(scene: Any, context: Any) -> None:
    from airflow.sdk.api.datamodels._generated import DagRunType

    scene.land("0000000000")
    assert plan().execute({**context, "dag_run": SimpleNamespace(run_type=DagRunType.SCHEDULED)}) == [[ORDERS]]
    with pytest.raises(AirflowFailException, match="backfill's"):
        plan().execute({**context, "dag_run": SimpleNamespace(run_type=DagRunType.BACKFILL)})


def test_the_survey_submits_only_where_enough_is_new(scene: Any, context: Any) -> None:
    def survey(**settings: Any) -> Any:
        return CdcSurveyOperator(task_id="survey", spark_binary=str(scene.spark_submit), **settings).execute(context)

    assert survey() == {}
    scene.land("0000000000")
    assert survey(min_bytes=1000) == {}
    assert not (scene.folder / "seen.json").exists()
    survey()
    assert "--only-survey" in scene.arguments
