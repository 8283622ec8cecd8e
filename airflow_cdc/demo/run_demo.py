"""Run the demo: two rounds of archived events, merged by Airflow and shown row by row."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

from rich.console import Console

from airflow_cdc.demo import show
from airflow_cdc.demo.read_lake import read_quarantine, read_tables
from airflow_cdc.demo.stage import DAG_ID, FolderTakenError, Stage, airflow_environment, set_stage
from airflow_cdc.demo.story import Shop, archive
from airflow_cdc.demo.worker import Worker, WorkerFailedError

_JOB_LINE = re.compile(r"\[airflow-cdc\] (.+?)\s+(?:\[airflow\.|$)")
_TASK_LINE = re.compile(r"\[DAG TEST\] starting.* task_id=(\w+)")
_HALF_WRITTEN = 2
"""Index of the products record whose first half the afternoon's file holds in addition."""


def run_demo(console: Console, folder: Path) -> int:
    """Merge change events with a Dag that Airflow runs, twice, and show the outcome of every row.

    :param folder: wiped first; keeps the demo's files.
    :return: 0 when every table equals its source, 1 when not, 2 when it cannot begin: the folder holds something else.
    """
    try:
        stage = set_stage(folder)
    except FolderTakenError as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        return 2
    started = time.monotonic()
    show.opening(console, stage)
    environment = airflow_environment(stage)
    try:
        with Worker("airflow_cdc.demo.airflow_worker", environment, stage.folder) as airflow:
            right = _play(console, stage, airflow)
    except WorkerFailedError as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        return 1
    show.closing(console, stage, time.monotonic() - started)
    return 0 if right else 1


def _play(console: Console, stage: Stage, airflow: Worker) -> bool:
    shop = Shop()
    flows = [table.topic for table in shop.tables]

    shop.first_load()
    show.round_begins(console, 1, "the first load, and a morning's orders", archive(shop, stage.archive, "0800"))
    _merge(console, airflow, shop)
    before = read_tables(stage.lake, flows)
    right = show.compared(console, before, shop.rows())

    shop.afternoon()
    show.round_begins(console, 2, "the awkward kind", archive(shop, stage.archive, "1600", half_written=_HALF_WRITTEN))
    show.afternoon(console)
    _merge(console, airflow, shop)
    found = read_tables(stage.lake, flows)
    show.changes(console, shop, before, found)
    show.quarantine(console, read_quarantine(stage.lake, flows))
    right = show.compared(console, found, shop.rows()) and right
    show.last_event_per_key(console, shop)
    return right


def _merge(console: Console, airflow: Worker, shop: Shop) -> None:
    with console.status("Airflow starts") as status:

        def watch(line: str) -> None:
            if task := _TASK_LINE.search(line):
                status.update(f"Airflow runs {task[1]}")
            elif job := _JOB_LINE.search(line):
                status.update(f"merge: {job[1]}")

        answer = airflow.ask({"dag_id": DAG_ID}, watch)
    tasks: dict[str, Any] = answer["tasks"]
    show.tasks(console, tasks)
    if answer["state"] != "success":
        raise WorkerFailedError(f"The Dag run ended as {answer['state']}:{airflow.last_words()}")
    show.counts(console, shop, tasks["merge"]["result"])
