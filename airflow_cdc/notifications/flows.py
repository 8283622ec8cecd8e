"""CdcNotifier: a readable summary of what is wrong with flows, sent by other notifiers; nothing where all is well."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseNotifier

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.look.lag_findings import flows_behind
from airflow_cdc.model.report.findings import Finding, FindingKind, Summary, failures, summary_of
from airflow_cdc.model.report.health import findings_of_run

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_MOST_OF_AN_ERROR = 2000


class CdcNotifier(BaseNotifier):
    """Look at what a task found or did, and let other notifiers send a summary, if there is anything to say.

    A callback of a task, both ``on_failure_callback`` and ``on_success_callback``: a run that rejected records or kept unconfirmed rows
    succeeds. The other notifiers' templates have ``cdc``, with ``title`` (one line), ``text``, ``html`` and ``findings``::

        notifier = CdcNotifier(SmtpNotifier(to="data@example.com", subject="{{ cdc.title }}", html_content="{{ cdc.html }}"))
        CdcMergeOperator(task_id="merge", on_failure_callback=notifier, on_success_callback=notifier)

    Of a :class:`~airflow_cdc.operators.health.CdcHealthOperator` it sends what that task has not said within a day.

    Connections and tables are the task's own. Where one of the other notifiers fails, the others are still called.

    :param notifiers: notifiers, or other callables that take the context.
    :param stopped: whether to report flows that failed, and a task that failed without naming any.
    :param behind_seconds: report flows of which anything is pending and the last applied event is older; None: those over the bound of a
        lag sensor's own ``max_seconds``, and for other tasks none. It costs a look at the archive.
    :param attention: whether to report what a run did that needs a look: rejected records, rows that the newest snapshot did not find,
        missing offsets, changed columns and the like, above the bounds of each flow's ``warn_above`` in the flows file.
    """

    def __init__(
        self,
        notifiers: Sequence[Callable[[Any], Any]] | Callable[[Any], Any],
        *,
        stopped: bool = True,
        behind_seconds: float | None = None,
        attention: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.notifiers = [notifiers] if callable(notifiers) else list(notifiers)
        self.stopped = stopped
        self.behind_seconds = behind_seconds
        self.attention = attention

    def notify(self, context: Context) -> None:
        """Send the summary by each of the other notifiers.

        :raises Exception: what the first of them raised, after all were called.
        """
        found = self.summary(context)
        if not found.findings:
            return
        self.log.info("Notifying: %s", found.title)
        errors = []
        for notifier in self.notifiers:
            try:
                # A copy, because rendering overwrites a notifier's templates: the next task would send this one's text.
                copy.copy(notifier)({**context, "cdc": found.to_json()})
            except Exception as error:  # noqa: BLE001, PERF203 - the others shall be called, and the first is raised.
                errors.append(error)
        if errors:
            raise errors[0]

    def summary(self, context: Context) -> Summary:
        """Return what the notifiers send; without findings, they are not called."""
        task, error = context.get("task"), context.get("exception")
        findings = self._of_task(task)
        if error and self.stopped and findings is None:
            findings = [Finding(FindingKind.STOPPED, None, f"{type(error).__name__}: {error}"[:_MOST_OF_AN_ERROR])]
        return summary_of(_where(context, task), findings or ())

    def _of_task(self, task: Any) -> list[Finding] | None:
        """Return what a task found or did; None where it shows nothing."""
        news: Sequence[Finding] | None = getattr(task, "news", None)
        if news is not None:
            # A health task: it knows what was said before.
            return list(news)
        return [*self._of_report(getattr(task, "report", None)), *self._of_lag(task)] or None

    def _of_report(self, report: Any) -> Iterator[Finding]:
        if report is None:
            return
        if self.stopped:
            yield from failures(report)
        if self.attention:
            yield from findings_of_run(report)

    def _of_lag(self, task: Any) -> Iterator[Finding]:
        bound = self.behind_seconds if self.behind_seconds is not None else getattr(task, "max_seconds", None)
        archive, lake = getattr(task, "archive_conn_id", None), getattr(task, "lake_conn_id", None)
        if bound is None or not (archive and lake):
            return
        try:
            tables = table_globs(getattr(task, "tables", None))
            _, behind = CdcArchiveHook(archive).lag(CdcLakeHook(lake), tables)
        except Exception as error:  # noqa: BLE001 - what the report shows shall be sent all the same.
            self.log.warning("The lag cannot be looked for: %s: %s", type(error).__name__, error)
            return
        yield from flows_behind(behind, bound)


def _where(context: Context, task: Any) -> str:
    instance = context.get("ti")
    names = {
        "Dag": getattr(instance, "dag_id", None),
        "task": getattr(instance, "task_id", None),
        "run": getattr(instance, "run_id", None),
        "lake": getattr(task, "lake_conn_id", None),
    }
    return ", ".join(f"{what} {name}" for what, name in names.items() if name)
