"""CdcArchiveSensor: succeed when archived files wait to be applied."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.sensors.look import CdcLookSensor
from airflow_cdc.triggers.archive import CdcArchiveTrigger


class CdcArchiveSensor(CdcLookSensor):
    """Wait until an archive holds files that the lake's flows have not applied.

    It returns ``{"files": 4, "topics": {"server.db.orders": 3, …}}``. With ``timeout=0`` it looks once and never defers;
    together with ``soft_fail=True`` a run with nothing to do is skipped at once. What a consistent run left waiting for a transaction
    counts again when more is archived, be it only the transaction's END.

    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param min_files: how many files must wait.
    :param kwargs: what :class:`~airflow_cdc.sensors.look.CdcLookSensor` and Airflow's sensors take.
    """

    template_fields: Sequence[str] = (*CdcLookSensor.template_fields, "tables")
    trigger_class = CdcArchiveTrigger

    def __init__(self, *, tables: str | Sequence[str] | None = None, min_files: int = 1, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.min_files = min_files

    def question(self) -> dict[str, Any]:
        """Return what is asked, beside the connections."""
        return {"tables": table_globs(self.tables), "min_files": self.min_files}

    def tell(self, told: dict[str, Any]) -> None:
        """Log what waits, by topic."""
        self.log.info("%s files wait (at least %s are asked for).", told["files"], self.min_files)
        for topic, files in told["topics"].items():
            self.log.info("  %s: %s", topic, files)
