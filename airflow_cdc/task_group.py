"""CdcTaskGroup: the tasks of the shipped Dags as one group of one's own Dag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow.providers.common.compat.sdk import TaskGroup

from airflow_cdc.assets import table_asset, tables_alias
from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.globs import is_glob
from airflow_cdc.model.look.groups import DEFAULT_GROUP_BYTES
from airflow_cdc.operators.groups import TABLES_LABEL, CdcPlanGroupsOperator
from airflow_cdc.operators.maintain import CdcMaintainOperator
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.operators.survey import CdcSurveyOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor


class CdcTaskGroup(TaskGroup):
    """Merge pending files in a Dag of one's own, and maintain the tables afterwards if wanted::

        with DAG("sales", schedule="@hourly", max_active_runs=1):
            CdcTaskGroup("merge_sales", tables=["server.sales.*"], maintain=True) >> report

    With ``max_groups=1`` it has the tasks of the Dag ``cdc_merge``: ``wait_for_files``, then ``merge``. With more, those of
    ``cdc_merge_groups``: ``survey``, ``plan``, and ``merge_group``, mapped over groups of tables. ``maintain`` follows.

    Where nothing is pending the group's tasks are skipped, and so is what follows the group unless its ``trigger_rule`` is another.

    :param group_id: id of the group.
    :param archive_conn_id: connection of the archive.
    :param lake_conn_id: connection of the lake.
    :param conn_id: Spark connection.
    :param tables: globs of flow names, as a sequence or one text with commas, which may be a template; none: every flow.
    :param flows_file: path of a flows file where the jobs' drivers run.
    :param max_groups: most Spark applications that a run divides its tables over. Groups refuse backfills' runs.
    :param group_bytes: archived bytes that justify a Spark application of their own, where there are groups.
    :param at_once: most groups that are merged at the same time.
    :param merge: further arguments of :class:`~airflow_cdc.operators.merge.CdcMergeOperator`. By default its outlets are the tables'
        assets where all tables are named, and the alias of the lake's tables otherwise.
    :param maintain: whether to maintain the tables afterwards, or further arguments of
        :class:`~airflow_cdc.operators.maintain.CdcMaintainOperator`.
    :param kwargs: other arguments of ``TaskGroup``.
    """

    def __init__(
        self,
        group_id: str = "cdc",
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        conn_id: str = "spark_default",
        tables: str | Sequence[str] | None = None,
        flows_file: str | None = None,
        max_groups: int = 1,
        group_bytes: int = DEFAULT_GROUP_BYTES,
        at_once: int = 2,
        merge: Mapping[str, Any] | None = None,
        maintain: bool | Mapping[str, Any] = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(group_id=group_id, **kwargs)
        if max_groups < 1 or at_once < 1:
            raise ValueError(f"max_groups is {max_groups} and at_once {at_once}, expected 1 or more of each.")
        places: dict[str, Any] = {"archive_conn_id": archive_conn_id, "lake_conn_id": lake_conn_id}
        submitted = {"conn_id": conn_id, "flows_file": flows_file}
        merging = {"outlets": _outlets(tables, lake_conn_id), **places, **submitted, **(merge or {})}
        with self:
            if max_groups == 1:
                last = _merge(merging, places, tables)
            else:
                bounds: dict[str, Any] = {"max_groups": max_groups, "group_bytes": group_bytes}
                survey = CdcSurveyOperator(task_id="survey", min_bytes=group_bytes, **{**merging, "outlets": []})
                plan = CdcPlanGroupsOperator(task_id="plan", tables=tables, **places, **bounds)
                grouped = {"map_index_template": TABLES_LABEL, "max_active_tis_per_dagrun": at_once, **merging}
                last = CdcMergeOperator.partial(task_id="merge_group", **grouped).expand(tables=plan.output)
                survey >> plan >> last
            if maintain is not False:
                own = maintain if isinstance(maintain, Mapping) else {}
                given = {"tables": tables, "lake_conn_id": lake_conn_id, "max_active_tis_per_dag": 1, **submitted, **own}
                last >> CdcMaintainOperator(task_id="maintain", **given)


def _merge(merging: Mapping[str, Any], places: Mapping[str, Any], tables: str | Sequence[str] | None) -> Any:
    # By the merge's own interval: otherwise the sensor succeeds for files that this run does not take.
    interval = {name: merging[name] for name in ("archived_since", "archived_until", "by_data_interval") if name in merging}
    wait = CdcArchiveSensor(task_id="wait_for_files", tables=tables, timeout=0, soft_fail=True, **interval, **places)
    merge = CdcMergeOperator(task_id="merge", tables=tables, **{"max_active_tis_per_dag": 1, **merging})
    wait >> merge
    return merge


def _outlets(tables: str | Sequence[str] | None, lake_conn_id: str) -> list[Any]:
    text = tables if isinstance(tables, str) else ",".join(tables or ())
    names = [] if "{" in text else table_globs(tables)
    if not names or any(is_glob(name) or name.startswith("!") for name in names):
        return [tables_alias(lake_conn_id)]
    return [table_asset(name, lake_conn_id=lake_conn_id) for name in names]
