"""A small merge as Airflow's worker starts it: over a Spark Connect server that is warm, against a cold ``spark-submit``."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import psutil
from pyspark.sql import SparkSession

from airflow_cdc.runtime import connect_server
from benchmarks.events import TOPIC, Change, spread, write_events
from benchmarks.measure import Result, Taken

ROWS, EVENTS = 10_000, 1_000
WARM_UPS, WARM_UPS_IN_FULL = 20, 60
"""Batches before the server counts as warm: Java compiles what runs often, and of a merge's code that takes some forty runs."""
_COLUMNS = "id, CAST(amount AS DECIMAL(12,2)) AS amount, name, city, visits, note"


def run(spark: SparkSession, folder: Path, *, full: bool = False) -> Result:
    """Merge a snapshot and then batches of updates and deletes; each batch by both, in turn, each into a lake of its own.

    :param spark: only compares the tables; the server is a process of its own.
    :param full: more rounds, and more before them.
    """
    folder = folder.absolute()
    # The operator's own code starts both; importing it needs an Airflow.
    os.environ.setdefault("AIRFLOW_HOME", str(folder / "airflow"))
    result = Result("warm", f"{EVENTS:,} events into {ROWS:,} rows, one process from start to exit", "cold", {"warm": [], "cold": []})
    rounds, warm_ups = (9, WARM_UPS_IN_FULL) if full else (3, WARM_UPS)
    port = connect_server.free_port("127.0.0.1", 0)
    options = connect_server.server_options("127.0.0.1", port, {})
    with connect_server.running_server("local[2]", "127.0.0.1", port, options) as server:
        works = {
            "warm": lambda number: _measure(lambda: _warm(folder, number, f"sc://127.0.0.1:{port}"), server.pid),
            "cold": lambda number: _measure(lambda: _cold(folder, number), None),
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


def _arguments(folder: Path, name: str, number: int) -> list[str]:
    report = folder / f"{name}-{number:03d}.json"
    return ["--archive", str(folder / "archive"), "--lake", str(folder / name), "--report", str(report)]


def _warm(folder: Path, number: int, url: str) -> None:
    from airflow_cdc.operators.connect_client import ConnectClient
    from airflow_cdc.operators.spark_target import application_of

    storage = folder / "storage.json"
    storage.write_text(json.dumps({"spark": {}, "file_systems": {}, "remote": url}))
    client = ConnectClient(lambda line: None)
    code = client.run(application_of("apply.py"), [*_arguments(folder, "warm", number), "--storage", str(storage)], {})
    assert code == 0, "\n".join(client.last_lines)


def _cold(folder: Path, number: int) -> None:
    from airflow_cdc.operators.spark_target import SparkTarget, application_of, binary_for, conf_for, environment_for

    target = SparkTarget("local[2]", "client", "spark-submit")
    conf = [word for name, value in conf_for(target, {}, little_waits=True).items() for word in ("--conf", f"{name}={value}")]
    command = [binary_for(target), "--master", target.master, *conf, application_of("apply.py"), *_arguments(folder, "cold", number)]
    # Of this process's own Spark they must not know.
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_GATEWAY", "SPARK_CONNECT"))}
    ended = subprocess.run(command, env={**environment, **environment_for(target)}, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr[-3000:]


def _measure(work: Callable[[], object], server: int | None) -> Taken:
    """Return what a work took that starts a process and waits for its end, and a server with it."""
    servers, ended, wall = _cpu_of(server), _ended_cpu(), time.monotonic()
    work()
    wall = time.monotonic() - wall
    peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
    return Taken(cpu=_cpu_of(server) - servers + _ended_cpu() - ended, wall=wall, peak=peak + _memory_of(server))


def _ended_cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def _cpu_of(server: int | None) -> float:
    if server is None:
        return 0.0
    times = psutil.Process(server).cpu_times()
    return float(times.user + times.system)


def _memory_of(server: int | None) -> int:
    return int(psutil.Process(server).memory_info().rss) if server else 0
