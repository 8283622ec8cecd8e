"""CdcTransactionSensor: succeed when an archive holds complete transactions past a moment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.sensors.look import CdcLookSensor
from airflow_cdc.triggers.transactions import CdcTransactionTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcTransactionSensor(CdcLookSensor):
    """Wait until a consistent cut exists: the END of a transaction is archived with all events it announces, and no earlier transaction
    lacks any.

    It returns ``{"connectors": {"server": {"is_past": true, "transaction": "571", "committed_at": "2026-…", "waits_for": [], …}}}``.
    Unsurveyed files are read, up to 64 MiB of lines per look; JSON only.

    :param connectors: ``topic.prefix`` of connectors, as a sequence or one text with commas; none: every connector whose transaction topic
        is archived. (templated)
    :param past: the moment that the cut must reach: a time in ISO-8601 (in UTC where it names no zone), or the LSN of PostgreSQL or SQL
        Server; none: more than the lake's tables hold. (templated)
    :param kwargs: arguments of :class:`~airflow_cdc.sensors.look.CdcLookSensor` and Airflow's sensors.
    """

    template_fields: Sequence[str] = (*CdcLookSensor.template_fields, "connectors", "past")
    trigger_class = CdcTransactionTrigger

    def __init__(self, *, connectors: str | Sequence[str] | None = None, past: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.connectors = connectors
        self.past = past

    def question(self, context: Context) -> dict[str, Any]:
        """Return the arguments of the look, besides the connections."""
        return {"connectors": table_globs(self.connectors), "past": self.past or None}
