"""CdcMaintainOperator: submit the Spark job that keeps a lake's tables small and fast."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.maintain_arguments import maintain_arguments, settings_of
from airflow_cdc.operators.maintain_outcome import MaintainOutcome
from airflow_cdc.operators.submit import CdcSubmitOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcMaintainOperator(MaintainOutcome, CdcSubmitOperator):
    """Compact, cluster, purge and vacuum the Delta tables of a lake's flows; remove expired delete markers and leftovers of crashes.

    The tables' content does not change, and with nothing to do hardly anything is done. Next to a merge of the same flow, the second of the
    two waits (docs/how-to/object-stores.md).

    It returns ``{"lake": …, "dry_run": false, "reports_removed": 0, "flows": {"server.db.orders": [{"kind": "target", "actions":
    ["compact"], "files_before": 12, "files_after": 1, …}]}}``, for each table that was changed.

    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param flows_file: path of a flows file where the job's driver runs; it sets how tables are clustered. (templated)
    :param vacuum_after_days: how many days files stay that the table no longer needs; at least 7. (templated)
    :param expire_after_days: how many days delete markers stay behind the flow's newest microbatch: the longest lateness of an event.
        (templated)
    :param purge_from: share of a table's rows, hidden ones included, that deletion vectors may hide. (templated)
    :param allow_short_retention: accept less than 7 days for ``vacuum_after_days``.
    :param only_plan: report what would be done, without doing it. (templated)
    :param kwargs: other arguments of ``SparkSubmitOperator``.
    """

    template_fields: Sequence[str] = (
        *CdcSubmitOperator.template_fields,
        "lake_conn_id",
        "tables",
        "flows_file",
        "vacuum_after_days",
        "expire_after_days",
        "purge_from",
        "only_plan",
    )
    ui_color = "#e0dcc4"
    job = "maintain.py"

    def __init__(
        self,
        *,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        flows_file: str | None = None,
        vacuum_after_days: float | str = 7,
        expire_after_days: float | str = 30,
        purge_from: float | str = 0.1,
        allow_short_retention: bool = False,
        only_plan: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.flows_file = flows_file
        self.vacuum_after_days = vacuum_after_days
        self.expire_after_days = expire_after_days
        self.purge_from = purge_from
        self.allow_short_retention = allow_short_retention
        self.only_plan = only_plan

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for it, and turn its report into the task's outcome."""
        with as_airflow_errors():
            lake, settings = CdcLakeHook(self.lake_conn_id), settings_of(self)
            return self.submit(context, lake, lambda place: maintain_arguments(self, lake.root, settings, place))
