"""What a flow's next microbatch would do, and why: from the state, the plan and the table's log alone. No JVM is started."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.completeness import ArchivedOffsets, OffsetGap, file_offsets, files_behind
from airflow_cdc.model.archive.set_aside import UNREADABLE
from airflow_cdc.model.connectors.registry import connector_of
from airflow_cdc.model.errors import ConfigurationError, UnsupportedConnectorError, first_line
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import DEFAULT_ENGINE, MIXED, Engine
from airflow_cdc.model.flow.policies import OnGap
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.look.new_files import find_new_files
from airflow_cdc.model.look.pending import surveyed_pending
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState, archives_in
from airflow_cdc.model.state.lease import current_lease
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import Microbatch, next_microbatch
from airflow_cdc.pipeline.apply.native.bounds import why_too_large
from airflow_cdc.pipeline.apply.native.handed_over import why_not_merged, why_not_read, why_not_surveyed
from airflow_cdc.pipeline.look.microbatches import check_flow
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.settle.plan_decoding import is_without_key
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.open_natively import describe_natively
from airflow_cdc.pipeline.target.target_table import TargetTable, read_target

ONLY_THE_RUN = (
    "whether the columns' types can be settled, and whether the native engine reads each of them",
    "whether an event is late, or the source's log or the topic began again",
    "which records are rejected",
    "which of the table's files the merge rewrites",
)
"""What no plan shows."""


@dataclass(frozen=True)
class ExplainedPlan:
    """The next microbatch of a flow from one archive."""

    archive: str
    number: int
    is_planned: bool
    """Whether its intent is written: the next run takes it up as it is."""
    files: tuple[str, ...]
    """Paths; empty where nothing is ready."""
    bytes: int
    """In the archive, compressed or not."""
    records: Mapping[str, int]
    """By operation code or kind, as surveyed."""
    engine: str | None
    """``spark``, ``native`` or ``mixed``, as far as the plan shows it; None where nothing is ready."""
    engine_reason: str
    pending_files: int
    """Surveyed files that no committed microbatch owns wholly, with those of this microbatch."""
    pending_bytes: int
    waits_for_transaction: tuple[str, ...]
    """Paths of files that wait for the rest of a transaction, as the last consistent run found."""
    waits_for_offsets: tuple[str, ...]
    """Paths of files behind a gap, where the flow waits."""
    gaps: tuple[OffsetGap, ...]
    unsurveyed_files: int | None
    """Files of any topic that no run has surveyed; None where the archive cannot be listed."""
    unreadable_files: tuple[str, ...]
    """Paths of set-aside files of the flow's topic: they stop it."""
    stops: str | None = None
    """Why the next run would stop the flow before this microbatch, as far as the state shows it."""

    def to_json(self) -> dict[str, Any]:
        """Return the plan as commands print it."""
        return {**vars(self), "gaps": [gap.to_json() for gap in self.gaps]}


@dataclass(frozen=True)
class FlowExplained:
    """What a flow's next microbatches would do."""

    flow: str
    table: str
    mode: str
    """What the table keeps: its own property, or the settings where there is no table yet."""
    mode_reason: str
    applied: int
    """Number of the last committed microbatch."""
    lease: str | None
    """Who writes the flow, where somebody may."""
    undecided_snapshots: int
    """Full snapshots whose missing rows await a person's decision."""
    last_engine: str | None
    last_engine_reason: str
    last_merge_plan: str
    """Of the last committed microbatch."""
    plans: tuple[ExplainedPlan, ...]
    """By archive."""
    only_the_run_shows: tuple[str, ...] = ONLY_THE_RUN

    def to_json(self) -> dict[str, Any]:
        """Return the answer as commands print it."""
        return {**vars(self), "plans": [plan.to_json() for plan in self.plans]}


def explain_flow(lake: str, flow: str, settings: Mapping[str, CdcFlow], archive: str | None = None) -> FlowExplained:
    """Return what a flow's next microbatches would do.

    :param settings: of the flows file that the runs use.
    :param archive: URI of the archive's root; None: each that holds the flow.
    :raises ConfigurationError: for a flow that the lake does not know, and an archive that holds nothing of it.
    """
    fs, root = file_system(lake)
    check_flow(lake, flow)
    state = FlowState(fs, root, flow)
    checkpoint = state.checkpoint()
    archives = [(each, ledger) for each in archives_in(fs, root) if flow in (ledger := each.ledger()).topics]
    chosen = [pair for pair in archives if archive is None or pair[0].archive == ArchiveState(fs, root, archive).archive]
    if archive is not None and not chosen:
        raise ConfigurationError(
            f"Lake {lake} has surveyed nothing of flow {flow} in {archive}; it knows {[each.archive for each, _ in archives]}.",
            next_step="Spell the archive's root as the runs do.",
        )
    asked = settings_of(settings, flow)
    table = checkpoint.table_in(lake) or asked.table_path(lake)
    target = read_target(_NO_SESSION, table) if describe_natively(table) else None
    plans = tuple(_Planner(lake, asked, state, checkpoint, *pair).plan(target) for pair in chosen)
    last = state.report(checkpoint.number)
    lease = current_lease(fs, root, flow)
    mode, why = _mode(asked, checkpoint, target, plans)
    return FlowExplained(
        flow=flow,
        table=table,
        mode=mode.value,
        mode_reason=why,
        applied=checkpoint.number,
        lease=f"{lease.holder}, since {lease.taken_at}" if lease else None,
        undecided_snapshots=len(checkpoint.undecided_snapshots),
        last_engine=last.engine if last else None,
        last_engine_reason=last.engine_reason if last else "",
        last_merge_plan=last.merge_plan if last else "",
        plans=tuple(plan for plan, _ in plans),
    )


_NO_SESSION = cast("SparkSession", None)
"""The plan alone is asked: nothing that is called here reaches for the session."""


def _mode(
    flow: CdcFlow, checkpoint: FlowCheckpoint, target: TargetTable | None, plans: Sequence[tuple[ExplainedPlan, Microbatch | None]]
) -> tuple[TableMode, str]:
    if target:
        return target.mode, "the table's own property"
    if checkpoint.table_version is not None:
        return flow.mode, "the flow's settings; the table was not read"
    microbatch = next((found for _, found in plans if found), None)
    if flow.mode is TableMode.CURRENT and microbatch and is_without_key(flow, microbatch, None):
        return TableMode.MULTISET, "the table is to be created, and the records have no key"
    return flow.mode, "the table is to be created by the flow's settings"


@dataclass(frozen=True)
class _Planner:
    """Plans a flow's next microbatch from one archive, and writes nothing."""

    lake: str
    flow: CdcFlow
    state: FlowState
    checkpoint: FlowCheckpoint
    archive: ArchiveState
    ledger: Ledger

    def plan(self, target: TargetTable | None) -> tuple[ExplainedPlan, Microbatch | None]:
        """Return the plan, and the microbatch where something is ready."""
        pending = surveyed_pending(self.archive, self.ledger, self.state.flow, self.checkpoint)
        gaps, behind = self._gaps(frozenset(pending))
        for_offsets = behind if self.flow.on_gap is OnGap.WAIT else frozenset()
        for_transaction = frozenset(self.archive.waiting(self.ledger).flows.get(self.state.flow, ()))
        unreadable = tuple(file.path for file in self.archive.set_aside() if file.reason == UNREADABLE and file.topic == self.state.flow)
        opened = self.state.intent(self.checkpoint.number + 1)
        is_planned = opened is not None and opened.archive == self.archive.archive and not opened.does_nothing
        microbatch = opened if is_planned else self._next(for_offsets | for_transaction)
        engine, reason = self._engine(microbatch, target) if microbatch else (None, "")
        explained = ExplainedPlan(
            archive=self.archive.archive,
            number=self.checkpoint.number + 1,
            is_planned=is_planned,
            files=tuple(file.path for file in microbatch.files) if microbatch else (),
            bytes=microbatch.size if microbatch else 0,
            records=_records(microbatch) if microbatch else {},
            engine=engine,
            engine_reason=reason,
            pending_files=len(pending),
            pending_bytes=sum(file.size for file in pending.values()),
            waits_for_transaction=tuple(sorted(for_transaction & pending.keys())),
            waits_for_offsets=tuple(sorted(for_offsets)),
            gaps=gaps,
            unsurveyed_files=self._unsurveyed(),
            unreadable_files=unreadable,
        )
        stops = next(_stops(explained, self.flow), None) if microbatch or unreadable else None
        return replace(explained, stops=stops), microbatch

    def _gaps(self, pending: frozenset[str]) -> tuple[tuple[OffsetGap, ...], frozenset[str]]:
        surveys = self.archive.pending_surveys(self.checkpoint, self.ledger)
        offsets = [item for survey in surveys for item in file_offsets(survey, self.state.flow) if item.file in pending]
        known = self.checkpoint.offsets.get(self.archive.archive, ArchivedOffsets()).with_files(offsets)
        gaps = known.gaps(self.state.flow)
        return gaps, files_behind(gaps, offsets)

    def _next(self, waiting: frozenset[str]) -> Microbatch | None:
        planned, held = self.checkpoint.plan(self.archive.archive)
        return next_microbatch(
            flow=self.state.flow,
            number=self.checkpoint.number + 1,
            archive=self.archive.archive,
            surveys=self.archive.pending_surveys(self.checkpoint, self.ledger),
            planned=planned,
            max_bytes=self.flow.max_microbatch_bytes,
            held=held,
            waiting=waiting,
        )

    def _engine(self, microbatch: Microbatch, target: TargetTable | None) -> tuple[str, str]:
        asked = self.flow.engine or DEFAULT_ENGINE
        if asked is Engine.SPARK:
            return Engine.SPARK.value, "the flow's setting is spark"
        run = MicrobatchRun(
            spark=_NO_SESSION,
            lake=self.lake,
            flow=self.flow,
            application="",
            checkpoint=self.checkpoint,
            microbatch=microbatch,
            past=self.state,
        )
        if target is None and self.checkpoint.table_version is not None:
            return Engine.SPARK.value, "delta-rs does not read the table"
        try:
            dialect = connector_of({shape.connector for shape in microbatch.shapes if shape.connector}, self.state.flow)
        except UnsupportedConnectorError as error:
            return Engine.SPARK.value, error.message
        # A cluster's tasks may take what is too large here; the plan does not know of one.
        reason = why_not_read(run, target) or why_too_large(microbatch) or why_not_surveyed(microbatch.shapes, dialect)
        if reason:
            return Engine.SPARK.value, reason
        by_spark = why_not_merged(run)
        return (MIXED, by_spark) if by_spark else (Engine.NATIVE.value, "nothing in the plan is against it")

    def _unsurveyed(self) -> int | None:
        try:
            found = find_new_files(*file_system(self.archive.archive), self.archive, self.ledger, is_poke=True)
        except Exception:  # noqa: BLE001 - each store's client has errors of its own.
            return None
        return len(found.files)


def _records(microbatch: Microbatch) -> dict[str, int]:
    found: dict[str, int] = {}
    for shape in microbatch.shapes:
        found[shape.kind] = found.get(shape.kind, 0) + shape.records
    return dict(sorted(found.items()))


def _stops(plan: ExplainedPlan, flow: CdcFlow) -> Iterator[str]:
    if plan.unreadable_files:
        yield "unreadable files of the topic are set aside (airflow-cdc files)"
    if flow.on_gap is OnGap.STOP and plan.gaps and not plan.is_planned:
        yield f"on_gap is stop, and {first_line(Exception(str(plan.gaps[0])))}"
