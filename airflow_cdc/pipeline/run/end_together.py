"""Where the tables of a consistent run end: each connector at one transaction, in the newest epoch of its log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_cdc.model.archive.cut import Cut
from airflow_cdc.model.archive.transactions import TransactionLedger
from airflow_cdc.model.errors import SparkFailedError
from airflow_cdc.model.look.whole_cut import connectors_with_transactions
from airflow_cdc.model.position.epochs import ArchivedEpochs
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.evidence.find_fallen_logs import FallenLogs, FindFallenLogs
from airflow_cdc.pipeline.locate.file_parts import FlowEnd
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.find_cuts import connector_prefix, find_cuts
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS, error_line
from airflow_cdc.pipeline.survey.check_transactions import check_transactions
from airflow_cdc.pipeline.survey.look import Look


@dataclass(frozen=True)
class Together:
    """The cuts of a run's connectors."""

    cuts: Mapping[str, Cut] = field(default_factory=dict)
    """By ``topic.prefix``."""
    logs: FallenLogs = field(default_factory=FallenLogs)
    known: TransactionLedger = field(default_factory=TransactionLedger)

    def cut_of(self, flow: str) -> Cut | None:
        """Return the cut of a flow's connector."""
        return self.cuts.get(connector_prefix(flow, self.cuts))

    def end_of(self, state: FlowState, pending: Callable[[], tuple[Lives, Collection[str]]]) -> FlowEnd:
        """Return how far a flow is applied. The cut is in the newest epoch of the log, after everything of earlier epochs.

        :param pending: returns the lives of the topic in the flow's pending files, and their lanes; called only if needed.
        """
        cut = self.cut_of(state.flow)
        if cut is None or cut.before is None:
            return FlowEnd()
        last = self.logs.last_ms.get(state.flow)
        if last is not None and not self.known.start_of(cut.prefix).holds(last):
            # The table has been quiet since the log went back.
            return FlowEnd()
        archived = self.logs.archived.get(state.flow)
        checkpoint = state.checkpoint()
        if archived is None and checkpoint.epochs.begins:
            lives, lanes = pending()
            archived = ArchivedEpochs(checkpoint.epochs.with_new_lanes({*lanes} - checkpoint.reach.partitions), lives)
        return FlowEnd(cut.before + archived.epochs.newest * EPOCH, archived=archived) if archived else FlowEnd(cut.before)


def find_together(run: ArchiveRun, state: ArchiveState, ledger: Ledger, look: Look, flows: Sequence[FlowState]) -> Together:
    """Return where the tables of a run end together.

    :raises SparkFailedError: when the archive could not be read for it.
    """
    there = {file.path for file in look.there}
    try:
        logs = find_fallen_logs(run, state, ledger, look, flows)
        known = check_transactions(run.spark, state, ledger, look.there, logs.starts)
        return Together(find_cuts(run.spark, state, ledger, flows, there=there, known=known, logs=logs), logs, known)
    except SPARK_ERRORS as problem:
        raise SparkFailedError(
            f"Archive {run.archive}: where its tables may end together could not be found: {error_line(problem)}",
            next_step="See the job's log; nothing was merged. Run again, or without 'consistent'.",
        ) from problem


def find_fallen_logs(run: ArchiveRun, state: ArchiveState, ledger: Ledger, look: Look, flows: Sequence[FlowState]) -> FallenLogs:
    """Return the connectors' logs that went back since their transactions were last checked."""
    proven = connectors_with_transactions(ledger)
    members: dict[str, list[FlowState]] = {}
    for flow in flows:
        members.setdefault(connector_prefix(flow.flow, proven), []).append(flow)
    find = FindFallenLogs(run.spark, state, ledger, run.flows, {file.path for file in look.there})
    return find.find(members, state.transactions())
