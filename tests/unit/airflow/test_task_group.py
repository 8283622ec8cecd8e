"""A group of tasks in a Dag of one's own: wired as the shipped Dags are, and run by Airflow."""

from __future__ import annotations

import json
from typing import Any

import pytest
from airflow.sdk import DAG, Asset, AssetAlias, task

from airflow_cdc.assets import table_asset
from airflow_cdc.task_group import CdcTaskGroup
from tests.unit.airflow.dag_bag import dag_bag
from tests.unit.airflow.test_dags import DAGS

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"
MAINTAINED = {"ok": True, "lake": "l", "dry_run": False, "flows": [], "error": None}


def edges(dag: Any, prefix: str = "") -> set[tuple[str, str]]:
    return {(each.task_id.removeprefix(prefix), other.removeprefix(prefix)) for each in dag.tasks for other in each.downstream_task_ids}


def run(scene: Any, dag: DAG) -> dict[str, set[str]]:
    """Run a Dag by a stand-in of spark-submit, and return its tasks' states; of a mapped task those of all its instances."""
    scene.save(dag)
    found: dict[str, set[str]] = {}
    for instance in dag.test().get_task_instances():
        found.setdefault(instance.task_id, set()).add(str(instance.state))
    return found


@pytest.mark.parametrize(("file", "max_groups"), [("cdc_merge", 1), ("cdc_merge_groups", 8)])
def test_its_tasks_and_their_order_are_those_of_the_shipped_dag(file: str, max_groups: int) -> None:
    shipped = dag_bag(DAGS / f"{file}.py").dags[file]
    with DAG("own", schedule=None) as dag:
        CdcTaskGroup("cdc", max_groups=max_groups)
    assert edges(dag, "cdc.") == edges(shipped)
    theirs = {each.task_id: each for each in shipped.tasks}
    for each in dag.tasks:
        assert type(each) is type(theirs[each.task_id.removeprefix("cdc.")])
        limits = ("max_active_tis_per_dag", "max_active_tis_per_dagrun")
        assert [getattr(each, name) for name in limits] == [getattr(theirs[each.task_id.removeprefix("cdc.")], name) for name in limits]


@pytest.mark.slow
def test_a_run_merges_then_maintains_then_goes_on_and_one_with_nothing_to_do_is_skipped(scene: Any, airflow_database: None) -> None:
    with DAG("own", schedule=None) as dag:

        @task
        def report() -> None:
            """Stand for what follows."""

        submit = {"spark_binary": str(scene.spark_submit)}
        CdcTaskGroup("cdc", tables=TOPIC, merge=submit, maintain={**submit, "vacuum_after_days": 14}) >> report()
    scene.land("0000000000")
    written = f"open(sys.argv[sys.argv.index('--report') + 1], 'w').write({json.dumps(MAINTAINED)!r})"
    maintains = f"import sys\nif 'maintain.py' in ' '.join(sys.argv):\n    {written}\n    sys.exit()\n"
    first, rest = scene.spark_submit.read_text().split("import argparse", 1)
    scene.submit_by(f"{first}{maintains}import argparse{rest}")
    done = {"cdc.wait_for_files": {"success"}, "cdc.merge": {"success"}, "cdc.maintain": {"success"}, "report": {"success"}}
    assert run(scene, dag) == done
    assert ("--table", TOPIC) in scene.pairs
    assert run(scene, dag) == {name: {"skipped"} for name in done}


def test_groups_are_merged_by_mapped_tasks(scene: Any, airflow_database: None) -> None:
    with DAG("own", schedule=None) as dag:
        CdcTaskGroup("cdc", max_groups=2, merge={"spark_binary": str(scene.spark_submit), "check_transactions": True})
    scene.land("0000000000")
    scene.land("0000000000", topic=OTHER_TOPIC)
    states = run(scene, dag)
    assert states == {f"cdc.{name}": {"success"} for name in ("survey", "plan", "merge_group")}
    assert "--check-transactions" in scene.arguments


@pytest.mark.parametrize(
    ("tables", "outlets"),
    [
        ([TOPIC, OTHER_TOPIC], [table_asset(TOPIC, lake_conn_id="lake_a"), table_asset(OTHER_TOPIC, lake_conn_id="lake_a")]),
        ("server.*", ["cdc_tables:lake_a"]),
        (["!x"], ["cdc_tables:lake_a"]),
        (None, ["cdc_tables:lake_a"]),
        ("{{ params.tables }}", ["cdc_tables:lake_a"]),
    ],
)
@pytest.mark.parametrize("max_groups", [1, 3])
def test_its_merges_announce_the_tables_that_are_named_and_the_alias_otherwise(tables: Any, outlets: list[Any], max_groups: int) -> None:
    with DAG("own", schedule=None) as dag:
        CdcTaskGroup("cdc", tables=tables, lake_conn_id="lake_a", max_groups=max_groups)
    merge = dag.task_dict["cdc.merge" if max_groups == 1 else "cdc.merge_group"]
    given = merge.outlets if max_groups == 1 else merge.partial_kwargs["outlets"]
    assert [each.name if isinstance(each, AssetAlias) else each for each in given] == outlets
    assert [each.task_id for each in dag.tasks if each is not merge and getattr(each, "outlets", None)] == []


def test_two_groups_stand_in_one_dag_and_what_is_given_overrides() -> None:
    asset = Asset("x-cdc://lake/orders")
    with DAG("own", schedule=None, default_args={"retries": 1}) as dag:
        first = CdcTaskGroup("one", tables="a.*", merge={"outlets": [asset], "by_data_interval": True}, default_args={"retries": 5})
        first >> CdcTaskGroup("two", tables="b.*")
    assert dag.task_dict["one.merge"].outlets == [asset]
    assert dag.task_dict["one.wait_for_files"].by_data_interval is True
    assert [dag.task_dict[f"{name}.merge"].retries for name in ("one", "two")] == [5, 1]
    assert ("one.merge", "two.wait_for_files") in edges(dag)


@pytest.mark.parametrize("wrong", [{"max_groups": 0}, {"at_once": 0}])
def test_no_group_at_all_is_refused(wrong: dict[str, int]) -> None:
    with DAG("own", schedule=None), pytest.raises(ValueError, match="expected 1 or more"):
        CdcTaskGroup("cdc", **wrong)  # type: ignore[arg-type]
