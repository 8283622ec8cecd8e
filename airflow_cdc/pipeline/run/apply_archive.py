"""Apply an archive: survey its new files, then bring every flow up to date, one session a table."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from airflow_cdc.model.archive.cut import WaitingFiles
from airflow_cdc.model.archive.set_aside import UNREADABLE
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import (
    SparkFailedError,
)
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.native.kept_files import fetching_once
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.end_together import Together, find_fallen_logs, find_together
from airflow_cdc.pipeline.run.flow_run import FlowRun
from airflow_cdc.pipeline.run.flows_in_tasks import apply_in_tasks
from airflow_cdc.pipeline.run.sort_topics import hold_topics, refused_flows, sort_topics
from airflow_cdc.pipeline.run.stopped_flows import stopped_flows
from airflow_cdc.pipeline.run.survey_new_files import survey_new_files
from airflow_cdc.pipeline.spark.connect import is_client
from airflow_cdc.pipeline.spark.fitting_spark import refuse_unfit_driver
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS, error_line
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.check_transactions import check_transactions
from airflow_cdc.pipeline.survey.look import Look
from airflow_cdc.pipeline.survey.source_facts import facts_of


@fetching_once()
def apply_archive(run: ArchiveRun) -> ApplyReport:
    """Apply every pending microbatch of every flow; a flow that fails does not stop the others.

    :raises ConfigurationError: when two topics would share a table, the archive holds other files than expected, or this Spark is one that
        jobs do not run on and the engine is not the native one.
    :raises CdcError: when the archive or the lake's state cannot be read at all.
    """
    if run.engine is not Engine.NATIVE and not is_client(run.spark):
        refuse_unfit_driver()
    run = replace(run, archive=absolute_uri(run.archive), lake=absolute_uri(run.lake))
    archive_fs, archive_root = file_system(run.archive)
    lake_fs, lake_root = file_system(run.lake)
    state = ArchiveState(lake_fs, lake_root, run.archive)
    look = Look(archive_fs, archive_root, state, run.expected, lists_all=run.consistent or run.check_transactions)
    ledger = state.ledger() if run.only_planned else survey_new_files(run, state, look)
    topics = sort_topics(run, ledger, lake_fs, lake_root)
    run = replace(run, flows=topics.flows)
    chosen = [topic for topic in topics.flows if matches_any(topic, run.tables) and not run.only_survey]
    stopped = stopped_flows(run, state, ledger)
    stopped += [flow for flow in refused_flows(run, state, ledger, topics) if flow.flow not in {other.flow for other in stopped}]
    states = [FlowState(lake_fs, lake_root, topic) for topic in chosen if topic not in {flow.flow for flow in stopped}]
    together = find_together(run, state, ledger, look, states) if run.consistent else Together()
    facts = facts_of(run.spark, state, ledger, run.lake)
    flows = [FlowRun(run, state, ledger, flow, lake_fs, lake_root, facts, together) for flow in states]
    in_tasks = apply_in_tasks(run, flows)
    with ThreadPoolExecutor(max(1, min(run.parallel, len(flows)))) as pool:
        ends = [found.finish if (found := in_tasks.get(flow.flow.name)) else flow.apply for flow in flows]
        outcomes = list(pool.map(lambda end: end(), ends))
    _write_waiting(state, ledger, flows, outcomes)
    report = ApplyReport(
        archive=run.archive,
        lake=run.lake,
        flows=tuple(sorted([*outcomes, *stopped], key=lambda outcome: outcome.flow)),
        control_topics=tuple(map(printable, ledger.control_topics())),
        ignored_files=look.ignored,
        transactions=state.transactions().reports(ledger.tables()) if run.consistent else (),
        cuts=tuple(together.cuts.values()),
        set_aside_files=tuple(file for file in state.set_aside() if file.reason == UNREADABLE),
    )
    report = hold_topics(run, state, ledger, topics, report)
    return _check_transactions(run, state, ledger, look, report, states=states) if run.check_transactions and not run.consistent else report


def _write_waiting(state: ArchiveState, ledger: Ledger, flows: Sequence[FlowRun], outcomes: Sequence[FlowOutcome]) -> None:
    """Record which files no run would take before more arrive, so that no sensor triggers one for them."""
    known = state.waiting(ledger)
    # Files behind a cut by position go to the next run; a failed flow is to be retried.
    held = {
        flow.flow.name: tuple(flow.behind_cut) if flow.is_cut_proven and outcome.status is not FlowStatus.FAILED else ()
        for flow, outcome in zip(flows, outcomes, strict=True)
    }
    found = {flow: paths for flow, paths in {**known.flows, **held}.items() if paths}
    if found != known.flows:
        state.write_waiting(WaitingFiles(ledger.surveyed_through, found))


def _check_transactions(
    run: ArchiveRun, state: ArchiveState, ledger: Ledger, look: Look, report: ApplyReport, *, states: Sequence[FlowState]
) -> ApplyReport:
    try:
        logs = find_fallen_logs(run, state, ledger, look, states)
        known = check_transactions(run.spark, state, ledger, look.there, logs.starts)
    except SPARK_ERRORS as problem:
        # A failed check must not hide the merged microbatches from the report.
        failed = SparkFailedError(
            f"The check of transactions failed: {error_line(problem)}", next_step="See the job's log; the flows were applied."
        )
        return replace(report, error=failed.to_json())
    return replace(report, transactions=known.reports(ledger.tables()))
