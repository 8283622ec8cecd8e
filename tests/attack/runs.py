"""Runs of the real code over an archive: the native engine in this process, or Spark."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.late_session import late_session
from airflow_cdc.pipeline.target import alter_table
from tests.attack.source import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class NeedsSpark(Exception):  # noqa: N818 (no error: the answer to who would start it)
    """Something asked for Spark, which a native run has not."""


class Crash(BaseException):
    """The process ended here."""


class Status(str, Enum):
    """How a run ended."""

    DONE = "done"
    NEEDS_SPARK = "needs Spark"
    REFUSED = "refused"
    """The flow stopped with an error of ours."""
    REJECTED = "rejected"
    """Records are in the quarantine."""
    MISCOUNTED = "miscounted"
    BROKEN = "broken"
    """An error that nobody meant to raise."""


@dataclass(frozen=True)
class Run:
    """One run's end."""

    status: Status
    detail: str = ""
    engines: frozenset[str | None] = frozenset()


def _no_spark() -> SparkSession:
    raise NeedsSpark


@cache
def _one_spark() -> SparkSession:
    import os

    from airflow_cdc import runtime
    from airflow_cdc.pipeline.spark.session import start_session

    os.environ.update(runtime.spark_environment("local[2]"))
    options = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
    session = start_session("attack", master="local[2]", options=options)
    session.sparkContext.setLogLevel("OFF")
    return session


@contextmanager
def _large_from(size: int | None) -> Iterator[None]:
    """Mark rows by deletion vectors in tables from this size on."""
    usual = alter_table.DELETION_VECTORS_FROM_BYTES
    try:
        if size is not None:
            alter_table.DELETION_VECTORS_FROM_BYTES = size
        yield
    finally:
        alter_table.DELETION_VECTORS_FROM_BYTES = usual


@dataclass
class Lake:
    """A lake, into which one archive is applied."""

    archive: Path
    root: Path
    settings: dict[str, Any] = field(default_factory=dict)
    """Of the flow, as in a flows file."""
    engine: str = "native"
    """``native``: without Spark, or not at all; ``auto`` and ``spark`` as the command line has them."""
    is_marked: bool = False

    @property
    def table(self) -> Path:
        return self.root / TOPIC

    @property
    def flows(self) -> Any:
        return read_flows(json.dumps({"flows": [{"topic": TOPIC, **self.settings}]}))

    @property
    def session(self) -> SparkSession:
        return late_session(_no_spark, master="local[1]") if self.engine == "native" else _one_spark()

    def apply(self, *, crash_after: int | None = None) -> Run:
        """Run once. A run that crashes is begun anew, as a retry does."""
        effects = iter(range(10_000))

        def crash(effect: str) -> None:
            if next(effects) == crash_after:
                raise Crash(effect)

        if crash_after is not None:
            try:
                return self._run(crash)
            except Crash:
                pass
        return self._run(lambda effect: None)

    def _run(self, after_effect: Any) -> Run:
        lines: list[str] = []
        engine = Engine.SPARK if self.engine == "spark" else None
        run = ArchiveRun(
            self.session, str(self.archive), str(self.root), self.flows, progress=lines.append, after_effect=after_effect, engine=engine
        )
        try:
            with _large_from(0 if self.is_marked else None):
                report = apply_archive(run)
        except NeedsSpark:
            return Run(Status.NEEDS_SPARK, _reason(lines))
        return _judge(report, lines)


def attempt(do: Any) -> Run:
    """Return how an operation of another kind ended."""
    try:
        do()
    except NeedsSpark:
        return Run(Status.NEEDS_SPARK)
    except CdcError as error:
        return Run(Status.REFUSED, str(error))
    return Run(Status.DONE)


def judge_report(report: ApplyReport) -> Run:
    """Return how a run ended that reports what it did."""
    return _judge(report, [])


def _judge(report: ApplyReport, lines: list[str]) -> Run:
    for flow in report.flows:
        if flow.error:
            return _failed(flow, lines)
        if flow.events.accounted() != flow.events.read:
            return Run(Status.MISCOUNTED, str(flow.events))
        if flow.events.rejected:
            return Run(Status.REJECTED, "; ".join(flow.reject_lines()))
    return Run(Status.DONE, engines=frozenset(batch.engine for flow in report.flows for batch in flow.batches))


def _failed(flow: FlowOutcome, lines: list[str]) -> Run:
    error = flow.error or {}
    if "NeedsSpark" in str(error):
        return Run(Status.NEEDS_SPARK, _reason(lines))
    text = f"{error.get('type')}: {error.get('message')}"
    kind = str(error.get("type"))
    import airflow_cdc.model.errors as ours

    is_ours = isinstance(getattr(ours, kind, None), type) and issubclass(getattr(ours, kind), CdcError)
    return Run(Status.REFUSED if is_ours else Status.BROKEN, text)


def _reason(lines: list[str]) -> str:
    named = [line for line in lines if "Spark" in line and "NeedsSpark" not in line]
    return named[-1].split(": ", 1)[-1][:200] if named else " / ".join(lines[-4:])
