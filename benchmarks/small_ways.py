"""The ways to merge small batches: many tables in one application, a process each, over a server that is warm."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import resource
import statistics
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.runtime import connect_server
from benchmarks import processes, small_textbook
from benchmarks.cold_command import merge_command
from benchmarks.measure import Taken, measure
from benchmarks.small_archive import SmallArchive
from benchmarks.small_events import Source
from benchmarks.submitted import run_process, run_textbook


@dataclass(frozen=True)
class Amounts:
    """How much is measured."""

    tables: int
    """Of one application."""
    peers: int
    """Of them, those that the textbook's processes merge too."""
    rounds: int
    warm_ups: int
    """Rounds behind the snapshots, which warm up too, and before those that count."""
    server_warm_ups: int
    """Runs of the server. Java compiles what runs often: of a merge's code that takes some forty."""


class Way(ABC):
    """One way to merge the batches of an archive, each round's when it is there."""

    def __init__(self, spark: SparkSession, archive: SmallArchive, folder: Path, amounts: Amounts) -> None:
        self.spark = spark
        self.archive = archive
        self.folder = folder.absolute()
        self.lake = self.folder / "lake"
        self.amounts = amounts

    @property
    def sources(self) -> list[Source]:
        """The tables whose batches it merges."""
        return self.archive.sources[:1]

    def table(self, source: Source) -> Path:
        """Return where it keeps a table."""
        return self.lake / source.topic

    def begin(self, number: int) -> None:
        """Merge the batches of a round before those that are measured: by this process's application, if it is about processes."""
        apply_archive(ArchiveRun(self.spark, str(self.archive.first), str(self.lake)))

    @abstractmethod
    def merge(self, number: int) -> list[Taken]:
        """Merge the batches of a round; return what each table took, or each on average."""

    def facts(self) -> dict[str, Any]:
        """Return what else it found, after its last round."""
        return {}


class OneApplication(Way):
    """Ours in an application that lives, all tables side by side."""

    @property
    def sources(self) -> list[Source]:
        """All tables."""
        return self.archive.sources

    def begin(self, number: int) -> None:
        """Merge as if it were measured."""
        self.merge(number)

    def merge(self, number: int) -> list[Taken]:
        """Merge all tables' batches in one run."""
        before, tables = spark_jobs(self.spark), len(self.sources)
        taken = measure(self._apply)
        self._jobs = (spark_jobs(self.spark) - before) / tables
        self._whole = taken
        return [Taken(cpu=taken.cpu / tables, wall=taken.wall / tables, peak=taken.peak)]

    def facts(self) -> dict[str, Any]:
        """Return how many Spark jobs a table takes, and what a run costs that finds nothing."""
        return {
            "all tables, CPU s, the last round": round(self._whole.cpu, 1),
            "Spark jobs a table": round(self._jobs, 1),
            "a run without new files, CPU s in all": round(measure(self._apply).cpu, 2),
        }

    def _apply(self) -> None:
        apply_archive(ArchiveRun(self.spark, str(self.archive.whole), str(self.lake)))


class TextbookProcess(Way):
    """The textbook's job, a process a table, under plain ``spark-submit`` with Spark's and Delta's defaults."""

    @property
    def sources(self) -> list[Source]:
        """Some tables."""
        return self.archive.sources[: self.amounts.peers]

    def begin(self, number: int) -> None:
        """Merge by this process's application."""
        for source in self.sources:
            small_textbook.merge(self.spark, self.archive.file(source, number), self.table(source))

    def merge(self, number: int) -> list[Taken]:
        """Start the processes one behind the other."""
        return [
            run_textbook(self.archive.file(source, number), self.table(source), self.folder / f"{source.topic}-{number:03d}.log")
            for source in self.sources
        ]


class OwnProcess(Way):
    """The very process that a merge task of ours starts, under ``spark-submit``."""

    def __init__(self, spark: SparkSession, archive: SmallArchive, folder: Path, amounts: Amounts) -> None:
        super().__init__(spark, archive, folder, amounts)
        self._seconds: list[float] = []

    def merge(self, number: int) -> list[Taken]:
        """Start it and wait."""
        report = self.folder / f"{number:03d}.json"
        # Building the command is not the job's: the task's process does it, which Airflow starts for either.
        asked = merge_command(self.archive.first, self.lake, report)
        taken = run_process(asked.command, asked.environment, report.with_suffix(".log"))
        flows = json.loads(report.read_text(encoding="utf-8"))["flows"]
        self._seconds += [batch["seconds"] for flow in flows for batch in flow["batches"]]
        return [taken]

    def facts(self) -> dict[str, Any]:
        """Return how much of it is the microbatch."""
        return {"wall seconds inside the microbatch": round(statistics.median(self._seconds), 2)}


class WarmServer(Way):
    """The process that a merge task starts for a Spark Connect server, and the server, which has merged other tables before."""

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the server, warmed up."""
        # The operator's own code starts both; importing it needs an Airflow.
        os.environ.setdefault("AIRFLOW_HOME", str(self.folder / "airflow"))
        # Airflow prints what is logged from there on, down to each connection to Java that closes.
        logging.getLogger("py4j").setLevel(logging.WARNING)
        port = connect_server.free_port("127.0.0.1", 0)
        options = connect_server.server_options("127.0.0.1", port, {})
        with connect_server.running_server("local[2]", "127.0.0.1", port, options, token=None) as server:
            self._server, self._url = server.pid, f"sc://127.0.0.1:{port}"
            with processes.apart(server.pid):
                others = SmallArchive(self.folder / "warm-up", tables=1, seed=-1)
                for number in range(self.amounts.server_warm_ups):
                    others.write(number)
                    self._run(others.first, self.folder / "warm-up" / "lake")
                yield

    def begin(self, number: int) -> None:
        """Merge as if it were measured."""
        self.merge(number)

    def merge(self, number: int) -> list[Taken]:
        """Start the process and wait."""
        return [_measure(lambda: self._run(self.archive.first, self.lake), self._server)]

    def _run(self, archive: Path, lake: Path) -> None:
        from airflow_cdc.operators.connect_client import ConnectClient
        from airflow_cdc.operators.spark_target import application_of

        storage = self.folder / "storage.json"
        storage.write_text(json.dumps({"spark": {}, "file_systems": {}, "remote": self._url}), encoding="utf-8")
        client = ConnectClient(lambda line: None)
        places = {"archive": archive, "lake": lake, "report": self.folder / "report.json", "storage": storage}
        arguments = [part for name, place in places.items() for part in (f"--{name}", str(place))]
        code = client.run(application_of("apply.py"), arguments, {})
        assert code == 0, "\n".join(client.last_lines)


def spark_jobs(spark: SparkSession) -> int:
    """Return how many jobs the application has started until now."""
    started: Callable[[], int] = spark.sparkContext._jsc.sc().dagScheduler().numTotalJobs
    return started()


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
