"""CdcReadAgainOperator: base of the operators that read applied files again for the live tables."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.metrics import Sample, samples_of_reading_again
from airflow_cdc.model.report.reprocessing import ReprocessReport
from airflow_cdc.model.report.retyping import RetypeReport
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.truth import truth
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.job_report import Outcome, errors_of, failure_of, log_flows
from airflow_cdc.operators.submit import CdcSubmitOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.openlineage.extractors import OperatorLineage

_LINEAGE = "airflow.providers.openlineage"


class CdcReadAgainOperator(CdcSubmitOperator):
    """Submit a job that reads applied files of flows again, all flows in one Spark application.

    When flows fail, the others are still done; the task then fails with the job's own causes, and is retried only where all of them may
    pass. A retry, like any later run, does what is left: rows that are right cause no commit.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; each must match a flow of the lake. None: every flow;
        an empty text or sequence is refused. (templated)
    :param flows_file: path of a flows file where the job's driver runs, the same as for the flows' runs. (templated)
    :param only_plan: report the changes to the rows without making them. (templated)
    :param kwargs: other arguments of ``SparkSubmitOperator``.
    """

    template_fields: Sequence[str] = (
        *CdcSubmitOperator.template_fields,
        "archive_conn_id",
        "lake_conn_id",
        "tables",
        "flows_file",
        "only_plan",
    )
    ui_color = "#e6d8c8"
    _applied: ApplyReport | None = None
    """What the report applied, for lineage."""

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        flows_file: str | None = None,
        only_plan: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.flows_file = flows_file
        self.only_plan = only_plan

    def asked(self) -> Iterator[str]:
        """Yield the job's arguments for what is read again.

        :raises ConfigurationError: for what the job would refuse, because a typo must not cost the start of Spark.
        """
        raise NotImplementedError

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for it, and turn its report into the task's outcome."""
        with as_airflow_errors():
            archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
            asked = [*self.asked(), *(["--dry-run"] if self._only_plans() else [])]
            return self.submit(context, lake, lambda place: self._arguments(archive.root, lake.root, asked, place), others=(archive,))

    def parse(self, document: dict[str, Any]) -> ReprocessReport | RetypeReport:
        """Return the job's report from its JSON."""
        return ReprocessReport.from_json(document)

    def outcome(self, context: Context, lake: CdcLakeHook, report: ReprocessReport | RetypeReport) -> Outcome:
        """Return each flow's outcome; a failed flow fails the task."""
        log_flows(self.log, report)
        result = {
            "archive": report.archive,
            "lake": report.lake,
            "dry_run": report.dry_run,
            "flows": {flow.flow: flow.summary() for flow in report.flows},
            **errors_of(report),
        }
        if report.ok:
            return Outcome(result)
        failed = sum(flow.error is not None for flow in report.flows)
        head = f"{failed} of {len(report.flows)} flows failed." if failed else "The job stopped before it could read any flow again."
        return Outcome(result, failure_of(head, report.causes()))

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return what was read again and which tables it changed, also where the task failed afterwards."""
        from airflow_cdc.lineage import merge_lineage

        return merge_lineage(self._applied) if self._applied else None

    def reported(self, lake: CdcLakeHook, report: ReprocessReport | RetypeReport) -> None:
        """Send the report's metrics, and keep what lineage is made of: its own process reaches no connection."""
        super().reported(lake, report)
        try:
            if isinstance(report, ReprocessReport) and find_spec(_LINEAGE):
                self._applied = _as_applied(lake, report)
        except Exception as error:  # noqa: BLE001 - the work is done; lineage must not fail it.
            self.log.warning("There is no lineage of this task: %s: %s", type(error).__name__, error)

    def samples(self, report: ReprocessReport | RetypeReport) -> Iterable[Sample]:
        """Return what the microbatches add to the flows' counters; nothing for a new table of the same events."""
        return samples_of_reading_again(report) if isinstance(report, ReprocessReport) else ()

    def _only_plans(self) -> bool:
        # A rendered template is a text, and every non-empty text is truthy.
        try:
            return truth(self.only_plan)
        except KeyError as error:
            raise ConfigurationError(f"only_plan is {self.only_plan!r}.", next_step="Give true or false.") from error

    def _arguments(self, archive: str, lake: str, asked: Iterable[str], report: str) -> Iterator[str]:
        yield from ("--archive", archive, "--lake", lake)
        if self.flows_file:
            yield from ("--flows", self.flows_file)
        for glob in table_globs(self.tables, must_name=True):
            yield from ("--table", glob)
        yield from (*asked, "--report", report)


def _as_applied(lake: CdcLakeHook, report: ReprocessReport) -> ApplyReport:
    """Return the committed microbatches as those of a run, with their tables' places by the lake's state."""
    changed = [flow for flow in report.flows if any(batch.table_version is not None for batch in flow.done)]
    outcomes = []
    for flow in changed:
        table = FlowState(lake.fs, lake.fs_root, flow.flow).checkpoint().table_in(lake.root)
        versions = [batch.table_version for batch in flow.done if batch.table_version is not None]
        outcomes.append(FlowOutcome(flow.flow, FlowStatus.APPLIED, table, flow.done, table_version=max(versions)))
    return ApplyReport(report.archive, report.lake, tuple(outcomes))
