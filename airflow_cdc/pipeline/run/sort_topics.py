"""Sort the topics of an archive into flows and others, and hold the others once the flows are applied."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from airflow_cdc.model.archive.topics import NO_TOPIC, printable
from airflow_cdc.model.errors import NewTopicError, SparkFailedError
from airflow_cdc.model.files import FileSystem, folds_case
from airflow_cdc.model.flow.new_topics import SortedTopics, TopicGate
from airflow_cdc.model.flow.routes import on_new_topic, refuse_shared_tables, with_defaults
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.places import STATE_FOLDER, archive_quarantine_uri
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.state.lake import ArchiveState, flows_in
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.hold_topics import ArchiveQuarantine
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS, error_line
from airflow_cdc.pipeline.spark.uris import spark_uri


def sort_topics(run: ArchiveRun, ledger: Ledger, fs: FileSystem, root: str) -> SortedTopics:
    """Return which topics are flows, with their settings, and which are not.

    :param root: the lake's root, as its file system names it.
    :raises ConfigurationError: when two topics would share a table, or a declared topic has no location.
    """
    folds = folds_case(fs, f"{root.rstrip('/')}/{STATE_FOLDER}")
    gate = TopicGate(run.flows, run.lake, on_new_topic(run.flows), partial(flows_in, fs, root), folds)
    topics = gate.sort([*ledger.tables(), *([NO_TOPIC] if NO_TOPIC in ledger.topics else [])])
    topics.flows |= {topic: with_defaults(run.flows, flow) for topic, flow in topics.flows.items()}
    refuse_shared_tables(topics.flows.values(), run.lake, folds_case=folds)
    return topics


def refused_flows(run: ArchiveRun, state: ArchiveState, ledger: Ledger, topics: SortedTopics) -> list[FlowOutcome]:
    """Return the failed outcomes of the selected new topics, where the settings are to stop at a new topic."""
    outcomes = []
    for topic in topics.refused if not (run.only_planned or run.only_survey) else ():
        if not matches_any(topic, run.tables):
            continue
        shapes = [
            shape
            for survey in state.surveys(ledger.topics[topic], ledger.latest[topic])
            for shape in survey.shapes
            if shape.topic == topic and shape.file not in ledger.void.get(survey.number, ())
        ]
        files = sorted({shape.file for shape in shapes})
        error = NewTopicError(
            f"Topic {topic}: {sum(shape.records for shape in shapes)} records in {len(files)} files, the first of them {files[0]}, are of"
            " no flow and no route of the settings, and the lake has no table of it. on_new_topic is 'stop'; nothing of it was merged.",
            next_step="Declare the topic under flows: or routes: in the flows file, or set on_new_topic to 'quarantine' or 'create'; or"
            " move the files out of the archive. Then run again.",
            topic=topic,
            files=files,
        )
        run.progress(f"{topic}: FAILED: {error.message}")
        outcomes.append(FlowOutcome(topic, FlowStatus.FAILED, topics.flows[topic].table_path(run.lake), error=error.to_json()))
    return outcomes


def hold_topics(run: ArchiveRun, state: ArchiveState, ledger: Ledger, topics: SortedTopics, report: ApplyReport) -> ApplyReport:
    """Write records of topics that are not flows to the archive's quarantine, and remove those of topics that are flows now.

    Done after the flows are applied: a failure here stops none of them.
    """
    held = {name: topic for name, topic in topics.held.items() if matches_any(name, run.tables)}
    if run.only_planned or run.only_survey or not (held or state.held_topics()):
        return report
    quarantine = ArchiveQuarantine(run.spark, archive_quarantine_uri(spark_uri(run.lake), state.archive), state)
    try:
        found = quarantine.hold(held, ledger)
        run.after_effect("hold")
        quarantine.release([flow.flow for flow in report.flows if flow.status is not FlowStatus.FAILED])
    except SPARK_ERRORS as problem:
        failed = SparkFailedError(
            f"The archive's quarantine could not be written: {error_line(problem)}",
            next_step="See the job's log; the flows were applied, and the next run writes it.",
        )
        return replace(report, error=failed.to_json())
    for topic in found.values():
        if topic.added:
            run.progress(f"{topic.added} records of {printable(topic.topic) or 'no topic'} went to the archive's quarantine")
    return replace(report, held_topics=tuple(found[name] for name in sorted(found)))
