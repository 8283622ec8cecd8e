"""CdcPlanGroupsOperator: distribute the pending tables over a few merges, by bytes; no Spark."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperator

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.links.tasks import FlowLink
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.look.groups import DEFAULT_GROUP_BYTES, DEFAULT_MAX_GROUPS, FlowGroup, plan_groups
from airflow_cdc.operators.airflow_errors import as_airflow_errors

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

TABLES_LABEL = "{{ task.tables[:3] | join(', ') }}{{ ' and %d more' % (task.tables | length - 3) if task.tables | length > 3 }}"
"""A ``map_index_template`` for merges mapped over groups: their first tables. Airflow keeps 250 characters of it."""
_MOST_LOGGED = 10


class CdcPlanGroupsOperator(BaseOperator):
    """Return the pending flows as groups that may be merged at the same time, each by one Spark application.

    It returns a list of lists of globs, such as ``[["server.db.orders"], ["server.db.customers", "server.db.items"]]``:
    ``CdcMergeOperator.partial(…).expand(tables=plan.output)`` merges them, one mapped task per group. No flow is in two groups. With
    nothing to do the list is empty, and Airflow skips the merge.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param group_bytes: archived bytes that justify a Spark application of their own; a larger table is not divided. (templated)
    :param max_groups: most groups. (templated)
    """

    template_fields: Sequence[str] = ("archive_conn_id", "lake_conn_id", "tables", "group_bytes", "max_groups")
    operator_extra_links = (FlowLink(),)
    ui_color = "#e3eef9"

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        group_bytes: int | str = DEFAULT_GROUP_BYTES,
        max_groups: int | str = DEFAULT_MAX_GROUPS,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.group_bytes = group_bytes
        self.max_groups = max_groups

    def execute(self, context: Context) -> list[list[str]]:
        """Return the groups."""
        with as_airflow_errors():
            globs = table_globs(self.tables)
            _refuse_backfill(context)
            pending = CdcArchiveHook(self.archive_conn_id).pending(CdcLakeHook(self.lake_conn_id), globs)
            bounds = {"group_bytes": _whole("group_bytes", self.group_bytes), "max_groups": _whole("max_groups", self.max_groups)}
            groups = plan_groups(pending, tables=globs, **bounds)
        for number, group in enumerate(groups):
            self.log.info("Group %s: %s", number, _line(group))
        if not groups:
            self.log.info("Nothing waits.")
        return [list(group.tables) for group in groups]


def _refuse_backfill(context: Context) -> None:
    """Refuse a backfill's run, which may run beside another: the groups of two plans may share flows, which would wait for each other."""
    if getattr(context.get("dag_run"), "run_type", None) == "backfill":
        raise ConfigurationError(
            "This run is a backfill's, and max_active_runs does not keep it apart from scheduled ones, which may write the same tables.",
            next_step="Let a scheduled or manual run go: it applies all that waits, whatever its date.",
        )


def _whole(name: str, value: int | str) -> int:
    try:
        return int(value)
    except ValueError as error:
        raise ConfigurationError(
            f"{name} is {value!r}, expected a whole number.", next_step="Correct the task that plans the groups."
        ) from error


def _line(group: FlowGroup) -> str:
    named = ", ".join(group.tables[:_MOST_LOGGED]) + (", …" if len(group.tables) > _MOST_LOGGED else "")
    return f"{len(group.tables)} tables, {group.bytes} bytes: {named}"
