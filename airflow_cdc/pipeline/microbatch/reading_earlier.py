"""Read applied files again for a late event or cut transaction that needs them; they may have left the archive since."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from airflow_cdc.model.errors import ArchivedFileMissingError, first_line
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun


@contextmanager
def reading_earlier(run: MicrobatchRun, keys: DataFrame) -> Iterator[None]:
    """Explain a file that is gone: the error's fact ``keys`` counts the keys that cannot be decided without it.

    :param keys: the keys whose events are read.
    :raises ArchivedFileMissingError: when a file of an earlier microbatch is gone.
    """
    try:
        yield
    except AnalysisException as error:
        if error.getCondition() != "PATH_NOT_FOUND":
            raise
        raise ArchivedFileMissingError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}: it holds the rest of what an earlier microbatch applied in part, a"
            f" transaction or a document, and a file of that one is gone from the archive: {first_line(error)}",
            next_step="Bring it back under the same name; or set the flow's on_missing_file to 'keep': rows stay that nothing else proves"
            " to be deleted, and the report counts the keys (transactions_unjoined).",
            keys=keys.distinct().count(),
        ) from error
