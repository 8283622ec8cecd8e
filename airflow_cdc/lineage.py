"""OpenLineage: archived topics as inputs, Delta tables as outputs, and the lineage of columns.

Only Airflow's OpenLineage provider imports this module; its client exists only with that provider.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_cdc.assets import table_of
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.connectors.mongodb import DOCUMENT
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome
from airflow_cdc.model.state.lake import FlowState

if TYPE_CHECKING:
    from airflow.providers.openlineage.extractors import OperatorLineage
    from openlineage.client.event_v2 import Dataset, InputDataset, OutputDataset

_OBJECT_STORES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "wasb": "wasbs", "wasbs": "wasbs"}
"""Schemes of stores whose keys have no leading slash, with OpenLineage's names."""
_OTHER_SCHEMES = {"abfs": "abfss"}


def dataset_name(uri: str) -> tuple[str, str]:
    """Return namespace and name of a folder, by OpenLineage's naming of file storage.

    :param uri: a URL or an absolute local path.
    """
    if "://" not in uri or uri.startswith("file:"):
        return "file", uri.removeprefix("file://").removeprefix("file:").rstrip("/") or "/"
    scheme, _, rest = uri.partition("://")
    authority, _, path = rest.rstrip("/").partition("/")
    if scheme in _OBJECT_STORES:
        return f"{_OBJECT_STORES[scheme]}://{authority}", path or "/"
    return f"{_OTHER_SCHEMES.get(scheme, scheme)}://{authority}", f"/{path}"


def merge_lineage(report: ApplyReport) -> OperatorLineage[Any, Any]:
    """Return the lineage of a run: for each table that it changed, the archived topic that it came from."""
    from airflow.providers.openlineage.extractors import OperatorLineage

    changed = [flow for flow in report.flows if flow.changed and flow.table]
    return OperatorLineage(
        inputs=[_input(report.archive, flow) for flow in changed],
        outputs=[_output(report.archive, flow) for flow in changed],
    )


def asset_dataset(asset: Any, lineage_context: Any) -> Dataset | None:  # noqa: ARG001 - Airflow hands it over.
    """Return the dataset of a table's asset, at the table's URI by the lake's state; None for other assets.

    :param asset: an ``x-cdc`` asset, also one that a task of another Dag reads.
    """
    from openlineage.client.event_v2 import Dataset

    table = table_of(asset.uri)
    if table is None:
        return None
    lake = CdcLakeHook(table.lake_conn_id)
    place = FlowState(lake.fs, lake.fs_root, table.flow).checkpoint().table_in(lake.root) or CdcFlow(table.flow).table_path(lake.root)
    return Dataset(*dataset_name(place))


def _input(archive: str, flow: FlowOutcome) -> InputDataset:
    from openlineage.client.event_v2 import InputDataset

    return InputDataset(*_topic(archive, flow))


def _topic(archive: str, flow: FlowOutcome) -> tuple[str, str]:
    # One topic, one name, wherever the archive's layout puts its files.
    return dataset_name(f"{archive.rstrip('/')}/{flow.flow}")


def _output(archive: str, flow: FlowOutcome) -> OutputDataset:
    from openlineage.client import facet_v2
    from openlineage.client.event_v2 import OutputDataset

    facets: dict[str, Any] = {
        "version": facet_v2.dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(flow.table_version)),
        "storage": facet_v2.storage_dataset.StorageDatasetFacet(storageLayer="delta", fileFormat="parquet"),
    }
    if flow.columns:
        fields = [facet_v2.schema_dataset.SchemaDatasetFacetFields(name=name, type=kind) for name, kind in flow.columns.items()]
        facets["schema"] = facet_v2.schema_dataset.SchemaDatasetFacet(fields=fields)
        facets["columnLineage"] = _column_lineage(_topic(archive, flow), flow)
    written = flow.rows.inserted + flow.rows.updated
    statistics = facet_v2.output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(rowCount=written)
    return OutputDataset(*dataset_name(str(flow.table)), facets=facets, outputFacets={"outputStatistics": statistics})


def _column_lineage(topic: tuple[str, str], flow: FlowOutcome) -> Any:
    from openlineage.client.facet_v2 import column_lineage_dataset as facet

    def source_of(column: str) -> Any:
        derived = column in flow.document_columns
        how = facet.Transformation(type="DIRECT", subtype="TRANSFORMATION" if derived else "IDENTITY")
        return facet.InputField(*topic, field=DOCUMENT if derived else column, transformations=[how])

    return facet.ColumnLineageDatasetFacet(fields={column: facet.Fields(inputFields=[source_of(column)]) for column in flow.columns})
