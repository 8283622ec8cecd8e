"""Reapply a flow's microbatches in a separate lake, so that the result can replace a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.places import place_in
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.apply.apply_microbatch import apply_microbatch
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.explain_failure import explain_failure
from airflow_cdc.pipeline.spark.connect import release_session
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.survey.source_facts import SourceFacts
from airflow_cdc.pipeline.target.target_table import describe_table

Refused = Callable[[str], CdcError]
"""From the reason why a microbatch cannot be reapplied to the error that reports it."""


@dataclass(frozen=True)
class FlowAgain:
    """A flow whose microbatches are reapplied one by one. A crash keeps those that are done, and the next run goes on from there."""

    run: ArchiveRun
    flow: CdcFlow
    past: FlowState
    """The flow's own history."""
    facts: SourceFacts
    lake: str
    """URI of the root of the separate lake."""
    refused: Refused

    def apply(self, number: int) -> tuple[BatchReport | None, BatchReport]:
        """Reapply a microbatch, unless that is done; return its original report and its new one.

        :raises CdcError: made by ``refused``; or because Spark failed, after which the next run goes on.
        """
        intent = self.past.intent(number)
        if intent is None:
            raise self.refused(f"the intent of microbatch {number} is gone, and with it which files it applied")
        done = self.state.intent(number)
        if done and done.to_json() != intent.to_json():
            # It was withdrawn there because a file had changed.
            self.clear()
            raise self.refused(f"microbatch {number} cannot be applied as it was")
        is_retry = not self.state.write_intent(intent)
        if self.state.report(number) is None:
            report, place = self._report_of(intent, is_retry=is_retry), place_in(self.lake, self._settings.table_path(self.lake))
            self.state.write_commit(report, place, intent.digest)
            self.run.after_effect("repeat")
        now = self.state.report(number)
        assert now, "a commit marker that was just written"
        return self.past.report(number), now

    def clear(self) -> None:
        """Remove the lake."""
        fs, folder = file_system(self.lake)
        if fs.exists(folder):
            fs.rm(folder, recursive=True)

    @cached_property
    def state(self) -> FlowState:
        """The flow's state in the separate lake."""
        return FlowState(*file_system(self.lake), self.flow.name)

    @cached_property
    def table(self) -> str:
        """URI of its table in the separate lake."""
        return spark_uri(self._settings.table_path(self.lake))

    @property
    def table_bytes(self) -> int:
        """Size of that table in bytes."""
        detail = describe_table(self.run.spark, self.table)
        return int(detail["sizeInBytes"] or 0) if detail else 0

    @cached_property
    def _settings(self) -> CdcFlow:
        return replace(self.flow, table=None, catalog_table=())

    def _report_of(self, intent: Microbatch, *, is_retry: bool) -> BatchReport:
        checkpoint = self.state.checkpoint()
        if intent.does_nothing:
            return checkpoint.withdrawn()
        self.run.progress(f"{self.flow.name}: microbatch {intent.number} once more")
        session = session_for_batch(self.run.spark, batch_bytes=intent.text_size)
        application = f"{self.flow.name}:{self.state.incarnation()}"
        try:
            return apply_microbatch(
                MicrobatchRun(
                    spark=session,
                    lake=self.lake,
                    flow=self._settings,
                    application=application,
                    checkpoint=checkpoint,
                    microbatch=intent,
                    past=self.state,
                    after_effect=self.run.after_effect,
                    is_retry=is_retry,
                    facts=self.facts,
                )
            )
        except CdcError as problem:
            raise self._explained(intent, problem) from problem
        except SPARK_ERRORS as problem:
            raise self._explained(intent, explain_failure(self.state, intent.number, problem, archive=intent.archive)) from problem
        finally:
            release_session(session)

    def _explained(self, intent: Microbatch, cause: CdcError) -> CdcError:
        return cause if cause.transient else self.refused(f"microbatch {intent.number} cannot be applied once more: {cause.message}")
