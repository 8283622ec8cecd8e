"""The metrics of a lake's flows, from their state; no table is opened."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from airflow_cdc.model.look.lag import Lag, age_of, find_lag
from airflow_cdc.model.look.lag_metrics import samples_of_lag
from airflow_cdc.model.look.pending import surveyed_pending
from airflow_cdc.model.report.metrics import ATTENTION, EVENTS, MICROBATCH_SECONDS, MICROBATCHES, Sample, outcomes_of, samples_of_batches
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState, archives_in, flows_in
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.spark.storage import file_system


@dataclass(frozen=True)
class _LakeState:
    """A lake's archives with their ledgers, read once for all flows."""

    archives: tuple[tuple[ArchiveState, Ledger], ...]
    now: float

    def lag(self, checkpoint: FlowCheckpoint) -> Lag | None:
        """Return the lag by surveyed files; None where none waits."""
        files = [
            file
            for archive, ledger in self.archives
            if checkpoint.flow in ledger.topics
            for file in surveyed_pending(archive, ledger, checkpoint.flow, checkpoint).values()
        ]
        return Lag(len(files), sum(file.size for file in files), age_of(checkpoint, self.now)) if files else None


def samples_of_lake(lake: str, *, look: bool = False, every_marker: bool = False) -> Iterator[Sample]:
    """Yield the metrics of each flow of a lake. Counters are sums since the flow began.

    :param look: list the lake's archives for files that no run has surveyed; they count as pending.
    :param every_marker: read every commit marker, for the counts of rows and of reject reasons too.
    :raises ArchiveNotFoundError: when an archive that is listed does not exist.
    """
    fs, root = file_system(lake)
    state = _LakeState(tuple((archive, archive.ledger()) for archive in archives_in(fs, root)), time.time())
    flows = flows_in(fs, root)
    behind: dict[str, Lag] = {}
    for name in flows:
        flow = FlowState(fs, root, name)
        checkpoint = flow.checkpoint()
        yield from _counted_by_markers(flow, checkpoint) if every_marker else _counted(flow, checkpoint)
        if not look and (lag := state.lag(checkpoint)):
            behind[name] = lag
    if look:
        for archive, _ in state.archives:
            archive_fs, archive_root = file_system(archive.archive)
            places = {"archive_fs": archive_fs, "archive_root": archive_root, "lake_fs": fs, "lake_root": root}
            _, found = find_lag(**places, archive=archive.archive, tables=(), now=state.now)
            for name, lag in found.items():
                behind[name] = lag + behind[name] if name in behind else lag
    yield from samples_of_lag(flows, behind)


def _counted(flow: FlowState, checkpoint: FlowCheckpoint) -> Iterator[Sample]:
    name = checkpoint.flow
    yield from (Sample(EVENTS, name, count, part) for part, count in outcomes_of(checkpoint.events).items())
    yield Sample(MICROBATCHES, name, checkpoint.number)
    yield Sample(ATTENTION, name, len(checkpoint.findings))
    if last := flow.report(checkpoint.number):
        yield Sample(MICROBATCH_SECONDS, name, last.seconds)


def _counted_by_markers(flow: FlowState, checkpoint: FlowCheckpoint) -> Iterator[Sample]:
    batches = [report for number in range(1, checkpoint.number + 1) if (report := flow.report(number))]
    by_markers = samples_of_batches(checkpoint.flow, batches)
    # A marker may be gone, and only the last microbatch's duration is of interest: the checkpoint knows the sums.
    yield from (sample for sample in by_markers if sample.metric not in {EVENTS, MICROBATCHES, MICROBATCH_SECONDS})
    yield from _counted(flow, checkpoint)
