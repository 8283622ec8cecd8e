"""Whether anybody still looks: the Dags that merge a flow's lake by a schedule, and since when no run of theirs has ended well."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from airflow_cdc.model.globs import matches_any
from airflow_cdc.plugins.dag_runs import RUNS, TaskRun
from airflow_cdc.plugins.dag_tasks import DAGS, CdcDag

_OTHER_WORK = {f"Cdc{name}Operator" for name in ("Reprocess", "Replay", "Retype", "Rebuild", "Maintain", "Verify", "Survey", "PlanGroups")}
"""Operators that do not bring a table to what is archived by now. Any other one that works on a lake may be somebody's merge."""
_GONE = 2
"""Schedules that may pass without a run that ended well."""
_GRACE = timedelta(minutes=5)
"""Time in which the last of them may begin; half a schedule where that is shorter. And time without a sign of life of a run."""


@dataclass(frozen=True)
class Watch:
    """How a Dag that merges by a schedule stands."""

    dag_id: str
    is_paused: bool
    interval: timedelta
    """Between two scheduled runs."""
    last_good: datetime | None
    """When its last run ended well, of those that are known; also one that found nothing to do."""
    is_overdue: bool
    """Whether two schedules passed since, and no run is at work."""

    def told(self, *, named: bool) -> str:
        """Return why nobody looks.

        :param named: whether to name the Dag, which not everybody may read.
        """
        since = f"since {self.last_good:%Y-%m-%d %H:%M} UTC" if self.last_good else "yet"
        why = "is paused" if self.is_paused else f"is due every {_spelled(self.interval)}, and no run has ended well {since}"
        return f"{f'Dag {self.dag_id}' if named else 'The Dag that merges it'} {why}."


def watches(lakes: Iterable[str], now: datetime | None = None) -> dict[Watch, tuple[str, ...] | None]:
    """Return the Dags that merge a lake by a schedule, each with the globs of its flows; None: all.

    :param lakes: connections with the lake's root.
    :param now: with a time zone.
    """
    wanted, at = set(lakes), now or datetime.now(timezone.utc)
    by_dag: dict[str, list[TaskRun]] = {}
    for run in RUNS.get():
        by_dag.setdefault(run.dag_id, []).append(run)
    found: dict[Watch, tuple[str, ...] | None] = {}
    for dag in DAGS.get():
        work = (task for task in dag.tasks if task.lake in wanted and not task.is_sensor and task.operator not in _OTHER_WORK)
        merging = {task.task_id for task in work}
        runs = [run for run in by_dag.get(dag.dag_id, ()) if run.task_id in merging]
        if merging and (watch := _watch(dag, runs, at)):
            globs = [run.tables for run in runs if run.run_type == "scheduled"] or [None]
            found[watch] = None if None in globs else tuple(sorted({glob for each in globs for glob in each or ()}))
    return found


def _watch(dag: CdcDag, runs: Iterable[TaskRun], now: datetime) -> Watch | None:
    runs = list(runs)
    begun = min((run.due for run in runs if run.run_type == "scheduled"), default=None)
    if begun is None:
        return None
    good = max((datetime.fromisoformat(run.ended) for run in runs if run.ended and run.state in ("success", "skipped")), default=None)
    dues = dag.dues_after(max(filter(None, (good, begun))), _GONE)
    if len(dues) < _GONE:
        return None
    interval = dues[-1] - dues[-2]
    is_busy = any(_is_at_work(run, now) for run in runs)
    is_overdue = now > dues[-1] + min(_GRACE, interval / 2) and not is_busy
    return Watch(dag.dag_id, dag.is_paused, interval, good, is_overdue=is_overdue)


def _is_at_work(run: TaskRun, now: datetime) -> bool:
    # While no scheduler runs, a worker that died stays "running".
    is_alive = run.beat is None or now - run.beat < _GRACE
    return run.state == "deferred" or (run.state == "running" and is_alive)


def of_flow(found: Mapping[Watch, tuple[str, ...] | None], flow: str) -> list[Watch]:
    """Return those that merge a flow."""
    return [watch for watch, globs in found.items() if globs is None or matches_any(flow, globs)]


def _spelled(interval: timedelta) -> str:
    minutes = interval.total_seconds() / 60
    return f"{minutes:g} minutes" if minutes < 120 else f"{minutes / 60:g} hours"
