"""Flows that a run must not apply: those whose topic has an unreadable archived file."""

from __future__ import annotations

from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile, unreadable_error
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.report.apply_report import FlowOutcome, FlowStatus
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.run.archive_run import ArchiveRun


def stopped_flows(run: ArchiveRun, state: ArchiveState, ledger: Ledger) -> list[FlowOutcome]:
    """Return the failed outcomes of the selected flows whose topics, by file name, have files set aside.

    A topic without any other file has an outcome too: the run must not succeed.
    """
    if run.only_planned or run.only_survey:
        return []
    by_topic: dict[str, list[SetAsideFile]] = {}
    for file in state.set_aside():
        if file.reason == UNREADABLE and matches_any(file.topic, run.tables):
            by_topic.setdefault(file.topic, []).append(file)
    outcomes = []
    for topic, files in sorted(by_topic.items()):
        error = unreadable_error(topic, files)
        run.progress(f"{topic}: FAILED: {error.message}")
        table = settings_of(run.flows, topic).table_path(run.lake) if topic in ledger.tables() else None
        outcomes.append(FlowOutcome(topic, FlowStatus.FAILED, table, error=error.to_json()))
    return outcomes
