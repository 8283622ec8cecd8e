"""Apply one flow: take its lease, plan its microbatches one by one, and merge each into its table."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from functools import cached_property, partial

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.completeness import (
    MOST_LISTED,
    ArchivedOffsets,
    FileOffsets,
    OffsetGap,
    file_offsets,
    files_behind,
    in_lanes,
    report_offsets,
)
from airflow_cdc.model.archive.interval import Interval
from airflow_cdc.model.errors import (
    AllRejectedError,
    CdcError,
    CountMismatchError,
    UnreadableFileError,
)
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnGap
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.places import place_in, quarantine_uri, staging_uri
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.model.report.apply_report import FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.foreign_change import ForeignChanges
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.lease import Lease, Leases
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import Microbatch, next_microbatch, pending_in
from airflow_cdc.pipeline.apply.apply_microbatch import apply_microbatch
from airflow_cdc.pipeline.evidence.find_epochs import OffsetsAwaitedError
from airflow_cdc.pipeline.evidence.plan_lives import PlanLives
from airflow_cdc.pipeline.locate.file_parts import PartsOfFlow
from airflow_cdc.pipeline.locate.find_applied import known_epochs
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.quarantine import drop_replaced
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.awaited_offsets import AwaitedOffsets, archived_times
from airflow_cdc.pipeline.run.check_state import StateCheck
from airflow_cdc.pipeline.run.end_together import Together
from airflow_cdc.pipeline.run.explain_failure import explain_failure
from airflow_cdc.pipeline.run.explain_mismatch import explain_mismatch
from airflow_cdc.pipeline.run.refuse_microbatch import refuse_gap, refuse_other_log
from airflow_cdc.pipeline.run.repair_table import RepairedFlow, repair_table
from airflow_cdc.pipeline.run.set_back import set_back
from airflow_cdc.pipeline.run.step import BEGUN, DONE, ENDED, FAILED, Step
from airflow_cdc.pipeline.run.survey_new_files import megabytes
from airflow_cdc.pipeline.spark.connect import release_session
from airflow_cdc.pipeline.spark.session import late_session_for_batch
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS, unforeseen
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.survey.source_facts import SourceFacts
from airflow_cdc.pipeline.target.register_table import register_table
from airflow_cdc.pipeline.target.target_table import columns_of


@dataclass(frozen=True)
class FlowRun:
    """One flow in one run over an archive."""

    run: ArchiveRun
    archive: ArchiveState
    ledger: Ledger
    state: FlowState
    lake_fs: FileSystem
    lake_root: str
    facts: SourceFacts
    together: Together

    @property
    def is_cut_proven(self) -> bool:
        """Whether the archive proves where the flow's tables end together."""
        cut = self.together.cut_of(self.flow.name)
        return cut is not None and cut.is_proven

    @cached_property
    def flow(self) -> CdcFlow:
        """The flow's settings."""
        flow = settings_of(self.run.flows, self.state.flow)
        return replace(flow, engine=self.run.engine) if self.run.engine else flow

    @cached_property
    def table(self) -> str:
        """URI or path of the target table."""
        return self.flow.table_path(self.run.lake)

    def pending_text(self) -> int:
        """Return the bytes of text of the files that no microbatch owns yet."""
        return sum(file.text_size for file in self._pending(self.state.checkpoint()))

    def apply(self, before: Sequence[BatchReport] = ()) -> FlowOutcome:
        """Apply the flow's pending microbatches one by one, up to the first that fails.

        :param before: reports of microbatches that others applied for this run.
        """
        reports = list(before)
        try:
            with self._lease() as lease:
                while lease and (planned := self._next(lease)):
                    microbatch, is_retry = planned
                    size = f"{len(microbatch.files)} files ({megabytes(microbatch.size)})"
                    self.run.progress(f"{self.flow.name}: microbatch {microbatch.number}, {size}")
                    self.run.watch(self._step(BEGUN, microbatch))
                    try:
                        reports.append(self._apply(microbatch, lease, is_retry=is_retry))
                        self.run.watch(self._step(DONE, microbatch))
                        self.run.progress(f"{self.flow.name}: {reports[-1].summary}")
                    except OffsetsAwaitedError as awaited:
                        self._await(awaited, microbatch)
            if reports:
                self.run.watch(Step(self.flow.name, ENDED))
            if self.flow.catalog_table:
                register_table(self.run.spark, self.flow, self.table)
        except CdcError as problem:
            return self._failed(reports, problem)
        except Exception as problem:  # noqa: BLE001 - one flow's trouble, whatever it is, must not stop the others.
            return self._failed(reports, self._unexpected(problem))
        waiting, cut, outside = self._waiting, self.behind_cut, self._outside
        if self._awaited.gaps:
            waiting = frozenset(file.path for file in self._pending(self.state.checkpoint())) - outside - cut.keys()
        status = FlowStatus.APPLIED if reports else FlowStatus.WAITING if waiting or cut or outside else FlowStatus.UP_TO_DATE
        gaps = (self._awaited.gaps or self._gaps)[:MOST_LISTED] if waiting else ()
        has_merged = any(report.table_version is not None for report in reports)
        columns = self._columns() if has_merged else {}
        checkpoint = self.state.checkpoint()
        return FlowOutcome(
            self.flow.name,
            status,
            self.table,
            tuple(reports),
            waiting_for=gaps,
            waiting_files=len(waiting),
            cut_files=len(cut),
            cut_records=sum(cut.values()),
            outside_files=len(outside),
            table_version=checkpoint.table_version,
            columns=columns,
            document_columns=tuple(name for name in self.flow.document_columns if name in columns),
            foreign_changes=tuple(self._check.changes),
            attention=tuple(finding.sentence() for finding in checkpoint.findings),
            is_new_table=has_merged and not self.state.had_table_before(reports[0].microbatch),
        )

    def _lease(self) -> AbstractContextManager[Lease | None]:
        """Return the lease to write the flow; without pending work take none, which costs nothing."""
        if self.run.lease or not self._has_work():
            return nullcontext(self.run.lease)
        leases = Leases(self.lake_fs, self.lake_root, self.run.wait_seconds, progress=self.run.progress)
        return leases.hold(self.flow.name)

    def _has_work(self) -> bool:
        """Return whether anything is planned or pending.

        :raises StateLostError: when surveys are gone: new files would then pass for planned ones.
        """
        checkpoint = self.state.checkpoint()
        if not self.run.only_planned:
            self._check.surveys_of(self.archive.archive, self.ledger, checkpoint)
        if self.state.intent(checkpoint.number + 1) or self.run.only_planned:
            return True
        return next(self._pending(checkpoint), None) is not None

    def _pending(self, checkpoint: FlowCheckpoint) -> Iterator[ArchivedFile]:
        """Yield the files that no microbatch owns yet."""
        plan = checkpoint.plan(self.archive.archive)
        for survey in self.archive.pending_surveys(checkpoint, self.ledger):
            yield from pending_in(survey, self.flow.topic, *plan)

    @cached_property
    def _kept_columns(self) -> dict[str, str]:
        """The table's columns, if the last microbatch left them as they were."""
        return {}

    def _columns(self) -> dict[str, str]:
        try:
            return self._kept_columns or columns_of(self.run.spark, spark_uri(self.table))
        except SPARK_ERRORS:
            # Used for lineage only: a failure here must not make merged work look failed.
            return {}

    def _failed(self, reports: list[BatchReport], problem: CdcError) -> FlowOutcome:
        error = problem.to_json()
        # The report has the remaining lines: evidence by column, and settings to paste.
        first, _, _ = error["message"].partition("\n")
        self.run.progress(f"{self.flow.name}: FAILED: {first}")
        self.run.watch(Step(self.flow.name, FAILED))
        changes = tuple(self._check.changes)
        return FlowOutcome(self.flow.name, FlowStatus.FAILED, self.table, tuple(reports), error, foreign_changes=changes)

    def _unexpected(self, problem: Exception) -> CdcError:
        next_step = "See the job's log; nothing is lost, the next run takes the microbatch up again."
        return unforeseen(problem, f"Flow {self.flow.name}", next_step)

    def _next(self, lease: Lease) -> tuple[Microbatch, bool] | None:
        """Return the planned but unfinished microbatch, or plan and record the next one; and whether it is a retry."""
        repair = partial(self._repair, lease)
        while True:
            checkpoint = self.state.checkpoint()
            open_intent = self.state.intent(checkpoint.number + 1)
            if open_intent and open_intent.does_nothing:
                self.state.write_commit(checkpoint.withdrawn(), place_in(self.run.lake, self.table))
                continue
            if open_intent:
                self._check.before(checkpoint, repairs=open_intent.is_again, repair=repair)
            if open_intent or self.run.only_planned:
                return (open_intent, True) if open_intent else None
            self._check.surveys_of(self.archive.archive, self.ledger, checkpoint)
            if self._awaited.gaps:
                return None
            planned, held = checkpoint.plan(self.archive.archive)
            try:
                parts = self._parts.find(checkpoint)
            except SPARK_ERRORS as problem:
                raise self._explained(checkpoint.number + 1, problem) from problem
            left_out = self._awaited.left_out(file.path for file in self._pending(checkpoint))
            microbatch = next_microbatch(
                flow=self.flow.name,
                number=checkpoint.number + 1,
                archive=self.archive.archive,
                surveys=self.archive.pending_surveys(checkpoint, self.ledger),
                planned=planned,
                max_bytes=sys.maxsize if self._awaited.together else self.flow.max_microbatch_bytes,
                held=held,
                waiting={*self._waiting, *self._outside, *(path for path, part in parts.items() if not part.shapes), *left_out},
                parts=parts,
                lives=self._lives,
            )
            if microbatch is None:
                return None
            refuse_gap(self.flow, self._gaps, microbatch)
            refuse_other_log(self.flow, checkpoint, microbatch)
            self._check.before(checkpoint, repair=repair)
            microbatch = replace(microbatch, surveyed=self.ledger.digest_of(microbatch.planned_through))
            lease.check()
            if self.state.write_intent(microbatch):
                return microbatch, False

    @cached_property
    def _check(self) -> StateCheck:
        return StateCheck(self.run.spark, self.run.lake, self.flow, self.state)

    def _repair(self, lease: Lease, checkpoint: FlowCheckpoint, found: ForeignChanges) -> None:
        lease.check()
        # A rebuild takes as long as all microbatches did: long enough to lose the lease before the table is replaced.
        run = replace(self.run, after_effect=lease.guarding(self.run.after_effect))
        repair_table(RepairedFlow(run, self.flow, self.state, self.facts), checkpoint, found)

    @cached_property
    def _parts(self) -> PartsOfFlow:
        if self.run.end_of:
            applied = known_epochs(self.state, self.state.checkpoint(), self.archive.archive)
            end = self.run.end_of(self.archive, self.ledger, self.flow.topic, {**applied.lives, **self._lives})
        else:
            end = self.together.end_of(self.state, lambda: (self._lives, [str(item.partition) for item in self._surveyed_offsets[1]]))
        return PartsOfFlow(self.run.spark, self.archive, self.ledger, self.flow.topic, end)

    @cached_property
    def _lives(self) -> Lives:
        """By path: the lives of the topic in the files that were pending when the run began."""
        try:
            return PlanLives(self.run.spark, self.archive, self.ledger, self.state, self.flow).find(self.state.checkpoint())
        except SPARK_ERRORS as problem:
            raise self._explained(self.state.checkpoint().number + 1, problem) from problem

    @cached_property
    def behind_cut(self) -> dict[str, int]:
        """By path: number of records of pending files at or after the cut. Valid once the flow applies nothing more."""
        return {path: part.left for path, part in self._parts.find(self.state.checkpoint()).items() if part.left}

    @cached_property
    def _surveyed_offsets(self) -> tuple[ArchivedOffsets, tuple[FileOffsets, ...]]:
        """Offsets of all surveyed files, applied or not, and of the files that were pending when the run began."""
        checkpoint = self.state.checkpoint()
        plan = checkpoint.plan(self.archive.archive)
        pending: list[FileOffsets] = []
        for survey in self.archive.pending_surveys(checkpoint, self.ledger):
            paths = {file.path for file in pending_in(survey, self.flow.topic, *plan)}
            found = [item for item in file_offsets(survey, self.flow.topic) if item.file in paths] if paths else []
            pending += in_lanes(found, self._lives)
        return self._applied_offsets(checkpoint).with_files(pending), tuple(pending)

    def _applied_offsets(self, checkpoint: FlowCheckpoint) -> ArchivedOffsets:
        return checkpoint.offsets.get(self.archive.archive, ArchivedOffsets())

    @cached_property
    def _outside(self) -> frozenset[str]:
        """Paths of the pending files archived outside the run's interval."""
        if self.run.interval == Interval():
            return frozenset()
        return frozenset(file.path for file in self._pending(self.state.checkpoint()) if not self.run.interval.holds(file))

    @property
    def _gaps(self) -> tuple[OffsetGap, ...]:
        # Over all surveyed files: what a later microbatch owns is not missing.
        return self._surveyed_offsets[0].gaps(self.flow.topic)

    @cached_property
    def _waiting(self) -> frozenset[str]:
        """Paths of the pending files that wait for missing offsets."""
        return files_behind(self._gaps, self._surveyed_offsets[1]) if self.flow.on_gap is OnGap.WAIT else frozenset()

    @cached_property
    def _awaited(self) -> AwaitedOffsets:
        left_out = self._waiting | self._outside
        pending = [item for item in self._surveyed_offsets[1] if item.file not in left_out]
        return AwaitedOffsets(pending, partial(archived_times, self.archive, self.ledger, self.flow.topic))

    def _await(self, awaited: OffsetsAwaitedError, microbatch: Microbatch) -> None:
        """Withdraw a microbatch that merged nothing, and plan its files anew, together with those that decide about it."""
        self.state.withdraw(microbatch)
        self._awaited.wait(awaited.gaps, microbatch)
        self.run.progress(f"{self.flow.name}: missing offsets decide whether the source's log went back: {awaited}")

    def _apply(self, microbatch: Microbatch, lease: Lease, *, is_retry: bool) -> BatchReport:
        after_effect = lease.guarding(partial(self._after, microbatch))
        after_effect("intent")
        self._kept_columns.clear()
        session = late_session_for_batch(self.run.spark, batch_bytes=microbatch.text_size)
        application = f"{self.flow.name}:{self.state.incarnation()}"
        checkpoint = self.state.checkpoint()
        attempt = MicrobatchRun(
            spark=session,
            lake=self.run.lake,
            flow=self.flow,
            application=application,
            checkpoint=checkpoint,
            microbatch=microbatch,
            past=self.state,
            after_effect=after_effect,
            is_retry=is_retry,
            facts=self.facts,
            seen_through=self._check.seen_through,
            note=self.run.progress,
            awaits=lambda gaps: self._awaited.may_come(gaps, microbatch),
            keeps_columns=self._kept_columns.update,
        )
        try:
            report = apply_microbatch(attempt)
            if microbatch.is_again:
                drop_replaced(session, attempt.state(quarantine_uri), microbatch, self.state)
        except AllRejectedError:
            set_back(self.archive, self.ledger, self.state, microbatch)
            raise
        except CountMismatchError as problem:
            raise explain_mismatch(self.archive, self.state, microbatch, problem) from problem
        except Exception as problem:
            # Another run that finished first removes our staged files. That may fail in Java, with an error of its own.
            is_other = isinstance(problem, SPARK_ERRORS) or self.state.report(microbatch.number)
            if isinstance(problem, CdcError) or not is_other:
                raise
            cause = self._explained(microbatch.number, problem)
            if isinstance(cause, UnreadableFileError):
                cause = explain_mismatch(self.archive, self.state, microbatch, cause)
            raise cause from problem
        finally:
            release_session(session)
        owned = [file for file in microbatch.files if file.path not in microbatch.rests]
        before, known = self._applied_offsets(checkpoint), self._surveyed_offsets[0]
        offsets = report_offsets(self.flow.topic, owned, microbatch.offsets, before=before, known=known)
        report = replace(report, offsets=offsets, warn_above=self.flow.warn_above)
        self.state.write_commit(report, place_in(self.run.lake, self.table), microbatch.digest)
        self._awaited.together = frozenset()
        self.run.after_effect("commit")
        self._clear_staging()
        return report

    def _after(self, microbatch: Microbatch, effect: str) -> None:
        self.run.after_effect(effect)
        self.run.watch(Step(self.flow.name, effect, microbatch.number))

    def _step(self, stage: str, microbatch: Microbatch) -> Step:
        # A microbatch that is taken up may own files of another archive.
        pending = sum(file.size for file in self._pending(self.state.checkpoint())) if stage == BEGUN else 0
        records, most = sum(shape.records for shape in microbatch.shapes), max(pending, microbatch.size)
        return Step(self.flow.name, stage, microbatch.number, len(microbatch.files), microbatch.size, records, most)

    def _explained(self, number: int, problem: Exception) -> CdcError:
        return explain_failure(self.state, number, problem, archive=self.archive.archive)

    def _clear_staging(self) -> None:
        folder = file_system(staging_uri(self.run.lake, self.state.folder))[1]
        if self.lake_fs.exists(folder):
            self.lake_fs.rm(folder, recursive=True)
