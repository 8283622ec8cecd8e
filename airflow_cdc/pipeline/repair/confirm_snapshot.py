"""Confirm a snapshot: a user's decision about the rows that it did not find is a microbatch of the flow that owns no file."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConcurrentRunError, ConfigurationError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.snapshot import Snapshot, SnapshotChoice, SnapshotDecision
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.lease import WAIT_SECONDS, Lease, Leases
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.select_flows import known_flow
from airflow_cdc.pipeline.spark.storage import file_system

_LIST = "`airflow-cdc confirm-snapshot` without a choice lists the snapshots."


@dataclass(frozen=True)
class SnapshotConfirmation:
    """A user's choice about a snapshot of a flow."""

    spark: SparkSession
    lake: str
    """URI of the lake's root."""
    flow: str
    """Name of the flow."""
    choice: SnapshotChoice
    position: str | None = None
    """Of the snapshot, as listed; None: the only undecided one."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as in the flows' runs."""
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Receives the name of each effect once it is done; tests crash there."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that writes the flow."""


def confirm_snapshot(order: SnapshotConfirmation) -> ApplyReport:
    """Record the decision about a snapshot and carry it out, exactly once across crashes.

    Rows are removed with this microbatch if the snapshot is proven complete, otherwise with the microbatch that completes the proof.

    :raises ConfigurationError: when the lake knows no such flow, no such snapshot is undecided, or it proves nothing.
    :raises ConcurrentRunError: when another run is writing the flow, or another microbatch of it is planned and not done.
    """
    lake = absolute_uri(order.lake)
    state = known_flow(lake, order.flow)
    with Leases(*file_system(lake), wait_seconds=order.wait_seconds, progress=order.progress).hold(order.flow) as lease:
        return _confirm(order, lake, state, lease)


def _confirm(order: SnapshotConfirmation, lake: str, state: FlowState, lease: Lease) -> ApplyReport:
    checkpoint = state.checkpoint()
    number = checkpoint.number + 1
    planned = state.intent(number)
    if planned and not (planned.decides and _is_asked(order, planned.decides)):
        raise ConcurrentRunError(
            f"Flow {order.flow}: microbatch {number} is planned and not done; another run may be at it.",
            next_step="Let it end, or take it up with `airflow-cdc apply`; then decide again.",
        )
    intent = planned or _intent(order, state, checkpoint)
    lease.check()
    if planned is None and not state.write_intent(intent):
        raise ConcurrentRunError(
            f"Flow {order.flow}: another run planned microbatch {number} first.", next_step="Nothing is lost; run again."
        )
    only = (glob.escape(order.flow),)
    run = ArchiveRun(
        order.spark, intent.archive, lake, order.flows, only, order.progress, order.after_effect, lease=lease, only_planned=True
    )
    return apply_archive(run)


def _is_asked(order: SnapshotConfirmation, decision: SnapshotDecision) -> bool:
    """Return whether a decision left by a crash is the requested one."""
    return decision.choice is order.choice and order.position in {None, str(decision.position)}


def _intent(order: SnapshotConfirmation, state: FlowState, checkpoint: FlowCheckpoint) -> Microbatch:
    snapshot = _chosen(order, checkpoint.undecided_snapshots)
    last = state.intent(checkpoint.number)
    if last is None:
        raise ConfigurationError(
            f"Flow {order.flow}: the intent of microbatch {checkpoint.number} is gone.",
            next_step="Restore the flow's state folder whole; or rebuild the flow.",
        )
    planned, held = checkpoint.plan(last.archive)
    return Microbatch(
        order.flow,
        checkpoint.number + 1,
        last.archive,
        files=(),
        planned_through=planned,
        shapes=(),
        held=held,
        surveyed=checkpoint.surveyed.get(last.archive),
        decides=SnapshotDecision(snapshot.position, order.choice),
    )


def _chosen(order: SnapshotConfirmation, known: tuple[Snapshot, ...]) -> Snapshot:
    found = [each for each in known if order.position in {None, str(each.position)}]
    if len(found) != 1:
        listed = ", ".join(str(each.position) for each in known) or "none"
        asked = f"at position {order.position} " if order.position else ""
        raise ConfigurationError(
            f"Flow {order.flow}: {len(found)} snapshots {asked}wait for a decision; those that do: {listed}.",
            next_step=f"Name one with --position. {_LIST}" if known else _LIST,
        )
    snapshot = found[0]
    if snapshot.doubt and order.choice is SnapshotChoice.REPLACE:
        raise ConfigurationError(
            f"Flow {order.flow}: the snapshot at position {snapshot.position} never proves that a row is gone: {snapshot.doubt}.",
            next_step="Have the connector take another one; or decide with --keep.",
        )
    return snapshot
