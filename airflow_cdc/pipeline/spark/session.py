"""Spark sessions: one application, with a separate session for each table that is merged.

Delta's transaction identifier and shuffle sizes are session settings, so tables merged concurrently
must not share a session (docs/explanation/exactness.md#exactly-once).
"""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from pyspark.errors import PySparkRuntimeError
from pyspark.sql import SparkSession

from airflow_cdc import runtime
from airflow_cdc.model.errors import SparkFailedError, first_line
from airflow_cdc.pipeline.spark import connect
from airflow_cdc.pipeline.spark.fitting_spark import refuse_unfit
from airflow_cdc.pipeline.spark.late_session import chosen_master, is_idle, late_session, started

_YARN_CONTAINER = "CONTAINER_ID"
"""Environment variable of the processes that YARN starts."""
_BYTES_PER_SHUFFLE_PARTITION = 32 * 1024**2
_INTERPRETED_BELOW_BYTES = 4 * 1024**2
"""Below this batch size, compiling Spark's generated code costs more than it saves (docs/adr/measurements.md)."""
_INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
_HASHED_UP_TO_BYTES = 64 * 1024**2
"""Size of a join's smaller side, per shuffle partition."""
_TABLE_COMPILED_FROM_BYTES = 512 * 1024
"""From this table size on, a merge is compiled: it reads the keys of all rows, and copies the rows of changed files
(docs/adr/measurements.md)."""

_APPLICATION_OPTIONS = {
    # A batch's plans are used once; for a small merge, the UI and its listeners cost more than they are worth.
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.scheduler.mode": "FAIR",
    "spark.sql.sources.parallelPartitionDiscovery.threshold": "256",
}

SESSION_OPTIONS = {
    # Timestamps without zone are converted to UTC instants and back; any other zone would shift them.
    "spark.sql.session.timeZone": "UTC",
    # Overflow and bad casts must become NULL through try_… functions only, never by a silent wrap-around.
    "spark.sql.ansi.enabled": "true",
    # The batch is staged before it is merged, so its source is stable and needs no second copy.
    "spark.databricks.delta.merge.materializeSource": "none",
    "spark.databricks.delta.schema.autoMerge.enabled": "false",
    # Delta refuses old versions by age, whether or not their files were removed. A flow that paused for a week could not rejoin a
    # transaction that its last file had cut. Whether files were removed is read from the log (table_history).
    "spark.databricks.delta.vacuum.enforceTimeTravelWithinDeletedFileRetentionDuration": "false",
    # For each join its rule writes the key out through all projections below, to find a partition column. The tables that we make have
    # none, and a key that was followed through moves is a long expression: a fifth of such a microbatch's time.
    "spark.sql.optimizer.dynamicPartitionPruning.enabled": "false",
    "spark.sql.parquet.compression.codec": "zstd",
    # Other readers take Spark's default, INT96, for nanoseconds, which end in 2262 (pipeline/target/parquet_scan.py).
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    "spark.sql.json.enablePartialResults": "true",
    # Spark lists many files with one task each: 720 tasks cost four CPU seconds, and this number of tasks half a second.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "64",
    # The JVM never compiles a larger method, and interprets it for every row of the batch. With this limit Spark falls back to smaller
    # methods (docs/adr/measurements.md).
    "spark.sql.codegen.hugeMethodLimit": "8000",
    # A merge joins a batch to a whole table. Hashing the batch costs less than sorting both.
    "spark.sql.adaptive.maxShuffledHashJoinLocalMapThreshold": str(_HASHED_UP_TO_BYTES),
    # Attributes from file names are looked up by path for each record. By default Spark searches up to a thousand paths linearly: for 720
    # files four microseconds per record, and one with hashes.
    "spark.sql.optimizer.mapLookupHashThreshold": "16",
    # Our statements contain names and texts verbatim: a ${…} in them must not be replaced by a setting's value.
    "spark.sql.variable.substitute": "false",
}


def start_session(
    app_name: str, *, master: str | None = None, options: Mapping[str, str] | None = None, remote: str | None = None
) -> SparkSession:
    """Start Spark with Delta in this process, join the application that spark-submit started, or connect to a Spark Connect server.

    :param master: used if spark-submit chose none, such as ``local[*]``.
    :param options: Spark settings that override ours.
    :param remote: URL of the server. The caller must call :func:`airflow_cdc.pipeline.spark.connect.release_sessions` at the end.
    :raises JavaNotFoundError: when Spark is to start in this process, and there is no Java.
    :raises SparkFailedError: when its Java ends before Spark has started.
    :raises ConfigurationError: for a Spark or a Delta that jobs do not run on (:mod:`airflow_cdc.pipeline.spark.fitting_spark`).
    :raises CdcError: with a ``remote``, as in :func:`airflow_cdc.pipeline.spark.connect.open_session`.
    """
    # PySpark logs each failed analysis with its whole plan, which would hide our own error.
    logging.getLogger("DataFrameQueryContextLogger").setLevel(logging.CRITICAL)
    # PySpark's warning about pandas 3, if another package installed it; we do not use pandas.
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    if remote:
        return connect.open_session(remote, app_name, options or {}, SESSION_OPTIONS)
    builder = SparkSession.builder.appName(app_name)
    if master:
        builder = builder.master(master)
    # Under spark-submit the submitter chose jars and extensions, Delta's among them; ours would replace the list.
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if not submitted:
        os.environ.update(runtime.spark_environment(master or "local[*]"))
    ours = {} if submitted else {**_APPLICATION_OPTIONS, **runtime.DRIVER_OPTIONS, **runtime.spark_options()}
    for key, value in {**ours, **SESSION_OPTIONS, **(options or {})}.items():
        builder = builder.config(key, value)
    try:
        session: SparkSession = builder.getOrCreate()
    except PySparkRuntimeError as error:
        raise SparkFailedError(
            f"Spark did not start: {first_line(error)}",
            next_step="See the end of the log for what Java printed: a wrong JAVA_HOME or JDK_JAVA_OPTIONS, or too little memory.",
        ) from error
    refuse_unfit(session)
    return session


def start_late(
    app_name: str, *, master: str | None = None, options: Mapping[str, str] | None = None, remote: str | None = None
) -> SparkSession:
    """As :func:`start_session`, but a Spark of this process starts only when the session is first used.

    In a YARN container it starts at once: the application fails there unless its driver opens a Spark context. A server is asked at once:
    its session costs little, and where it does not answer, the run has failed and not each of its flows.
    """
    start = partial(start_session, app_name, master=master, options=options, remote=remote)
    return start() if remote or _YARN_CONTAINER in os.environ else late_session(start, master=(options or {}).get("spark.master", master))


def session_for_batch(spark: SparkSession, *, batch_bytes: int) -> SparkSession:
    """Return a session with numbers of shuffle and Delta state partitions that fit a batch of that size.

    Spark's 200 and Delta's 50 partitions would cost a small merge more than its actual work.
    """
    spark = started(spark)
    session: SparkSession = connect.another_session(spark) if connect.is_client(spark) else spark.newSession()
    partitions = max(1, min(200, batch_bytes // _BYTES_PER_SHUFFLE_PARTITION + 1))
    settings = {
        **SESSION_OPTIONS,
        "spark.sql.shuffle.partitions": str(partitions),
        "spark.databricks.delta.snapshotPartitions": str(min(partitions, 8)),
        # Adaptive execution runs a job per shuffle; with one partition there is nothing to adapt.
        "spark.sql.adaptive.enabled": str(partitions > 1).lower(),
    }
    if batch_bytes < _INTERPRETED_BELOW_BYTES:
        settings |= _INTERPRETED
    connect.set_options(session, settings)
    return session


def late_session_for_batch(spark: SparkSession, *, batch_bytes: int) -> SparkSession:
    """As :func:`session_for_batch`, for work that the native engine may do: the session is made, and Spark started, at its first use.
    A server's is made at once.

    Functions of columns fail until Spark has started: call :func:`~airflow_cdc.pipeline.spark.late_session.started` before the first.
    """
    open_one = partial(session_for_batch, spark, batch_bytes=batch_bytes)
    if connect.is_client(spark):
        return open_one()
    return late_session(open_one, master=chosen_master(spark) if is_idle(spark) else str(spark.conf.get("spark.master")))


def compile_for_table(session: SparkSession, *, table_bytes: int) -> None:
    """Enable code generation in an interpreting session if a merge's table is not small, whatever the batch size."""
    if table_bytes >= _TABLE_COMPILED_FROM_BYTES and session.conf.get("spark.sql.codegen.wholeStage") == "false":
        connect.unset_options(session, _INTERPRETED)


@contextmanager
def transaction(session: SparkSession, *, application: str, version: int, metadata: str = "") -> Iterator[None]:
    """Add a transaction identifier to the session's Delta commit inside the block: a repeated commit has no effect.

    :param metadata: the commit's user metadata.
    """
    settings = {"write.txnAppId": application, "write.txnVersion": str(version)}
    with _committing(session, settings | ({"commitInfo.userMetadata": metadata} if metadata else {})):
        yield


@contextmanager
def noted(session: SparkSession, metadata: str) -> Iterator[None]:
    """Add user metadata, and no identifier, to the session's Delta commit inside the block."""
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
