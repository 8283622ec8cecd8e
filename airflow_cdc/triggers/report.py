"""CdcReportTrigger: wait in the triggerer until a job in a cluster has left its report in the lake."""

from __future__ import annotations

import asyncio
import time
from typing import Any

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import CdcError, StateUnreadableError, storage_refusal
from airflow_cdc.model.files import read_json
from airflow_cdc.model.report.try_reports import newest_report
from airflow_cdc.triggers.look import Answer, CdcLookTrigger

_TOLERATED, _TOLERATED_TERMINAL = 3600.0, 600.0
"""Seconds for which looks may fail in a row where no other end is given: for a storage outage; for an error that only a person can fix."""


class CdcReportTrigger(CdcLookTrigger):
    """Fire when the report is there, when it is time to ask the cluster about the job, or when the report is overdue.

    The event carries ``{"why": "report" | "ask" | "late" | "error", "job": …, "until": …, "report": …}``, the last three as they were
    given. The report itself stays in the lake: it may be larger than an event should be.

    A failed look proves nothing about the job, which goes on. It is logged and repeated until ``until``, or for an hour where there is none
    (ten minutes where only a person can fix it). Only then does the task resume, and kills the job or waits on.

    :raises TypeError: when no given argument would ever end the wait. The triggerer fails the task for this type of error only; any other
        would end the triggerer.
    """

    def __init__(self, *, poke_interval: float, **question: Any) -> None:
        if all(question.get(name) is None for name in ("ask_at", "until", "job")):
            raise TypeError(f"{type(self).__name__} is given neither ask_at nor until nor job: it could wait for ever.")
        super().__init__(poke_interval=poke_interval, **question)

    @staticmethod
    def look(  # type: ignore[override]
        *, lake_conn_id: str, report: str, ask_at: float | None, until: float | None, job: str | None, **_: Any
    ) -> Answer:
        """Look for the report.

        :param lake_conn_id: connection of the lake.
        :param report: path of the report below the lake's root; ``*`` in it stands for the number of any try
            (:func:`airflow_cdc.model.report.try_reports.report_name`).
        :param ask_at: time, in seconds since 1970, from which the task asks the cluster; None: it cannot.
        :param until: time, in seconds since 1970, after which the task gives up; None: never.
        :param job: the cluster's name for the job.
        :param _: arguments of :meth:`on_kill`: ``spark_conn_id``, connection of the cluster that can kill the job, None where it cannot;
            ``keytab``, ``principal`` and ``rm_auth`` as :func:`airflow_cdc.operators.left_job.kill_left_job` takes them.
        """
        lake, now = CdcLakeHook(lake_conn_id), time.time()
        asked = {"job": job, "until": until, "report": report}
        if _is_there(lake, report):
            return Answer(is_done=True, found={"why": "report", **asked})
        if until is not None and now >= until:
            return Answer(is_done=True, found={"why": "late", **asked})
        return Answer(is_done=ask_at is not None and now >= ask_at, found={"why": "ask", **asked})

    def tolerates(self, error: Exception, seconds: float) -> bool:
        """Return whether to look again after an error."""
        is_terminal = (isinstance(error, CdcError) and not error.transient) or storage_refusal(error) is not None
        if is_terminal:
            return seconds < _TOLERATED_TERMINAL
        until = self.question["until"]
        return time.time() < until if until is not None else seconds < _TOLERATED

    def event_of_error(self) -> dict[str, Any]:
        """Return what the task needs to resume without this trigger."""
        return {"found": {"why": "error", **{name: self.question[name] for name in ("job", "until", "report")}}}

    async def on_kill(self) -> None:
        """Kill the job, when a user ends the task that waits here; Airflow calls it from 3.3 on."""
        job, conn_id = self.question["job"], self.question["spark_conn_id"]
        if not (job and conn_id):
            self.log.warning("Job %s goes on: nobody is named who could kill it from here.", job)
            return
        # Imported here, so that a triggerer that never kills needs no Spark provider.
        from airflow_cdc.operators.left_job import kill_left_job

        login = {name: self.question.get(name) for name in ("keytab", "principal", "rm_auth")}
        await asyncio.to_thread(kill_left_job, job, conn_id=conn_id, **login)


def _is_there(lake: CdcLakeHook, report: str) -> bool:
    try:
        name = newest_report(lake.fs, lake.fs_root, report)
        return name is not None and read_json(lake.fs, f"{lake.fs_root}/{name}") is not None
    except StateUnreadableError:
        # A job of another version may write the report in place: on HDFS and local disks a partial file is visible.
        return False
