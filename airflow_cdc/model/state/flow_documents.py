"""The small documents of a flow's state folder: which life of the state it is, and what a committed microbatch leaves."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.report.batch_report import BatchReport


@dataclass(frozen=True)
class FlowIdentity(JsonObject):
    """The life of a flow's state; part of the transaction identifier of all its commits."""

    flow: str
    incarnation: str
    """Made when the state begins: microbatch 1 of a flow whose state was lost is not microbatch 1 of the one before."""


@dataclass(frozen=True)
class CommitMarker(JsonObject, omits_defaults=True):
    """That a microbatch is done, and what it did."""

    table: str
    """URI of the target table."""
    report: BatchReport
    committed_at: str | None = None
    """When the marker was written, in ISO 8601; of a marker that was rebuilt a later time than the commit's."""
    intent: str | None = None
    """Digest of the microbatch's intent (:attr:`airflow_cdc.model.state.microbatch.Microbatch.digest`)."""
