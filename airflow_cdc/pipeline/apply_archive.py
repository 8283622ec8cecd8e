"""Apply an archive: survey what is new, then bring every flow up to date, one session a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property

import fsspec
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import SparkSession

from airflow_cdc.model.archive import ArchiveListing, list_archive
from airflow_cdc.model.errors import (
    ArchivedFileMissingError,
    CdcError,
    ConcurrentRunError,
    PlanRefusedError,
    SparkFailedError,
    StorageFailedError,
    UnexpectedError,
)
from airflow_cdc.model.files import FileSystem, absolute_uri
from airflow_cdc.model.flow import CdcFlow, matches_any
from airflow_cdc.model.lake import ArchiveState, FlowState, Ledger, staging_uri
from airflow_cdc.model.microbatch import Microbatch, PlanPosition, next_microbatch
from airflow_cdc.model.outcome import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report import BatchReport
from airflow_cdc.model.survey import Survey
from airflow_cdc.pipeline.apply_microbatch import apply_microbatch
from airflow_cdc.pipeline.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.session import session_for_batch
from airflow_cdc.pipeline.survey import survey_files

_SURVEY_ATTEMPTS = 5


@dataclass(frozen=True)
class ArchiveRun:
    """One run over an archive."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the lake's root."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic; a topic without any gets the defaults."""
    tables: tuple[str, ...] = ()
    """Globs of the flows to apply; none: all."""
    progress: Callable[[str], None] = lambda line: None
    """Told what happens, a line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Told the name of each effect when it is done; tests crash there."""
    parallel: int = min(4, os.cpu_count() or 1)
    """Tables merged at a time."""


def apply_archive(run: ArchiveRun) -> ApplyReport:
    """Apply every pending microbatch of every flow; a flow that fails does not stop the others.

    :raises CdcError: when the archive or the lake's state cannot be read at all.
    """
    run = replace(run, archive=absolute_uri(run.archive), lake=absolute_uri(run.lake))
    archive_fs, archive_root = fsspec.core.url_to_fs(run.archive)
    lake_fs, lake_root = fsspec.core.url_to_fs(run.lake)
    listing = list_archive(archive_fs, archive_root)
    state = ArchiveState(lake_fs, lake_root, run.archive)
    ledger = _survey_new_files(run, state, listing)
    chosen = [topic for topic in ledger.tables() if matches_any(topic, run.tables)]
    flows = [_FlowRun(run, state, ledger, FlowState(lake_fs, lake_root, topic), lake_fs) for topic in chosen]
    with ThreadPoolExecutor(max(1, min(run.parallel, len(flows)))) as pool:
        outcomes = list(pool.map(_FlowRun.apply, flows))
    return ApplyReport(
        archive=run.archive,
        lake=run.lake,
        flows=tuple(outcomes),
        control_topics=tuple(ledger.control_topics()),
        ignored_files=listing.ignored,
    )


def _survey_new_files(run: ArchiveRun, state: ArchiveState, listing: ArchiveListing) -> Ledger:
    for _ in range(_SURVEY_ATTEMPTS):
        ledger = state.ledger()
        new = state.unsurveyed(listing.files, ledger)
        if not new:
            return ledger
        size = sum(file.size for file in new)
        run.progress(f"looking into {len(new)} new files ({_megabytes(size)})")
        shapes = survey_files(session_for_batch(run.spark, batch_bytes=sum(file.text_size for file in new)), run.archive, new)
        state.add(Survey(state.archive, ledger.surveyed_through + 1, tuple(new), shapes))
        run.after_effect("survey")
    raise ConcurrentRunError(f"Other runs kept surveying archive {run.archive} at the same time.", next_step="Nothing is lost; run again.")


@dataclass(frozen=True)
class _FlowRun:
    """One flow in one run over an archive."""

    run: ArchiveRun
    archive: ArchiveState
    ledger: Ledger
    state: FlowState
    lake_fs: FileSystem

    @cached_property
    def flow(self) -> CdcFlow:
        return self.run.flows.get(self.state.flow, CdcFlow(self.state.flow))

    @cached_property
    def table(self) -> str:
        return self.flow.table_path(self.run.lake)

    def apply(self) -> FlowOutcome:
        """Apply the flow's pending microbatches one by one, up to the first that fails."""
        reports: list[BatchReport] = []
        try:
            while microbatch := self._next():
                size = _megabytes(microbatch.size)
                self.run.progress(f"{self.flow.name}: microbatch {microbatch.number}, {len(microbatch.files)} files ({size})")
                reports.append(self._apply(microbatch))
                self.run.progress(f"{self.flow.name}: {_summary(reports[-1])}")
        except CdcError as problem:
            return self._failed(reports, problem)
        except Exception as problem:  # noqa: BLE001 - one flow's trouble, whatever it is, must not stop the others.
            return self._failed(reports, self._unexpected(problem))
        status = FlowStatus.APPLIED if reports else FlowStatus.UP_TO_DATE
        return FlowOutcome(self.flow.name, status, self.table, tuple(reports))

    def _failed(self, reports: list[BatchReport], problem: CdcError) -> FlowOutcome:
        error = problem.to_json()
        self.run.progress(f"{self.flow.name}: FAILED: {error['message']}")
        return FlowOutcome(self.flow.name, FlowStatus.FAILED, self.table, tuple(reports), error)

    def _unexpected(self, problem: Exception) -> CdcError:
        kind = StorageFailedError if isinstance(problem, OSError) else UnexpectedError
        return kind(
            f"Flow {self.flow.name}: {type(problem).__name__}: {problem}",
            next_step="See the job's log; nothing is lost, the next run takes the microbatch up again.",
        )

    def _next(self) -> Microbatch | None:
        """Return the microbatch that is planned but not done, else plan the next one and write it down."""
        while True:
            checkpoint = self.state.checkpoint()
            open_intent = self.state.intent(checkpoint.number + 1)
            if open_intent:
                return open_intent
            planned = checkpoint.planned.get(self.archive.archive, PlanPosition())
            first = max(planned.survey, self.ledger.topics[self.flow.topic])
            microbatch = next_microbatch(
                flow=self.flow.name,
                number=checkpoint.number + 1,
                archive=self.archive.archive,
                surveys=self.archive.surveys(first, self.ledger.surveyed_through),
                planned=planned,
                max_bytes=self.flow.max_microbatch_bytes,
            )
            if microbatch is None or self.state.write_intent(microbatch):
                return microbatch

    def _apply(self, microbatch: Microbatch) -> BatchReport:
        self.run.after_effect("intent")
        session = session_for_batch(self.run.spark, batch_bytes=microbatch.text_size)
        application = f"{self.flow.name}:{self.state.incarnation()}"
        checkpoint = self.state.checkpoint()
        attempt = MicrobatchRun(session, self.run.lake, self.flow, application, checkpoint, microbatch, self.state, self.run.after_effect)
        try:
            report = apply_microbatch(attempt)
        except PySparkException as problem:
            raise self._cause(microbatch, problem) from problem
        self.state.write_commit(report, self.table)
        self.run.after_effect("commit")
        self._clear_staging()
        return report

    def _cause(self, microbatch: Microbatch, problem: PySparkException) -> CdcError:
        place = f"Flow {self.flow.name}, microbatch {microbatch.number}"
        if self.state.report(microbatch.number):
            # The winner cleared the staging folder away, so what fails here is anything: only its commit marker tells why.
            return ConcurrentRunError(f"{place}: another run of this flow finished it first.", next_step="Nothing is lost; run again.")
        told = (str(problem).strip().splitlines() or [type(problem).__name__])[0]
        condition = problem.getCondition()
        if condition == "PATH_NOT_FOUND":
            return ArchivedFileMissingError(
                f"{place}: a file of the microbatch is gone from the archive: {told}",
                next_step="Bring it back, or rebuild the table from what is left.",
            )
        if isinstance(problem, AnalysisException):
            return PlanRefusedError(
                f"{place}: Spark refuses the plan: {told}",
                next_step="Look for a type, key or column in the flows file that does not fit the events; then run again.",
                condition=condition,
            )
        return SparkFailedError(
            f"{place}: Spark failed: {told}",
            next_step="See the job's log; nothing is lost, the next run takes the microbatch up again.",
            condition=condition,
        )

    def _clear_staging(self) -> None:
        folder = fsspec.core.url_to_fs(staging_uri(self.run.lake, self.flow.name))[1]
        if self.lake_fs.exists(folder):
            self.lake_fs.rm(folder, recursive=True)


def _summary(report: BatchReport) -> str:
    events, rows = report.events, report.rows
    parts = {name: getattr(events, name) for name in ("merged", "superseded", "redelivered", "stale", "tombstones", "control", "rejected")}
    told = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    return f"{events.read:,} records = {told or 'none'}; rows +{rows.inserted:,} ~{rows.updated:,} -{rows.deleted:,}"


def _megabytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB" if size >= 1024**2 else f"{size / 1024:.0f} KiB"
