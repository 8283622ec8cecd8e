"""Spark sessions: one application, and a session of its own for every table that is merged in it.

Delta's transaction identifier and the sizes of shuffles are settings of a session, so tables merged side by side
must not share one (docs/explanation/exactness.md#exactly-once).
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from pyspark.sql import SparkSession

from airflow_cdc import runtime
from airflow_cdc.pipeline.spark import connect

_BYTES_PER_SHUFFLE_PARTITION = 32 * 1024**2
_INTERPRETED_BELOW_BYTES = 4 * 1024**2
"""Below it, compiling the code that Spark generates for a batch costs more than that code saves (docs/performance.md)."""
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_HASHED_UP_TO_BYTES = 64 * 1024**2
"""Of a join's smaller side, by shuffle partition."""
_TABLE_COMPILED_FROM_BYTES = 512 * 1024
"""A merge reads the keys of all rows of a table, and copies the rows beside those that it changes (docs/performance.md)."""

_APPLICATION_OPTIONS = {
    # Plans of a batch are used once; the UI and its listeners cost a small merge more than they tell.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "256",
}

SESSION_OPTIONS = {
    # Timestamps without zone are read as UTC instants and back; any other zone would shift them.
    "spark.sql.session.timeZone": "UTC",
    # Overflow and bad casts must become NULL through try_… functions only, never by a silent wrap-around.
    "spark.sql.ansi.enabled": "true",
    # The batch is staged before it is merged, so its source is stable and needs no second copy.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # Delta refuses versions by their age, whether anybody has removed their files or not. A flow that stood still for a week would not get
    # over a transaction that its last file had cut; what was removed is asked of the log (table_history).
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    "spark.sql.json.enablePartialResults": "true",
    # Spark looks up many files in a task each: 720 of them cost four CPU seconds, and half a second in so many tasks.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
    # The JVM never compiles a method that is larger, and interprets it for every row of the batch. Spark can do without: it then generates
    # smaller ones (docs/performance.md).
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A merge joins a batch to a whole table. To hash the batch costs less than to sort both.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": str(_HASHED_UP_TO_BYTES),
    # What a file's name tells is looked up by its path for each record. Spark goes through up to a thousand paths one by one: four
    # microseconds a record of 720 files, and one by their hashes.
    "spark.sql.optimizer.mapLookupHashThreshold": "16",
    # Names and texts stand in our statements as they are: one that holds ${…} must not become the value of a setting.
    "spark.sql.variable.substitute": "false",
}


def start_session(
    app_name: str, *, master: str | None = None, options: Mapping[str, str] | None = None, remote: str | None = None
) -> SparkSession:
    """Start Spark in this process with Delta, or join the one that spark-submit started, or be a client of a Spark Connect server.

    :param master: used where no spark-submit chose one, such as ``local[*]``.
    :param options: Spark settings that go over ours.
    :param remote: URL of the server. The caller must call :func:`airflow_cdc.pipeline.spark.connect.release_sessions` in the end.
    :raises CdcError: when there is a ``remote``, as :func:`airflow_cdc.pipeline.spark.connect.open_session`.
    """
    # PySpark prints each failed analysis with its whole plan; our errors say what matters, and the plan would hide it.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    # Said by PySpark of a library that it looks for and that we do not use, wherever something else brought pandas 3.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    if remote:
        return connect.open_session(remote, app_name, options or {}, SESSION_OPTIONS)
    builder = SparkSession.builder.appName(app_name)
    if master:
        builder = builder.master(master)
    # Under spark-submit the submitter chose jars, extensions and the like, with Delta's among them; ours would replace the list.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    ours = {} if submitted else {**_APPLICATION_OPTIONS, **runtime.DRIVER_OPTIONS, **runtime.spark_options()}
    for key, value in {**ours, **SESSION_OPTIONS, **(options or {})}.items():
        builder = builder.config(key, value)
    session: SparkSession = builder.getOrCreate()
    return session


def session_for_batch(spark: SparkSession, *, batch_bytes: int) -> SparkSession:
    """Return a session whose shuffles and Delta state jobs fit a batch of that size.

    Spark's 200 and Delta's 50 partitions would cost a small merge more than its work does.
    """
    session: SparkSession = connect.clone(spark) if connect.is_client(spark) else spark.newSession()
    partitions = max(1, min(200, batch_bytes // _BYTES_PER_SHUFFLE_PARTITION + 1))
    settings = {
        **SESSION_OPTIONS,
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.databricks.delta.snapshotPartitions": str(min(partitions, 8)),
        # Adaptive execution makes a job of every shuffle; with one partition there is nothing to adapt.
        "spark.sql.adaptive.enabled": str(partitions > 1).lower(),
    }
    if batch_bytes < _INTERPRETED_BELOW_BYTES:
        settings |= _INTERPRETED
    connect.set_options(session, settings)
    return session


def compile_for_table(session: SparkSession, *, table_bytes: int) -> None:
    """Let a session that interprets compile from here on, where a merge goes over a table that is not small, however small the batch."""
    if table_bytes >= _TABLE_COMPILED_FROM_BYTES and session.conf.get("spark.sql.codegen.wholeStage") == "false":
        connect.unset_options(session, _INTERPRETED)


@contextmanager
def transaction(session: SparkSession, *, application: str, version: int, metadata: str = "") -> Iterator[None]:
    """Make the session's Delta commit inside carry a transaction identifier: doing it twice does it once.

    :param metadata: what the commit carries besides.
    """
    settings = {"write.txnAppId": application, "write.txnVersion": str(version)}
    with _committing(session, settings | ({"commitInfo.userMetadata": metadata} if metadata else {})):
        yield


@contextmanager
def noted(session: SparkSession, metadata: str) -> Iterator[None]:
    """Make the session's Delta commit inside carry metadata, and no identifier."""
    with _committing(session, {"commitInfo.userMetadata": metadata}):
        yield


@contextmanager
def _committing(session: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    settings = {f"spark.databricks.delta.{key}": value for key, value in settings.items()}
    try:
        connect.set_options(session, settings)
        yield
    finally:
        connect.unset_options(session, settings)
