"""Spark functions for documents: run :mod:`airflow_cdc.pipeline.documents.documents` on the executors, which need Python but not this
package.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from pyspark import cloudpickle
from pyspark.sql import Column, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from airflow_cdc.pipeline.documents import documents


def fold(base: Column, steps: Column) -> Column:
    """Apply :func:`airflow_cdc.pipeline.documents.documents.fold_documents`; ``steps``: array of structs of texts."""
    fold_documents = documents.fold_documents

    def of_rows(text: str | None, rows: Sequence[Row]) -> str | None:
        return fold_documents(text, [(row[0], row[1], row[2], row[3]) for row in rows])

    return _function(of_rows)(base, steps)


def id_of(text: Column) -> Column:
    """Apply :func:`airflow_cdc.pipeline.documents.documents.document_id`, NULL for NULL."""
    document_id = documents.document_id
    return _function(lambda document: None if document is None else document_id(document))(text)


def _function(function: Callable[..., str | None]) -> Callable[..., Column]:
    by_value: Any = cloudpickle
    by_value.register_pickle_by_value(documents)
    made: Callable[..., Column] = F.udf(function, StringType(), useArrow=False)
    return made
