"""task_of_report: what names the reports of a task's jobs, for the task that submits and the task that reads."""

from __future__ import annotations

from typing import Any

from airflow_cdc.operators.announcements import installation


def task_of_report(instance: Any, task_id: str) -> str:
    """Return what identifies the instance of a task in the same Dag run, and the same mapped instance of it.

    :param instance: the present task instance, of the same run and map index.
    :param task_id: of the task that submits the job.
    """
    # Another Airflow over the same lake may have equal Dag, run and task ids.
    index = -1 if instance.map_index is None else instance.map_index
    return "/".join((installation(), instance.dag_id, instance.run_id, task_id, str(index)))
