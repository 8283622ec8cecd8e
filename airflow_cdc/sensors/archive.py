"""CdcArchiveSensor: succeed when archived files are pending."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.intervals_of_run import interval_of_run
from airflow_cdc.sensors.look import CdcLookSensor
from airflow_cdc.triggers.archive import CdcArchiveTrigger

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcArchiveSensor(CdcLookSensor):
    """Wait until an archive holds files that the lake's flows have not applied.

    It returns ``{"files": 4, "topics": {"server.db.orders": 3, …}}``, and ``"outside": 2`` where others wait outside of the interval. With
    ``timeout=0`` it looks once and never defers; together with ``soft_fail=True`` a run with nothing to do is skipped at once. Files that a
    consistent run left waiting for a transaction count again when more is archived, even if only the transaction's END.

    Give it the interval of the merge that follows, by the same three parameters; otherwise it succeeds for files that this run does not
    take.

    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param min_files: number of files that must be pending.
    :param archived_since: only files that were archived from this time on (ISO 8601; UTC where it has no offset). (templated)
    :param archived_until: only files that were archived before this time. (templated)
    :param by_data_interval: as for :class:`~airflow_cdc.operators.merge.CdcMergeOperator`.
    :param kwargs: arguments of :class:`~airflow_cdc.sensors.look.CdcLookSensor` and Airflow's sensors.
    """

    template_fields: Sequence[str] = (*CdcLookSensor.template_fields, "tables", "archived_since", "archived_until")
    trigger_class = CdcArchiveTrigger

    def __init__(
        self,
        *,
        tables: str | Sequence[str] | None = None,
        min_files: int = 1,
        archived_since: str | None = None,
        archived_until: str | None = None,
        by_data_interval: bool = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.tables = tables
        self.min_files = min_files
        self.archived_since = archived_since
        self.archived_until = archived_until
        self.by_data_interval = by_data_interval

    def question(self, context: Context) -> dict[str, Any]:
        """Return the arguments of the look, besides the connections."""
        times = {"since": self.archived_since, "until": self.archived_until}
        interval = interval_of_run(context, **times, by_data_interval=self.by_data_interval)
        bounds = {"since": interval.since, "until": interval.until}
        asked = {name: moment.isoformat() for name, moment in bounds.items() if moment}
        return {"tables": table_globs(self.tables), "min_files": self.min_files, **asked}

    def log_answer(self, found: dict[str, Any]) -> None:
        """Log the pending files by topic."""
        self.log.info("%s files wait (at least %s are asked for).", found["files"], self.min_files)
        for topic, files in found["topics"].items():
            self.log.info("  %s: %s", topic, files)
        if outside := found.get("outside"):
            self.log.info("%s more wait that were archived outside of this run's interval: another run takes them.", outside)
