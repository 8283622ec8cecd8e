"""The small documents of a flow's state folder: the life of the state, and the record of a committed microbatch."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.report.batch_report import BatchReport


@dataclass(frozen=True)
class FlowIdentity(JsonObject):
    """The life of a flow's state; part of the transaction identifier of all its commits."""

    flow: str
    incarnation: str
    """Created when the state begins: microbatch 1 of a flow whose state was lost is not microbatch 1 of the earlier flow."""


@dataclass(frozen=True)
class CommitMarker(JsonObject, omits_defaults=True):
    """Marks a microbatch as done, with its report."""

    table: str
    """The target table, as :func:`airflow_cdc.model.places.place_in` keeps it."""
    report: BatchReport
    committed_at: str | None = None
    """When the marker was written, in ISO 8601; for a rebuilt marker later than the commit."""
    intent: str | None = None
    """Digest of the microbatch's intent (:attr:`airflow_cdc.model.state.microbatch.Microbatch.digest`)."""
