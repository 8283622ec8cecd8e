"""Dags from a file: ``cdc_dags`` makes the Dags of ``airflow_cdc.yaml``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from datetime import datetime, time, timedelta, timezone
from pathlib import Path
from typing import Any

from airflow.exceptions import AirflowTimetableInvalid
from airflow.providers.common.compat.sdk import DAG
from airflow.timetables.interval import CronDataIntervalTimetable

from airflow_cdc.assets import table_asset, tables_alias
from airflow_cdc.dags_file import DagSettings, DagsFile, Notice, PlannedDag, read_dags_file
from airflow_cdc.doc_links import with_links
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.globs import is_glob
from airflow_cdc.notifications.flows import CdcNotifier
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor

_DOC = """\
Applies archived change events to Delta tables: of the flows {tables}, from `{archive}` into `{lake}`, by `{spark}`.

Made from `{file}`; change the Dag there.
"""


def cdc_dags(path: Path | str) -> dict[str, DAG]:
    """Return a file's Dags by ``dag_id``: each looks for files and, if some are pending, runs one merge.

    For a Dag file: ``globals().update(cdc_dags(Path(__file__).with_name("airflow_cdc.yaml")))``. Only the file is read, and the callbacks
    that it names are imported. A Dag's merge runs once at a time, backfills included, and no two Dags merge one table unless they share a
    pool of one slot.

    :raises ConfigurationError: when the file is wrong; Airflow shows it as the Dag file's import error.
    """
    asked = read_dags_file(path)
    # Airflow would take the file that creates a Dag for the Dag's own file.
    here = sys._getframe(1).f_code.co_filename
    return {dag.dag_id: _dag(asked, dag, Path(path), here) for dag in asked.dags}


def _dag(asked: DagsFile, planned: PlannedDag, path: Path, dag_file: str) -> DAG:
    settings = planned.settings
    # Nothing here depends on other entries: Airflow makes a new Dag version for every changed text.
    with DAG(
        dag_id=planned.dag_id,
        description=f"Apply archived change events to Delta tables ({path.name})",
        doc_md=_doc(asked, planned, path),
        schedule=_schedule(settings),
        start_date=datetime.combine(settings.start_date, time(), timezone.utc),
        catchup=settings.catchup,
        max_active_runs=1,
        default_args={
            "owner": settings.owner,
            "retries": settings.retries,
            "retry_delay": timedelta(seconds=settings.retry_delay),
            **_given(queue=settings.queue, **_callbacks(path, planned, "on_retry_callback")),
            "on_failure_callback": _notified(path, planned, "on_failure_callback"),
        },
        tags=settings.tags,
    ) as dag:
        _tasks(asked, planned, path)
    dag.fileloc = dag_file
    try:
        dag.timetable.validate()
    except AirflowTimetableInvalid as error:
        raise ConfigurationError(
            f"{path}: {planned.place}: schedule is {settings.schedule!r}, expected cron's five fields or a preset of Airflow's: {error}.",
            next_step="Correct the file.",
        ) from error
    return dag


def _tasks(asked: DagsFile, planned: PlannedDag, path: Path) -> None:
    settings = planned.settings
    both: dict[str, Any] = {
        "archive_conn_id": asked.archive_conn_id,
        "lake_conn_id": asked.lake_conn_id,
        "tables": list(planned.tables),
        "by_data_interval": settings.by_data_interval,
    }
    wait_for_files = CdcArchiveSensor(task_id="wait_for_files", timeout=0, soft_fail=True, **both)
    timeout = settings.execution_timeout
    merge = CdcMergeOperator(
        task_id="merge",
        conn_id=asked.spark_conn_id,
        flows_file=asked.flows,
        check_transactions=settings.check_transactions,
        consistent=settings.consistent,
        fail_on_rejects=settings.fail_on_rejects,
        conf=settings.conf or None,
        outlets=_outlets(asked, planned),
        # Avoids attempts that would wait for each other; max_active_runs does not apply to backfills.
        max_active_tis_per_dag=1,
        **_given(
            pool=settings.one_slot_pool or settings.pool,
            deferrable=settings.deferrable,
            execution_timeout=timedelta(seconds=timeout) if timeout else None,
        ),
        on_success_callback=_notified(path, planned, "on_success_callback"),
        **both,
    )
    wait_for_files >> merge


def _given(**arguments: Any) -> dict[str, Any]:
    """Return the arguments that the file sets; of the others Airflow's own default holds."""
    return {name: value for name, value in arguments.items() if value is not None}


def _schedule(settings: DagSettings) -> Any:
    # A cron text alone gives runs that begin and end at one moment.
    if settings.by_data_interval and settings.schedule:
        return CronDataIntervalTimetable(settings.schedule, timezone="UTC")
    return settings.schedule


def _outlets(asked: DagsFile, planned: PlannedDag) -> list[Any]:
    if any(is_glob(table) or table.startswith("!") for table in planned.tables):
        return [tables_alias(asked.lake_conn_id)]
    return [table_asset(table, lake_conn_id=asked.lake_conn_id) for table in planned.tables]


def _doc(asked: DagsFile, planned: PlannedDag, path: Path) -> str:
    tables = ", ".join(f"`{table}`" for table in planned.tables)
    places = {"archive": asked.archive_conn_id, "lake": asked.lake_conn_id, "spark": asked.spark_conn_id}
    return with_links(_DOC.format(tables=tables, file=path.name, **places), "reference/dags-file.md")


def _callbacks(path: Path, planned: PlannedDag, *names: str) -> dict[str, Callable[..., Any] | None]:
    return {name: _imported(path, planned, name, getattr(planned.settings, name)) for name in names}


def _notified(path: Path, planned: PlannedDag, name: str) -> list[Callable[..., Any]]:
    """Return the callback that the file names, if any, and a notifier for each entry of ``notify``."""
    own = _imported(path, planned, name, getattr(planned.settings, name))
    return [*([own] if own else []), *(_notifier(path, planned, notice) for notice in planned.settings.notify)]


def _notifier(path: Path, planned: PlannedDag, notice: Notice) -> CdcNotifier:
    make = _imported(path, planned, "notify", notice.by)
    assert make
    try:
        by = make(**notice.arguments)
    except TypeError as error:
        raise ConfigurationError(
            f"{path}: {planned.place}: notify by {notice.by} with {sorted(notice.arguments)}: {error}.",
            next_step="Correct the notifier's arguments.",
        ) from error
    return CdcNotifier(by, **notice.model_dump(exclude={"by", "arguments"}))


def _imported(path: Path, planned: PlannedDag, name: str, dotted: str | None) -> Callable[..., Any] | None:
    if dotted is None:
        return None
    module, _, attribute = dotted.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), attribute)
    except Exception as error:
        raise ConfigurationError(
            f"{path}: {planned.place}: {name} is {dotted!r}, which cannot be imported: {type(error).__name__}: {error}.",
            next_step="Name a function of a module that Airflow can import, such as one beside the Dag file.",
        ) from error
    if not callable(found):
        raise ConfigurationError(
            f"{path}: {planned.place}: {name} is {dotted!r}, expected a function, seen a {type(found).__name__}.",
            next_step="Name a function, or another object that can be called with the task's context.",
        )
    return found  # type: ignore[no-any-return]
