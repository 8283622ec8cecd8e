"""CdcRebuildOperator: submit the Spark job that rebuilds tables from the archive, beside the live ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.archive.archive_shape import ArchiveShape
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import short_hash
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.position.as_of import AsOf, parse_as_of
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.job_report import Outcome, failure, log_report, summary
from airflow_cdc.operators.submit import CdcSubmitOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context
    from airflow.providers.openlineage.extractors import OperatorLineage


class CdcRebuildOperator(CdcSubmitOperator):
    """Apply flows' archived files to a new lake, up to and including the transaction at a moment; the live tables are not touched.

    All flows are rebuilt in one Spark application. When some fail, the others are still done, and a retry does what is left.

    It returns the same as :class:`airflow_cdc.operators.merge.CdcMergeOperator`; ``lake`` is the new one.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the flows' lake. (templated)
    :param into_lake_conn_id: connection of the new lake. A lake that already holds one of the tables or its state is refused, unless they
        come from a rebuild of the same archive, lake and moment. None: a folder of this task and run below the live lake's
        ``_cdc/rebuilds``. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; each must match a flow of the lake. None: every flow;
        an empty text or sequence is refused. (templated)
    :param as_of: the last moment to apply: a position, as text, or a time in ISO-8601; none: everything. (templated)
    :param flows_file: path of a flows file where the job's driver runs, the same as for the flows' runs. (templated)
    :param kwargs: other arguments of ``SparkSubmitOperator``.
    """

    template_fields: Sequence[str] = (
        *CdcSubmitOperator.template_fields,
        "archive_conn_id",
        "lake_conn_id",
        "into_lake_conn_id",
        "tables",
        "as_of",
        "flows_file",
    )
    ui_color = "#dcd0e6"
    job = "rebuild.py"

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        into_lake_conn_id: str | None = None,
        tables: str | Sequence[str] | None = None,
        as_of: str | None = None,
        flows_file: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.into_lake_conn_id = into_lake_conn_id
        self.tables = tables
        self.as_of = as_of
        self.flows_file = flows_file

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for it, and turn its report into the task's outcome."""
        with as_airflow_errors():
            archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
            into = CdcLakeHook(self.into_lake_conn_id) if self.into_lake_conn_id else None
            # A wrong moment must not cost the start of Spark.
            as_of, root = parse_as_of(str(self.as_of)) if self.as_of else None, self._root(context, lake, into)
            return self.submit(
                context,
                lake,
                lambda place: self._arguments(archive, lake.root, root, as_of, place),
                others=(archive, into) if into else (archive,),
            )

    def parse(self, document: dict[str, Any]) -> ApplyReport:
        """Return the job's report from its JSON."""
        return ApplyReport.from_json(document)

    def get_openlineage_facets_on_complete(self, task_instance: Any) -> OperatorLineage[Any, Any] | None:
        """Return the archived topics and the new lake's tables, also where the task failed afterwards."""
        from airflow_cdc.lineage import merge_lineage

        return merge_lineage(self.report) if self.report else None

    def outcome(self, context: Context, lake: CdcLakeHook, report: ApplyReport) -> Outcome:
        """Return what was rebuilt; a failed flow fails the task."""
        log_report(self.log, report)
        if not report.ok:
            return Outcome(summary(report), failure(report))
        self.log.info("Rebuilt in %s; compare: airflow-cdc diff '%s' '%s'", report.lake, lake.root, report.lake)
        return Outcome(summary(report))

    def _root(self, context: Context, lake: CdcLakeHook, into: CdcLakeHook | None) -> str:
        if into is None:
            instance = context["ti"]
            # A retry must find the results of the earlier try.
            run = short_hash(f"{instance.dag_id}/{instance.run_id}/{instance.task_id}/{instance.map_index}")
            return f"{lake.root}/{STATE_FOLDER}/rebuilds/{run}"
        if (into.root, into.storage_conn_id) == (lake.root, lake.storage_conn_id):
            raise ConfigurationError(
                f"Connections {into.conn_id} and {lake.conn_id} are of one lake, {lake.root}: a rebuild leaves the live tables alone.",
                next_step="Name the connection of another lake, or none.",
            )
        return into.root

    def _arguments(self, archive: CdcArchiveHook, lake: str, into: str, as_of: AsOf | None, report: str) -> Iterator[str]:
        yield from ("--archive", archive.root, "--lake", lake, "--into", into)
        if self.flows_file:
            yield from ("--flows", self.flows_file)
        for glob in table_globs(self.tables, must_name=True):
            yield from ("--table", glob)
        if as_of:
            yield from ("--as-of", as_of.text)
        if archive.shape != ArchiveShape():
            yield from ("--layout", archive.shape.layout.value, "--format", archive.shape.format.value)
        yield from ("--report", report)
