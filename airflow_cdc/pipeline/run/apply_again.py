"""Apply a flow's microbatches once more, in a lake of their own, so that a table can be replaced by what they give today."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property

from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
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
"""From why a microbatch cannot be applied once more to the error that says so."""


@dataclass(frozen=True)
class FlowAgain:
    """A flow whose microbatches are applied once more, one by one; a crash leaves those that were, and the next run goes on."""

    run: ArchiveRun
    flow: CdcFlow
    past: FlowState
    """What the flow did."""
    facts: SourceFacts
    lake: str
    """URI of the root of the lake in which they are applied."""
    refused: Refused

    def apply(self, number: int) -> tuple[BatchReport | None, BatchReport]:
        """Apply a microbatch, unless that was done; return what it did before and what it does now.

        :raises CdcError: as ``refused`` makes it; or when Spark failed, and the next run goes on.
        """
        intent = self.past.intent(number)
        if intent is None:
            raise self.refused(f"the intent of microbatch {number} is gone, and with it which files it applied")
        done = self.state.intent(number)
        if done and done.to_json() != intent.to_json():
            # It was taken back there, for a file that had changed.
            self.clear()
            raise self.refused(f"microbatch {number} cannot be applied as it was")
        is_retry = not self.state.write_intent(intent)
        if self.state.report(number) is None:
            self.state.write_commit(self._report_of(intent, is_retry=is_retry), self.table, intent.digest)
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
        """What the flow has done in the lake of its own."""
        return FlowState(*file_system(self.lake), self.flow.name)

    @cached_property
    def table(self) -> str:
        """URI of its table there."""
        return spark_uri(self._settings.table_path(self.lake))

    @property
    def table_bytes(self) -> int:
        """Bytes of its table there."""
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
