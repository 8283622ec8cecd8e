"""A small merge as Airflow's worker starts it: over a Spark Connect server that is warm, against a cold ``spark-submit``."""

from __future__ import annotations

import json
import os
import resource
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from airflow_cdc.runtime import connect_server
from benchmarks import size
from benchmarks.cold_command import merge_command
from benchmarks.events import TOPIC, Change, spread, write_events
from benchmarks.measure import Budget, Result, Taken
from benchmarks.submitted import run_process

ROWS, EVENTS = 10_000, 1_000
BUDGETS = (Budget("", 3.0, of="warm", figure="wall"), Budget("cold", 0.2, of="warm"))
_COLUMNS = "id, CAST(amount AS DECIMAL(12,2)) AS amount, name, city, visits, note"


def run(spark: SparkSession, folder: Path) -> Result:
    """Merge a snapshot and then batches of updates and deletes; each batch by both, in turn, each into a lake of its own.

    :param spark: only compares the tables; the server is a process of its own.
    """
    folder = folder.absolute()
    # The operator's own code starts both; importing it needs an Airflow.
    os.environ.setdefault("AIRFLOW_HOME", str(folder / "airflow"))
    result = Result(
        "warm", f"{EVENTS:,} events into {ROWS:,} rows, one process from start to exit", "cold", {"warm": [], "cold": []}, budgets=BUDGETS
    )
    # Java compiles what runs often: of a merge's code that takes some forty runs before the server counts as warm.
    rounds, warm_ups = size.of(tiny=(1, 2), quick=(3, 10), full=(9, 60))
    port = connect_server.free_port("127.0.0.1", 0)
    options = connect_server.server_options("127.0.0.1", port, {})
    with connect_server.running_server("local[2]", "127.0.0.1", port, options) as server:
        works = {
            "warm": lambda number: _measure(lambda: _warm(folder, number, f"sc://127.0.0.1:{port}"), server.pid),
            "cold": lambda number: _cold(folder, number),
        }
        for number in range(warm_ups + rounds):
            _write(folder / "archive" / f"{number:03d}.jsonl", number)
            for name in sorted(works, reverse=bool(number % 2)):
                # A cold run has nothing to warm up. The last one before those that are measured merges what the others left.
                if name == "cold" and 0 < number < warm_ups - 1:
                    continue
                taken = works[name](number)
                result.taken[name] += [taken] if number >= warm_ups else []
    tables = [spark.sql(f"SELECT {_COLUMNS} FROM delta.`{folder / name / TOPIC}`") for name in works]
    differing = tables[0].exceptAll(tables[1]).count() + tables[1].exceptAll(tables[0]).count()
    result.facts = {"rows": tables[0].count(), "differing": differing}
    result.void = f"the tables differ in {differing} rows" if differing else ""
    return result


def _write(file: Path, number: int) -> None:
    first = number * 10_000_000
    snapshot: Iterable[Change] = (Change("r", key, 0) for key in range(ROWS))
    write_events(file, spread(EVENTS, ROWS, first_transaction=first, seed=number) if number else snapshot, first=first, seed=number)


def _warm(folder: Path, number: int, url: str) -> None:
    from airflow_cdc.operators.connect_client import ConnectClient
    from airflow_cdc.operators.spark_target import application_of

    storage = folder / "storage.json"
    storage.write_text(json.dumps({"spark": {}, "file_systems": {}, "remote": url}))
    client = ConnectClient(lambda line: None)
    places = {"archive": folder / "archive", "lake": folder / "warm", "report": folder / f"warm-{number:03d}.json", "storage": storage}
    arguments = [part for name, place in places.items() for part in (f"--{name}", str(place))]
    code = client.run(application_of("apply.py"), arguments, {})
    assert code == 0, "\n".join(client.last_lines)


def _cold(folder: Path, number: int) -> Taken:
    report = folder / f"cold-{number:03d}.json"
    asked = merge_command(folder / "archive", folder / "cold", report)
    return run_process(asked.command, asked.environment, report.with_suffix(".log"))


def _measure(work: Callable[[], object], server: int) -> Taken:
    """Return what a work took that starts a process and waits for its end, and a server with it."""
    servers, ended, wall = _cpu_of(server), _ended_cpu(), time.monotonic()
    work()
    wall = time.monotonic() - wall
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Taken(cpu=_cpu_of(server) - servers + _ended_cpu() - ended, wall=wall, peak=peak + _memory_of(server))


def _ended_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_of(server: int) -> float:
    times = psutil.Process(server).cpu_times()
    return float(times.user + times.system)


def _memory_of(server: int) -> int:
    return int(psutil.Process(server).memory_info().rss)
