"""Functions in the tasks of a Spark job: what they give, what fails them for good, and whether there is a cluster at all."""

from __future__ import annotations

from collections.abc import Iterator
from unittest.mock import Mock

import pytest
from pyspark.errors import PythonException
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.spark import task_job
from airflow_cdc.pipeline.spark.late_session import late_session
from airflow_cdc.pipeline.spark.task_job import TasksFailedError, call_in_tasks, has_cluster


@pytest.fixture(autouse=True)
def nothing_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_job, "_unable", [])
    monkeypatch.delenv("PYSPARK_GATEWAY_PORT", raising=False)


def squares(number: int) -> Iterator[str]:
    yield from (f"{number}", f"{number * number}") if number else ()


def test_each_number_is_a_task_that_gives_texts(spark: SparkSession) -> None:
    assert call_in_tasks(spark, squares, 4) == ["1", "1", "2", "4", "3", "9"]


def needs_a_package(_number: int) -> Iterator[str]:
    import a_package_that_is_not_there

    yield str(a_package_that_is_not_there)


def breaks(_number: int) -> Iterator[str]:
    raise ValueError("this group is odd")


def test_executors_without_a_package_are_asked_once(spark: SparkSession) -> None:
    with pytest.raises(TasksFailedError, match="ModuleNotFoundError: No module named 'a_package_that_is_not_there'"):
        call_in_tasks(spark, needs_a_package, 1)
    asked_again = Mock(spec_set=())
    with pytest.raises(TasksFailedError, match="ModuleNotFoundError"):
        call_in_tasks(asked_again, squares, 1)


def test_another_failure_is_one_of_its_job(spark: SparkSession) -> None:
    with pytest.raises(TasksFailedError):
        call_in_tasks(spark, breaks, 1)
    assert call_in_tasks(spark, squares, 2) == ["1", "1"]


def test_another_python_fails_executors_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    failing = Mock()
    failing.range().mapInArrow().collect.side_effect = PythonException("[PYTHON_VERSION_MISMATCH] Python in worker has 3.9, driver 3.11")
    with pytest.raises(TasksFailedError, match="PYTHON_VERSION_MISMATCH"):
        call_in_tasks(failing, squares, 1)
    assert task_job._unable


def never() -> SparkSession:
    raise AssertionError("Spark was started.")


@pytest.mark.parametrize(
    ("master", "expected"),
    [(None, False), ("local[*]", False), ("local", False), ("spark://host:7077", True), ("yarn", True), ("k8s://https://host", True)],
)
def test_whether_there_is_a_cluster_is_known_before_spark_starts(master: str | None, expected: bool) -> None:
    assert has_cluster(late_session(never, master=master)) is expected


def test_the_submitter_s_master_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_job, "_master_of_submitter", lambda: "yarn")
    assert has_cluster(late_session(never, master="local[*]"))


def test_a_local_master_is_no_cluster(spark: SparkSession) -> None:
    assert not has_cluster(spark)
