"""Contestants in a process of their own, from start to exit: what the first merge of a fresh JVM costs."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from airflow_cdc import runtime
from benchmarks.contestants.ours import Ours
from benchmarks.contestants.textbook import Textbook
from benchmarks.submitted import MASTER, run_process

_ROOT = str(Path(__file__).parents[2])
_JOB = str(Path(__file__).with_name("large_textbook_job.py"))


class OursInProcess(Ours):
    """``airflow-cdc apply``, with the settings that a user gets who sets none."""

    name = "ours"

    def merge(self) -> None:
        """Start the command and wait."""
        base, flows, log = self.task.base, self.folder / "flows.json", self.folder / "log"
        flows.write_text(json.dumps({"flows": [{"topic": base.flow.topic, "columns": base.shape.declared}]}), encoding="utf-8")
        places = {"archive": base.archive.absolute(), "lake": self.folder / "lake", "flows": flows}
        arguments = [part for option, place in places.items() for part in (f"--{option}", str(place))]
        run_process([sys.executable, "-m", "airflow_cdc", "apply", "--json", *arguments], {"PYTHONPATH": _ROOT}, log)
        text = log.read_text(encoding="utf-8")
        report = json.loads(text[text.index("\n{") :] if not text.startswith("{") else text)
        self.keep(batch for flow in report["flows"] for batch in flow["batches"])


class TextbookInProcess(Textbook):
    """The textbook's job under plain ``spark-submit`` with Spark's and Delta's defaults."""

    name = "textbook"

    def merge(self) -> None:
        """Start the job and wait."""
        environment = {**runtime.spark_environment(MASTER), "PYTHONPATH": _ROOT}
        options = [part for name, value in runtime.spark_options().items() for part in ("--conf", f"{name}={value}")]
        submit = str(Path(environment["SPARK_HOME"]) / "bin" / "spark-submit")
        shape = self.task.base.shape.name
        command = [submit, "--master", MASTER, *options, _JOB, shape, str(self.table), *self.task.paths]
        run_process(command, environment, self.folder / "log")
