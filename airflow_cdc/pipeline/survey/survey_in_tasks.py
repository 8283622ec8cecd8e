"""Survey many new files in the tasks of one Spark job, as :mod:`airflow_cdc.pipeline.survey.survey_natively` does in this process."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.pipeline.spark.late_session import started
from airflow_cdc.pipeline.spark.task_job import TasksFailedError, call_in_tasks, has_cluster
from airflow_cdc.pipeline.survey.survey_natively import is_of_lines, parts_of, survey_natively

FROM_BYTES = 1024**3
"""Text from which a cluster's tasks look into files instead of the driver."""
_OF_TASK = 256 * 1024**2
"""Text of the files of a task."""


@dataclass(frozen=True, kw_only=True)
class _Work:
    """What the tasks need."""

    archive: str
    groups: Sequence[Sequence[ArchivedFile]]


def survey_by_many(spark: SparkSession, archive: str, files: Sequence[ArchivedFile]) -> tuple[list[dict[str, Any]], list[ArchivedFile]]:
    """Return the shapes and counts of plain files' records, and the files that are left to Spark's own readers.

    In tasks where there is much text and a cluster, else in this process.
    """
    own = [file for file in files if is_of_lines(file)]
    if sum(file.text_size for file in own) < FROM_BYTES or not has_cluster(spark):
        return survey_natively(archive, files)
    work = _Work(archive=archive, groups=list(parts_of(own, _OF_TASK)))
    try:
        found = call_in_tasks(started(spark), partial(_survey_group, work), len(work.groups))
    except TasksFailedError:
        # As with few files: what is too much for this process is Spark's.
        return survey_natively(archive, files)
    read = {file.path for file in own}.difference(*(each["left"] for each in found))
    return [{**row, "at": tuple(row["at"])} for each in found for row in each["rows"]], [file for file in files if file.path not in read]


def _survey_group(work: _Work, number: int) -> Iterator[dict[str, Any]]:
    """Survey a group of files; runs in a task."""
    rows, left = survey_natively(work.archive, work.groups[number])
    yield {"rows": rows, "left": [file.path for file in left]}
