"""Describe in a report how a merge wrote: its plan, and how many of the table's files it rewrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_cdc.pipeline.target.key_range import KeyRange

_TOUCHED = ("numTargetFilesRemoved", "numTargetDeletionVectorsAdded")
"""A file that gets its first deletion vector does not count as removed; one whose vector is replaced counts as added too."""


def detailed_plan(plan: str, *, deletion_vectors: bool, within: Sequence[KeyRange]) -> str:
    """Return a plan with how changed rows are written and the keys whose ranges skip files.

    >>> detailed_plan("merge", deletion_vectors=True, within=())
    'merge (deletion vectors)'
    """
    ranges = [f"range of {', '.join(keys.column for keys in within)}"] if within else []
    return f"{plan} ({', '.join(['deletion vectors' if deletion_vectors else 'copy-on-write', *ranges])})"


def with_files(plan: str, metrics: Mapping[str, Any], files: int | None) -> str:
    """Return a plan with how many of the table's files its commit rewrote or gave a deletion vector.

    >>> with_files("merge (deletion vectors)", {"numTargetDeletionVectorsAdded": "12"}, 400)
    'merge (deletion vectors, 12 of 400 files)'

    :param metrics: the commit's ``operationMetrics``.
    :param files: how many files the table had; None where the commit does not record it: the plan is returned unchanged.
    """
    if files is None:
        return plan
    return f"{plan.removesuffix(')')}, {sum(int(metrics.get(name, 0)) for name in _TOUCHED)} of {files} files)"
