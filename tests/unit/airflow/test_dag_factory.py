"""The factory: Dags that Airflow takes, one writer each; a wrong file is the Dag file's import error."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_cdc.dag_factory import cdc_dags
from airflow_cdc.model.errors import ConfigurationError
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
    assert (merge.conf, merge.check_transactions, merge.consistent) == ({"spark.executor.memory": "2g"}, True, False)
    assert (wait.archive_conn_id, wait.lake_conn_id, wait.tables, wait.downstream_task_ids) == ("a", "l", ["a.*"], {"merge"})


def test_a_wrong_schedule_is_told_with_its_place(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"dags\[0\]: schedule is 'at noon', expected cron's five fields"):
        cdc_dags(write(tmp_path, {"dags": [{"dag_id": "d", "tables": ["a"], "schedule": "at noon"}]}))


def test_a_wrong_file_is_the_dag_files_import_error(tmp_path: Path) -> None:
    write(tmp_path, {"dags": [{"dag_id": "d", "table": ["a"]}]})
    found = bag(tmp_path)
    assert found.dags == {}
    (told,) = found.import_errors.values()
    assert f"{tmp_path / 'airflow_cdc.yaml'}: dags[0].table is no setting; known are" in told
    assert "Next step: Correct the file" in told


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
