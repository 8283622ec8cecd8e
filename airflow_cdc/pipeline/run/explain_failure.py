"""Explain why Spark failed in a microbatch: terminal or transient by type."""

from __future__ import annotations

import pyspark
from pyspark.errors import AnalysisException, PySparkException

from airflow_cdc.model.errors import (
    ArchivedFileMissingError,
    CdcError,
    ConcurrentRunError,
    ConfigurationError,
    PlanRefusedError,
    SparkFailedError,
    UnreadableFileError,
)
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.storage import CONNECTORS
from airflow_cdc.pipeline.spark.connect import gone
from airflow_cdc.pipeline.spark.spark_errors import error_line, failed_file
from airflow_cdc.runtime.spark_minors import minor_of, newest_minor


def explain_failure(state: FlowState, number: int, problem: Exception, *, archive: str) -> CdcError:
    """Return the error to report when Spark fails in a flow's microbatch.

    :param archive: URI of the root of the archive that it reads.
    """
    place = f"Flow {state.flow}, microbatch {number}"
    if state.report(number):
        # The winner removed the staging folder, so any error may follow; only its commit marker shows the cause.
        return ConcurrentRunError(f"{place}: another run of this flow finished it first.", next_step="Nothing is lost; run again.")
    unreachable = gone(problem) if isinstance(problem, PySparkException) else None
    if named := missing_connector(problem) or unreachable or _unreadable(place, problem, archive):
        return named
    cause, condition = error_line(problem), problem.getCondition() if isinstance(problem, PySparkException) else None
    if condition == "PATH_NOT_FOUND":
        return ArchivedFileMissingError(
            f"{place}: a file of the microbatch is gone from the archive: {cause}",
            next_step="Bring it back under the same name.",
        )
    if isinstance(problem, AnalysisException):
        return PlanRefusedError(
            f"{place}: Spark refuses the plan: {cause}",
            next_step="Look for a type, key or column in the flows file that does not fit the events; then run again.",
            condition=condition,
        )
    return SparkFailedError(
        f"{place}: Spark failed: {cause}",
        next_step="See the job's log; nothing is lost, the next run takes the microbatch up again.",
        condition=condition,
    )


def _unreadable(place: str, problem: Exception, archive: str) -> CdcError | None:
    """Return the error for an archived file that was readable when surveyed; None where another thing failed."""
    failed = failed_file(problem)
    path = failed.path_in(archive) if failed else None
    if failed is None or path is None:
        return None
    if failed.is_gone:
        return ArchivedFileMissingError(
            f"{place}: {path} is gone from archive {archive}.", next_step="Bring it back under the same name.", files=(path,)
        )
    if not failed.is_at_fault:
        return None
    return UnreadableFileError(
        f"{place}: {path} of archive {archive} can no longer be read: {failed.cause}. Nothing of the microbatch was merged.",
        next_step="Replace the file by a whole one under the same name; then run again.",
        files=(path,),
    )


def missing_connector(problem: Exception) -> ConfigurationError | None:
    """Return the error for a store that this Spark cannot reach at all; None where another thing failed."""
    text = str(problem)
    for scheme, (name, artifact) in CONNECTORS.items():
        # Hadoop before 3.5 knows no class for gs://.
        if f"Class {name} not found" in text or f'No FileSystem for scheme "{scheme}"' in text:
            minor = minor_of(pyspark.__version__) or newest_minor()
            package = minor.gs if scheme == "gs" else f"{artifact}:{minor.hadoop}"
            return ConfigurationError(
                f"Spark has no {name.rsplit('.', 1)[-1]}, by which it reaches {scheme}://.",
                next_step=f'Give the operator packages="{package}"; Spark {minor.minor} has Hadoop {minor.hadoop}.',
            )
    return None
