"""The factory: Dags that Airflow takes, one writer each; a wrong file is the Dag file's import error."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.models.serialized_dag import SerializedDagModel
from airflow.serialization.serialized_objects import LazyDeserializedDAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_cdc.assets import table_asset, tables_alias
from airflow_cdc.dag_factory import cdc_dags
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.operators.merge import CdcMergeOperator
from tests.unit.airflow.dag_bag import dag_bag

DAG_FILE = (Path(__file__).parents[3] / "dags" / "cdc_tables.py").read_text()


def write(folder: Path, document: dict[str, Any]) -> Path:
    file = folder / "airflow_cdc.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def bag(folder: Path) -> Any:
    (folder / "cdc_tables.py").write_text(DAG_FILE)
    return dag_bag(folder)


def test_settings_reach_the_dag_and_its_tasks(tmp_path: Path) -> None:
    entry = {"dag_id": "d", "tables": ["a.*"], "schedule": None, "pool": "spark", "retries": 7, "retry_delay": 5, "owner": "me"}
    more = {"tags": ["x"], "conf": {"spark.executor.memory": "2g"}, "check_transactions": True, "start_date": yaml.safe_load("2026-05-01")}
    conn_ids = {"archive_conn_id": "a", "lake_conn_id": "l", "spark_conn_id": "s"}
    (dag,) = cdc_dags(write(tmp_path, {**conn_ids, "dags": [{**entry, **more}]})).values()
    assert (dag.dag_id, dag.schedule, dag.tags, dag.catchup, dag.max_active_runs) == ("d", None, {"x"}, False, 1)
    assert str(dag.start_date) == "2026-05-01 00:00:00+00:00"
    wait, merge = dag.get_task("wait_for_files"), dag.get_task("merge")
    assert (merge.pool, merge.max_active_tis_per_dag, merge.retries, merge.retry_delay.total_seconds(), merge.owner) == (
        "spark",
        1,
        7,
        5,
        "me",
    )
    assert (merge.archive_conn_id, merge.lake_conn_id, merge._conn_id, merge.tables) == ("a", "l", "s", ["a.*"])
    assert merge.fail_on_rejects == "never"
    assert (merge.conf, merge.check_transactions, merge.consistent) == ({"spark.executor.memory": "2g"}, True, False)
    assert (wait.archive_conn_id, wait.lake_conn_id, wait.tables, wait.downstream_task_ids) == ("a", "l", ["a.*"], {"merge"})


def test_callbacks_and_limits_of_a_try_reach_the_tasks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_alerts.py").write_text("def page(context): ...\ndef note(context): ...\nNOT_ONE = 7\n")
    monkeypatch.syspath_prepend(tmp_path)
    alerts = {"on_failure_callback": "my_alerts.page", "on_retry_callback": "my_alerts.note", "on_success_callback": "my_alerts.note"}
    bounds = {"execution_timeout": 7200, "queue": "big", "deferrable": True}
    (dag,) = cdc_dags(write(tmp_path, {"defaults": alerts, "dags": [{"dag_id": "d", "tables": ["a"], **bounds}]})).values()
    import my_alerts  # type: ignore[import-not-found]

    wait, merge = dag.get_task("wait_for_files"), dag.get_task("merge")
    for task in (wait, merge):
        assert [list(callbacks) for callbacks in (task.on_failure_callback, task.on_retry_callback)] == [
            [my_alerts.page],
            [my_alerts.note],
        ]
        assert task.queue == "big"
    assert (list(merge.on_success_callback), list(wait.on_success_callback)) == ([my_alerts.note], [])
    assert (merge.execution_timeout, wait.execution_timeout, merge.deferrable) == (timedelta(hours=2), None, True)
    for name, cause in (("gone", "ImportError: cannot|AttributeError: module"), ("NOT_ONE", "expected a function, seen a int")):
        with pytest.raises(ConfigurationError, match=rf"dags\[0\]: on_failure_callback is 'my_alerts.{name}', .*({cause})"):
            cdc_dags(write(tmp_path, {"dags": [{"dag_id": "d", "tables": ["a"], "on_failure_callback": f"my_alerts.{name}"}]}))


def test_what_the_file_leaves_to_airflow_is_airflows(tmp_path: Path) -> None:
    (dag,) = cdc_dags(write(tmp_path, {"dags": [{"dag_id": "d", "tables": ["a"]}]})).values()
    merge, bare = dag.get_task("merge"), CdcMergeOperator(task_id="bare")
    for name in ("deferrable", "queue", "pool", "execution_timeout", "on_failure_callback", "on_retry_callback", "on_success_callback"):
        assert getattr(merge, name) == getattr(bare, name), name


def test_by_data_interval_gives_a_dag_intervals_and_its_tasks_the_same_files(tmp_path: Path) -> None:
    entries = [{"dag_id": "by", "tables": ["a"], "by_data_interval": True, "schedule": "@daily"}, {"dag_id": "not", "tables": ["b"]}]
    dags = cdc_dags(write(tmp_path, {"dags": entries}))
    assert isinstance(dags["by"].timetable, CronDataIntervalTimetable)
    assert [task.by_data_interval for task in dags["by"].tasks] == [True, True]
    assert [task.by_data_interval for task in dags["not"].tasks] == [False, False]
    with pytest.raises(ConfigurationError, match=r"dags\[0\]: schedule is 'at noon'"):
        cdc_dags(write(tmp_path, {"dags": [{**entries[0], "schedule": "at noon"}]}))


def test_a_dag_announces_its_tables_by_name_where_it_knows_them_and_by_the_lakes_alias_where_not(tmp_path: Path) -> None:
    entries = [
        {"dag_id": "d_{table}", "each_table": ["a"]},
        {"dag_id": "names", "tables": ["b", "c"]},
        {"dag_id": "globs", "tables": ["d.*"]},
    ]
    dags = cdc_dags(write(tmp_path, {"lake_conn_id": "l", "dags": entries}))
    outlets = {dag_id: dag.get_task("merge").outlets for dag_id, dag in dags.items()}
    tables = {name: table_asset(name, lake_conn_id="l") for name in "abc"}
    assert outlets == {"d_a": [tables["a"]], "names": [tables["b"], tables["c"]], "globs": [tables_alias("l")]}


def test_an_entry_on_top_makes_no_new_version_of_the_others(tmp_path: Path) -> None:
    entry = {"dag_id": "d_{table}", "each_table": ["a", "b"], "by_data_interval": True}

    def written(*entries: dict[str, Any]) -> str:
        dag = cdc_dags(write(tmp_path, {"dags": list(entries)}))["d_b"]
        return SerializedDagModel.hash(LazyDeserializedDAG.from_dag(dag).data)

    assert written(entry) == written({"dag_id": "new", "tables": ["n"]}, {**entry, "each_table": ["z", "a", "b"]})
    assert written(entry) != written({**entry, "retries": 9})


def test_a_wrong_schedule_is_refused_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"dags\[0\]: schedule is 'at noon', expected cron's five fields"):
        cdc_dags(write(tmp_path, {"dags": [{"dag_id": "d", "tables": ["a"], "schedule": "at noon"}]}))


def test_a_wrong_file_is_the_dag_files_import_error(tmp_path: Path) -> None:
    write(tmp_path, {"dags": [{"dag_id": "d", "table": ["a"]}]})
    found = bag(tmp_path)
    assert found.dags == {}
    (error,) = found.import_errors.values()
    assert f"{tmp_path / 'airflow_cdc.yaml'}: dags[0].table is no setting; known are" in error
    assert "Next step: Correct the file" in error


def test_three_hundred_tables_are_three_hundred_dags_that_airflow_takes_in_a_moment(tmp_path: Path) -> None:
    names = [f"server.db.table_{number}" for number in range(300)]
    rest = {"dag_id": "cdc_rest", "tables": ["*", *(f"!{name}" for name in names)]}
    write(tmp_path, {"defaults": {"pool": "cdc_spark"}, "dags": [{"dag_id": "cdc_{table}", "each_table": names}, rest]})
    begun = time.process_time()
    found = bag(tmp_path)
    seconds = time.process_time() - begun
    assert found.import_errors == {}
    assert len(found.dags) == 301
    assert {dag.fileloc for dag in found.dags.values()} == {str(tmp_path / "cdc_tables.py")}
    assert {dag.get_task("merge").pool for dag in found.dags.values()} == {"cdc_spark"}
    # Airflow gives a Dag file 30 seconds.
    assert seconds < 5
