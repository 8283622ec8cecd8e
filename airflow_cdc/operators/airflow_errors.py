"""Our errors as Airflow's. In a file of its own: what submits nothing must not import the Spark provider where Dags are parsed."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.model.errors import CdcError


@contextlib.contextmanager
def as_airflow_errors() -> Iterator[None]:
    """Raise our errors as Airflow's: without retries where a retry cannot help."""
    try:
        yield
    except CdcError as error:
        raise (AirflowException if error.transient else AirflowFailException)(str(error)) from error
