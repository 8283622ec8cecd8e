"""Call a function of ours in the tasks of one Spark job: a cluster's executors do what the driver has no room or no time for.

The function and what it needs are sent to the executors as part of the job, and neither logged nor in a setting: it may hold credentials.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.spark.late_session import chosen_master, is_idle
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS, error_line
from airflow_cdc.pipeline.spark.storage import options_in_use, use_options

_LOCAL = "local"
_UNABLE = re.compile(r"(ModuleNotFoundError|ImportError): .*|.*PYTHON_VERSION_MISMATCH.*")
"""The line of an error that every such job would meet: executors without the packages, or with another Python."""
_unable: list[str] = []
"""Such errors of this process's application: it is asked once."""


class TasksFailedError(Exception):
    """Raised where the job failed, or executors cannot run it; its text is the reason."""


def has_cluster(spark: SparkSession) -> bool:
    """Return whether Spark's tasks run elsewhere than in this process; does not start Spark.

    Of a Spark that has not started this is known where its caller, or ``spark-submit``, chose the master.
    """
    master = _master_before_start(spark) if is_idle(spark) else str(spark.conf.get("spark.master", _LOCAL))
    return not master.startswith(_LOCAL)


def _master_before_start(spark: SparkSession) -> str:
    return _master_of_submitter() or chosen_master(spark) or _LOCAL


def _master_of_submitter() -> str | None:
    if "PYSPARK_GATEWAY_PORT" not in os.environ:
        return None
    from pyspark import SparkContext

    # The submitter's JVM runs, with its settings as properties, before there is a context.
    SparkContext._ensure_initialized()
    jvm: Any = SparkContext._jvm
    found: str | None = jvm.java.lang.System.getProperty("spark.master")
    return found


def call_in_tasks(spark: SparkSession, function: Callable[[int], Iterator[Any]], count: int) -> list[Any]:
    """Return what a function yields for the numbers from 0 on, each of which is a task: values of JSON.

    A task that fails is tried again, and may run twice at once: so is the function. It has this process's options of file systems.

    :param count: of numbers.
    :raises TasksFailedError: where the job failed.
    """
    if _unable:
        raise TasksFailedError(_unable[0])
    numbers = spark.range(0, count, 1, count)
    try:
        rows = numbers.mapInArrow(partial(_call, function, options_in_use()), "value STRING").collect()
    except SPARK_ERRORS as error:
        found = next((line.strip() for line in str(error).splitlines() if _UNABLE.search(line)), None)
        if found:
            _unable.append(found)
        raise TasksFailedError(found or error_line(error)) from error
    return [json.loads(row["value"]) for row in rows]


def _call(function: Callable[[int], Iterator[Any]], stores: Mapping[str, Mapping[str, Any]], batches: Iterable[Any]) -> Iterator[Any]:
    """Call the function; runs in a task."""
    import pyarrow as pa

    use_options(stores)
    for batch in batches:
        for number in batch.column(0).to_pylist():
            yield pa.RecordBatch.from_pydict({"value": pa.array(map(json.dumps, function(number)), pa.string())})
