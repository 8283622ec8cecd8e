"""Many new files, surveyed by the tasks of a job as in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.columns import FILE
from airflow_cdc.pipeline.spark.late_session import late_session
from airflow_cdc.pipeline.spark.task_job import TasksFailedError
from airflow_cdc.pipeline.survey import survey_in_tasks
from airflow_cdc.pipeline.survey.survey_in_tasks import survey_by_many
from airflow_cdc.pipeline.survey.survey_natively import survey_natively
from tests.support.events import sqlserver, write_records


@pytest.fixture
def files(tmp_path: Path) -> list[ArchivedFile]:
    """Seven files of one record; the third has a line that only Spark's survey reads."""
    found = []
    for number in range(7):
        path = write_records(tmp_path / f"é {number}.jsonl", [sqlserver("c", commit=1, after={"id": number, "☃": "x"}, offset=number)])
        if number == 2:
            path.write_text("[]\n")
        found.append(ArchivedFile(path.name, path.stat().st_size, "t"))
    return found


@pytest.fixture
def many(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cluster, and any text counts as much."""
    monkeypatch.setattr(survey_in_tasks, "has_cluster", lambda _spark: True)
    monkeypatch.setattr(survey_in_tasks, "FROM_BYTES", 0)
    monkeypatch.setattr(survey_in_tasks, "_OF_TASK", 1000)


def in_order(found: tuple[list[dict[str, Any]], list[ArchivedFile]]) -> tuple[list[dict[str, Any]], list[ArchivedFile]]:
    return sorted(found[0], key=lambda row: str(row[FILE])), found[1]


@pytest.mark.usefixtures("many")
def test_tasks_find_what_this_process_does(files: list[ArchivedFile], spark: SparkSession, tmp_path: Path) -> None:
    others = ArchivedFile("a.parquet", 2**40, "t", format=FileFormat.PARQUET)
    found = in_order(survey_by_many(spark, str(tmp_path), [others, *files]))
    assert found == in_order(survey_natively(str(tmp_path), [others, *files]))
    assert (len(found[0]), found[1]) == (6, [others, files[2]])


@pytest.mark.usefixtures("many")
def test_where_the_job_fails_this_process_looks(
    files: list[ArchivedFile], spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def fail(_spark: SparkSession, _function: Callable[..., Any], count: int) -> list[str]:
        asked.append(count)
        raise TasksFailedError("an executor was lost")

    monkeypatch.setattr(survey_in_tasks, "call_in_tasks", fail)
    assert survey_by_many(spark, str(tmp_path), files) == survey_natively(str(tmp_path), files)
    assert asked[0] > 1


def never() -> SparkSession:
    raise AssertionError("Spark was started.")


@pytest.mark.parametrize(("text", "master"), [(2**30 - 1, "yarn"), (2**34, "local[*]")])
def test_little_text_and_a_local_master_start_nothing(text: int, master: str, tmp_path: Path) -> None:
    none = [ArchivedFile("gone.jsonl", text, "t")]
    assert survey_by_many(late_session(never, master=master), str(tmp_path), none) == ([], none)
