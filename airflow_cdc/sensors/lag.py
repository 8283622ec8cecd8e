"""CdcLagSensor: succeed when a lake's tables are close behind the archive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.sensors.look import CdcLookSensor
from airflow_cdc.triggers.lag import CdcLagTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcLagSensor(CdcLookSensor):
    """Wait until the lag of the flows is within every given bound; at least one must be given.

    It returns ``{"files": 4, "bytes": 8192, "seconds": 31.5, "behind": 1, "flows": {"server.db.orders": {"files": 4, …}}}``: the sums and
    the greatest age, and the flows that are behind; of many, those with the most files.

    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param max_files: most pending files.
    :param max_bytes: most pending bytes, compressed or not as in the archive.
    :param max_seconds: greatest age, in seconds, of the last applied event's commit in the source, for flows with anything pending. A flow
        that was never applied, or whose events carry no time, exceeds any bound.
    :param kwargs: arguments of :class:`~airflow_cdc.sensors.look.CdcLookSensor` and Airflow's sensors.
    """

    template_fields: Sequence[str] = (*CdcLookSensor.template_fields, "tables")
    trigger_class = CdcLagTrigger

    def __init__(
        self,
        *,
        tables: str | Sequence[str] | None = None,
        max_files: int | None = None,
        max_bytes: int | None = None,
        max_seconds: float | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.max_files = max_files
        self.max_bytes = max_bytes
        self.max_seconds = max_seconds

    def question(self, context: Context) -> dict[str, Any]:
        """Return the arguments of the look, besides the connections."""
        bounds = {"max_files": self.max_files, "max_bytes": self.max_bytes, "max_seconds": self.max_seconds}
        return {"tables": table_globs(self.tables), **bounds}
