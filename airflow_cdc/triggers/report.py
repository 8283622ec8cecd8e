"""CdcReportTrigger: wait in the triggerer until a job that runs in a cluster has left its report in the lake."""

from __future__ import annotations

import asyncio
import time

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.files import read_json
from airflow_cdc.triggers.look import Answer, CdcLookTrigger


class CdcReportTrigger(CdcLookTrigger):
    """Fire when the report is there, when it is time to ask the cluster about the job, or when it comes too late.

    The event tells ``{"why": "report" | "ask" | "late", "job": …, "until": …}``, the last two as they were given. The report itself stays
    in the lake: it may be larger than an event should be.
    """

    @staticmethod
    def look(  # type: ignore[override]
        *,
        lake_conn_id: str,
        report: str,
        ask_at: float | None,
        until: float | None,
        job: str | None,
        spark_conn_id: str | None,  # noqa: ARG004 - for on_kill.
    ) -> Answer:
        """Look for the report.

        :param lake_conn_id: connection of the lake.
        :param report: path of the report below the lake's root.
        :param ask_at: seconds since 1970 from which on the task shall ask the cluster; None: it cannot.
        :param until: seconds since 1970 after which the task shall give up; None: never.
        :param job: the cluster's name for the job.
        :param spark_conn_id: connection of the cluster that can be told to kill the job; None where it cannot.
        """
        lake, now = CdcLakeHook(lake_conn_id), time.time()
        told = {"job": job, "until": until}
        if _is_there(lake, report):
            return Answer(is_done=True, told={"why": "report", **told})
        if until is not None and now >= until:
            return Answer(is_done=True, told={"why": "late", **told})
        return Answer(is_done=ask_at is not None and now >= ask_at, told={"why": "ask", **told})

    async def on_kill(self) -> None:
        """Kill the job, when a user ends the task that waits here; Airflow calls it from 3.3 on."""
        if self.question["job"] and self.question["spark_conn_id"]:
            # Imported here: a triggerer that never kills needs no Spark provider.
            from airflow_cdc.operators.left_job import kill_left_job

            await asyncio.to_thread(kill_left_job, self.question["job"], conn_id=self.question["spark_conn_id"])


def _is_there(lake: CdcLakeHook, report: str) -> bool:
    try:
        return read_json(lake.fs, f"{lake.fs_root}/{report}") is not None
    except StateUnreadableError:
        # On HDFS and local disks a file can be seen while it is being written.
        return False
