"""A standalone Spark cluster on this machine, out of PySpark's own distribution: a master and workers, each a process."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

from airflow_cdc import runtime
from airflow_cdc.runtime.layout import pyspark_folder
from tests.system.live_airflow import free_port


class SparkCluster:
    """A master and its workers, of one core each."""

    def __init__(self, folder: Path, *, workers: int, memory: str = "1500m") -> None:
        self._folder, self._port, self._page = folder, free_port(), free_port()
        self.host = f"127.0.0.1:{self._port}"
        folder.mkdir(parents=True)
        self._master = self._start(
            "master", "org.apache.spark.deploy.master.Master", "--port", str(self._port), "--webui-port", str(self._page)
        )
        self.workers = [
            self._start(
                f"worker-{number}",
                "org.apache.spark.deploy.worker.Worker",
                *("--cores", "1", "--memory", memory, "--webui-port", str(free_port()), "--work-dir", str(folder / f"work-{number}")),
                f"spark://{self.host}",
            )
            for number in range(workers)
        ]
        self._wait_for(workers)

    def _start(self, name: str, main: str, *arguments: str) -> subprocess.Popen[bytes]:
        environment = {**os.environ, **runtime.spark_environment(), "SPARK_LOCAL_HOSTNAME": "127.0.0.1"}
        command = [str(pyspark_folder() / "bin" / "spark-class"), main, "--host", "127.0.0.1", *arguments]
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)

    def page(self) -> str:
        """Return the master's page: its workers and applications."""
        with urlopen(f"http://127.0.0.1:{self._page}/json/", timeout=5) as answer:
            return str(answer.read().decode())

    def _wait_for(self, workers: int) -> None:
        deadline = time.monotonic() + 120
        while time.monotonic() < deadline:
            try:
                if self.page().count('"ALIVE"') > workers:
                    return
            except (URLError, OSError):
                pass
            time.sleep(0.5)
        raise AssertionError("\n".join(file.read_text(errors="replace")[-2000:] for file in self._folder.glob("*.log")))

    def executors(self) -> list[Path]:
        """Return the folders of the executors that were started so far."""
        return sorted(self._folder.glob("work-*/app-*/*"))

    def kill_worker(self, number: int) -> None:
        """Kill a worker with its executors, as a lost machine would."""
        _kill(self.workers[number])

    def stop(self) -> None:
        """End all."""
        for process in (*self.workers, self._master):
            _kill(process)


def _kill(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
