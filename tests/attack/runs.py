"""Runs of the real code over an archive: the native engine in this process, or Spark."""

from __future__ import annotations

import json
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import CdcError, RejectReason, UnexpectedError
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.late_session import late_session
from airflow_cdc.pipeline.target import alter_table
from tests.attack.source import TOPIC

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_USUAL_SIZE = alter_table.DELETION_VECTORS_FROM_BYTES


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
    """Records are in the quarantine that are whole."""
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
    asking = [
        frame for frame in traceback.extract_stack() if "/airflow_cdc/pipeline/" in frame.filename and "/spark/" not in frame.filename
    ]
    raise NeedsSpark(f"NeedsSpark: {Path(asking[-1].filename).name}: {asking[-1].name}" if asking else "NeedsSpark")


@cache
def _one_spark() -> SparkSession:

    from airflow_cdc.pipeline.spark.session import start_session

    options = {"spark.ui.enabled": "false", "spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}
    session = start_session("attack", master="local[2]", options=options)
    session.sparkContext.setLogLevel("OFF")
    return session


@contextmanager
def large_from(size: int | None) -> Iterator[None]:
    """Mark rows by deletion vectors in tables from this size on. Two runs may be at work at once."""
    try:
        if size is not None:
            alter_table.DELETION_VECTORS_FROM_BYTES = size
        yield
    finally:
        alter_table.DELETION_VECTORS_FROM_BYTES = _USUAL_SIZE


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

    def look_at_all(self) -> None:
        """Let the next run look at every file, as the first of each hour does: a folder's own time does not show that a file in it grew."""
        for remembered in self.root.glob("_cdc/archives/**/looked.json"):
            remembered.unlink()

    def apply(self, *, crash_after: int | None = None) -> Run:
        """Run once. A run that crashes is begun anew, as a retry does."""
        crashing = None if crash_after is None else self.apply_until(crash_after)
        return crashing or self._run(lambda effect: None)

    def apply_until(self, effect: int) -> Run | None:
        """Run, and crash behind an effect; None: so it ended."""
        effects = iter(range(10_000))

        def crash(name: str) -> None:
            if next(effects) == effect:
                raise Crash(name)

        try:
            return self._run(crash)
        except Crash:
            return None

    def _run(self, after_effect: Any) -> Run:
        lines: list[str] = []
        engine = Engine.SPARK if self.engine == "spark" else None
        run = ArchiveRun(
            self.session, str(self.archive), str(self.root), self.flows, progress=lines.append, after_effect=after_effect, engine=engine
        )
        try:
            with large_from(0 if self.is_marked else None):
                report = apply_archive(run)
        except NeedsSpark:
            return Run(Status.NEEDS_SPARK, _reason(lines))
        return _judge(report, lines)


def attempt(do: Callable[[], Run | None]) -> Run:
    """Return how an operation of another kind ended; one that returns None had nothing to do."""
    try:
        return do() or Run(Status.DONE)
    except NeedsSpark as asked:
        return Run(Status.NEEDS_SPARK, str(asked))
    except CdcError as error:
        # Errors of ours wrap what was raised below them.
        needs_spark = "NeedsSpark" in str(error) or isinstance(error.__cause__, NeedsSpark)
        return Run(Status.NEEDS_SPARK if needs_spark else Status.REFUSED, str(error))


def judge_report(report: ApplyReport) -> Run:
    """Return how a run ended that reports what it did."""
    return _judge(report, [])


def _judge(report: ApplyReport, lines: list[str]) -> Run:
    for flow in report.flows:
        if flow.error:
            return _failed(flow, lines)
        if flow.events.accounted() != flow.events.read:
            return Run(Status.MISCOUNTED, str(flow.events))
        reasons = {reason for batch in flow.batches for reason in batch.rejects}
        if reasons - {RejectReason.MALFORMED_JSON.value}:
            return Run(Status.REJECTED, "; ".join(flow.reject_lines()))
    return Run(Status.DONE, engines=frozenset(batch.engine for flow in report.flows for batch in flow.batches))


def _failed(flow: FlowOutcome, lines: list[str]) -> Run:
    error = flow.error or {}
    if "NeedsSpark" in str(error):
        return Run(Status.NEEDS_SPARK, _reason(lines))
    is_ours = error.get("type") != UnexpectedError.__name__
    return Run(Status.REFUSED if is_ours else Status.BROKEN, f"{error.get('type')}: {error.get('message')}")


def _reason(lines: list[str]) -> str:
    named = [line.split(": ", 1)[-1][:200] for line in lines if "Spark" in line]
    return next(iter(named), "")
