"""CdcSnapshotSensor: succeed when the initial snapshots of flows are applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.sensors.look import CdcLookSensor
from airflow_cdc.triggers.snapshot import CdcSnapshotTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcSnapshotSensor(CdcLookSensor):
    """Wait until the flows' tables hold a complete snapshot: its last read, as the connector marks it, is applied.

    It returns ``{"complete": ["server.db.orders"], "missing": []}``. An unknown name without ``*`` or ``?`` is missing.

    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param kwargs: arguments of :class:`~airflow_cdc.sensors.look.CdcLookSensor` and Airflow's sensors.
    """

    template_fields: Sequence[str] = (*CdcLookSensor.template_fields, "tables")
    trigger_class = CdcSnapshotTrigger

    def __init__(self, *, tables: str | Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables

    def question(self, context: Context) -> dict[str, Any]:
        """Return the arguments of the look, besides the connections."""
        return {"tables": table_globs(self.tables)}
