"""A folder's or a file's Dags, as the Airflow that is installed parses them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def dag_bag(path: Path) -> Any:
    """Return the bag of a Dag file or of a folder of them."""
    try:
        from airflow.dag_processing.dagbag import DagBag
    except ImportError:
        # Airflow 3.1.
        from airflow.models.dagbag import DagBag
    return DagBag(str(path))
