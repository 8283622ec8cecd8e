"""Commit metadata: what a flow's own Delta commits carry besides Delta's record, as long as the table's log keeps them.

A merge carries the merging flow, the microbatch and its report; an upkeep commit carries its author
(:mod:`airflow_cdc.model.report.foreign_change` names the members). Commits of others may carry anything.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.foreign_change import APPLICATION, UPKEEP
from airflow_cdc.model.state_kind import COMMIT_METADATA


def metadata_text(members: Mapping[str, Any]) -> str:
    """Return the metadata text of one of our commits."""
    return json.dumps(COMMIT_METADATA.framed(members))


def metadata_of(text: str | None, *, table: str, version: int) -> dict[str, Any]:
    """Return a commit's user metadata; empty where it is not a JSON object.

    :param table: URI of the table.
    :param version: the commit's.
    :raises StateTooNewError: when a newer version of airflow-cdc made the commit.
    """
    try:
        document = json.loads(text or "{}")
    except ValueError:
        # Somebody else's commit with metadata of their own.
        return {}
    if not isinstance(document, dict):
        return {}
    if application := document.get(APPLICATION) or document.get(UPKEEP):
        COMMIT_METADATA.check(document, where=_place(table, version), owner=_owner(application))
    return document


def report_in(metadata: dict[str, Any], *, table: str, version: int) -> BatchReport:
    """Return the report in a merge's metadata.

    :param table: URI of the table.
    :param version: the commit's.
    :raises StateUnreadableError: when it carries none, or one of another shape.
    """
    owner = _owner(metadata.get(APPLICATION))
    return COMMIT_METADATA.parse(
        metadata, lambda members: BatchReport.from_json(members["report"]), where=_place(table, version), owner=owner
    )


def _place(table: str, version: int) -> str:
    return f"{table}, version {version}"


def _owner(application: Any) -> str:
    return f"flow {str(application).rpartition(':')[0]}"
