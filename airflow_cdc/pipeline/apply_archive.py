"""Apply an archive: survey what is new, then bring every flow up to date, one session a table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import fsspec
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cdc.model.archive import ArchiveListing, list_archive
from airflow_cdc.model.errors import CdcError, ConcurrentRunError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.flow import CdcFlow, matches_any
from airflow_cdc.model.lake import ArchiveState, FlowCheckpoint, FlowState, Ledger, staging_uri
from airflow_cdc.model.microbatch import Microbatch, PlanPosition, next_microbatch
from airflow_cdc.model.outcome import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report import BatchReport
from airflow_cdc.model.survey import Survey
from airflow_cdc.pipeline.apply_microbatch import MicrobatchRun, apply_microbatch
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
    archive_fs, archive_root = fsspec.core.url_to_fs(run.archive)
    lake_fs, lake_root = fsspec.core.url_to_fs(run.lake)
    listing = list_archive(archive_fs, archive_root)
    state = ArchiveState(lake_fs, lake_root, run.archive)
    ledger = _survey_new_files(run, state, listing)
    chosen = [topic for topic in ledger.tables() if matches_any(topic, run.tables)]
    with ThreadPoolExecutor(max(1, min(run.parallel, len(chosen)))) as pool:
        outcomes = list(
            pool.map(lambda topic: _apply_flow(run, state, ledger, FlowState(lake_fs, lake_root, topic), lake_fs), chosen)
        )
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
        shapes = survey_files(session_for_batch(run.spark, batch_bytes=size), run.archive, new)
        state.add(Survey(state.archive, ledger.surveyed_through + 1, tuple(new), shapes))
        run.after_effect("survey")
    raise ConcurrentRunError(
        f"Other runs kept surveying archive {run.archive} at the same time.", next_step="Nothing is lost; run again."
    )


def _apply_flow(run: ArchiveRun, state: ArchiveState, ledger: Ledger, flow_state: FlowState, lake_fs: FileSystem) -> FlowOutcome:
    flow = run.flows.get(flow_state.flow, CdcFlow(flow_state.flow))
    table = flow.table_path(run.lake)
    reports: list[BatchReport] = []
    error = None
    try:
        while microbatch := _next(state, ledger, flow_state, flow):
            run.progress(f"{flow.name}: microbatch {microbatch.number}, {len(microbatch.files)} files ({_megabytes(microbatch.size)})")
            reports.append(_apply_next(run, flow, flow_state, microbatch, table, lake_fs))
            run.progress(f"{flow.name}: {_summary(reports[-1])}")
    except CdcError as problem:
        error = problem.to_json()
    except PySparkException as problem:
        error = _unexpected(flow.name, problem)
    if error:
        run.progress(f"{flow.name}: FAILED: {error['message']}")
        return FlowOutcome(flow.name, FlowStatus.FAILED, table, tuple(reports), error)
    status = FlowStatus.APPLIED if reports else FlowStatus.UP_TO_DATE
    return FlowOutcome(flow.name, status, table, tuple(reports))


def _next(state: ArchiveState, ledger: Ledger, flow_state: FlowState, flow: CdcFlow) -> Microbatch | None:
    """Return the microbatch that is planned but not done, else plan the next one and write it down."""
    while True:
        checkpoint = flow_state.checkpoint()
        open_intent = flow_state.intent(checkpoint.number + 1)
        if open_intent:
            return open_intent
        planned = checkpoint.planned.get(state.archive, PlanPosition())
        first = max(planned.survey, ledger.topics[flow.topic])
        microbatch = next_microbatch(
            flow=flow.name,
            number=checkpoint.number + 1,
            archive=state.archive,
            surveys=state.surveys(first, ledger.surveyed_through),
            planned=planned,
            max_bytes=flow.max_microbatch_bytes,
        )
        if microbatch is None or flow_state.write_intent(microbatch):
            return microbatch


def _apply_next(
    run: ArchiveRun, flow: CdcFlow, flow_state: FlowState, microbatch: Microbatch, table: str, lake_fs: FileSystem
) -> BatchReport:
    run.after_effect("intent")
    session = session_for_batch(run.spark, batch_bytes=microbatch.size)
    checkpoint: FlowCheckpoint = flow_state.checkpoint()
    report = apply_microbatch(MicrobatchRun(session, run.lake, flow, checkpoint, microbatch, run.after_effect))
    flow_state.write_commit(report, table)
    run.after_effect("commit")
    _clear_staging(lake_fs, run.lake, flow.name)
    return report


def _clear_staging(fs: FileSystem, lake: str, flow: str) -> None:
    folder = fsspec.core.url_to_fs(staging_uri(lake, flow))[1]
    if fs.exists(folder):
        fs.rm(folder, recursive=True)


def _unexpected(flow: str, problem: PySparkException) -> dict[str, object]:
    text = str(problem).strip().splitlines()
    return {
        "type": type(problem).__name__,
        "message": f"Flow {flow}: Spark failed: {text[0] if text else type(problem).__name__}",
        "next_step": "See the job's log; nothing is lost, the microbatch is taken up again by the next run.",
        "transient": True,
    }


def _summary(report: BatchReport) -> str:
    events, rows = report.events, report.rows
    parts = {name: getattr(events, name) for name in ("merged", "superseded", "redelivered", "stale", "tombstones", "control", "rejected")}
    told = ", ".join(f"{count:,} {name}" for name, count in parts.items() if count)
    return f"{events.read:,} records = {told or 'none'}; rows +{rows.inserted:,} ~{rows.updated:,} -{rows.deleted:,}"


def _megabytes(size: int) -> str:
    return f"{size / 1024**2:.1f} MiB" if size >= 1024**2 else f"{size / 1024:.0f} KiB"

