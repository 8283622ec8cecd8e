"""``@task.cdc_merge``: the tables that a function names when the task runs, and no others."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSkipException
from airflow.sdk import DAG, task

from airflow_cdc.decorators.merge import cdc_merge_task
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.operators.merge import CdcMergeOperator

TOPIC = "server.db.orders"


def operator(scene: Any, function: Any, **arguments: Any) -> Any:
    """Return the operator that a decorated function makes in a Dag."""
    with DAG("chosen", schedule=None) as dag:
        cdc_merge_task(spark_binary=str(scene.spark_submit), **arguments)(function)()
    return dag.get_task(function.__name__)


_IS_INSTALLED = any(each.module == "airflow_cdc.get_provider_info" for each in entry_points(group="apache_airflow_provider"))


@pytest.mark.skipif(not _IS_INSTALLED, reason="Airflow discovers installed packages only (make test-min-versions imports the folder)")
def test_airflow_discovers_it() -> None:
    with DAG("chosen", schedule=None) as dag:
        task.cdc_merge(task_id="some")(lambda: ["a"])()
    assert isinstance(dag.get_task("some"), CdcMergeOperator)


def test_the_tables_that_the_function_names_are_merged(scene: Any, context: Any) -> None:
    def chosen(params: dict[str, str]) -> list[str]:
        return [f"server.db.{params['name']}", " other.* "]

    scene.land("0000000000")
    result = operator(scene, chosen).execute({**context, "params": {"name": "orders"}})
    assert result["flows"][TOPIC]["status"] == "applied"
    given = [scene.arguments[place + 1] for place, each in enumerate(scene.arguments) if each == "--table"]
    assert given == [TOPIC, "other.*"]


def test_arguments_of_the_call_come_before_the_contexts(scene: Any, context: Any) -> None:
    def chosen(schema: str, *, name: str, **rest: Any) -> list[str]:
        return [f"{schema}.{name}.{rest['params']['x']}"]

    with DAG("chosen", schedule=None) as dag:
        cdc_merge_task(spark_binary=str(scene.spark_submit))(chosen)("server", name="db")
    scene.land("0000000000")
    made = dag.get_task("chosen")
    made.execute({**context, "params": {"x": "orders"}})
    assert made.tables == [TOPIC]


def test_a_text_with_commas_names_tables_too(scene: Any, context: Any) -> None:
    def chosen() -> str:
        return "server.db.orders, server.db.lines"

    scene.land("0000000000")
    made = operator(scene, chosen)
    made.execute(context)
    assert made.tables == [TOPIC, "server.db.lines"]


def test_no_table_skips_the_task_and_merges_nothing(scene: Any, context: Any) -> None:
    def chosen() -> list[str]:
        return []

    scene.land("0000000000")
    with pytest.raises(AirflowSkipException, match="chosen named no flow"):
        operator(scene, chosen).execute(context)
    assert not scene.lake.exists()


@pytest.mark.parametrize("returned", [None, "", " ", [" "], ["a", None], {"a": 1}, 7])
def test_what_names_no_table_never_means_every_table(scene: Any, context: Any, returned: Any) -> None:
    def chosen() -> Any:
        return returned

    scene.land("0000000000")
    with pytest.raises(AirflowFailException, match=r"expected names of flows.*for every flow return \['\*'\], for none \[\]"):
        operator(scene, chosen).execute(context)
    assert not scene.lake.exists()


def test_tables_beside_the_function_are_refused_while_the_dag_is_parsed() -> None:
    with DAG("chosen", schedule=None), pytest.raises(ConfigurationError, match="names the tables too"):
        cdc_merge_task(tables=["a"])(lambda: ["b"])()
