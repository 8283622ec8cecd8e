"""What is known of the types of a flow's columns: from its runs, its events' schemas, and an imported schema."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.column_origin import Origin, TypeReport
from airflow_cdc.model.flow.source_schema import SourceSchema, SourceSchemas
from airflow_cdc.model.state.lake import FlowState, archives_in, flows_in
from airflow_cdc.pipeline.decode.schema_types import common_type_of
from airflow_cdc.pipeline.decode.types.connect_types import column_type, is_encoded
from airflow_cdc.pipeline.settle.known_columns import spelling
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.archived_schemas import ArchivedFields, ArchivedSchemas
from airflow_cdc.pipeline.upkeep.import_schemas import becomes

_LOOK_BACK = 100
"""Number of microbatches whose reports are read; an older report may know a column that no event has had since."""


@dataclass(frozen=True)
class ShownSchema:
    """What is known of a flow's columns."""

    flow: str
    settled: dict[str, TypeReport] = field(default_factory=dict)
    """By column: as settled by the newest microbatch whose events did not carry the type themselves; else from the events' schemas."""
    handed_over: SourceSchema | None = None

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        handed_over = None
        if self.handed_over:
            columns = [
                {**column.to_json(), "becomes": becomes(column, self.handed_over.connector) or None} for column in self.handed_over.columns
            ]
            handed_over = {**self.handed_over.to_json(), "columns": columns}
        return {"flow": self.flow, "types": {name: known.to_json() for name, known in self.settled.items()}, "handed_over": handed_over}


def show_schema(lake: str, flow: str) -> ShownSchema:
    """Return what is known of a flow's columns. Reads the lake's state only, no table, and changes nothing.

    :param lake: URI of the lake's root.
    :raises ConfigurationError: when the lake knows no such flow, and has no imported schema of it.
    """
    fs, root = file_system(lake)
    state, kept = FlowState(fs, root, flow), SourceSchemas(fs, root)
    schema, known = kept.of(state.folder), flows_in(fs, root)
    if schema is None and flow not in known:
        raise ConfigurationError(
            f"Lake {lake} knows no flow {flow}, and no schema of it was handed over; its flows are {known}.",
            next_step="Check the flow's name; or hand a schema over: airflow-cdc schema import FILE --lake ….",
        )
    settled: dict[str, TypeReport] = {}
    number = state.checkpoint().number
    for each in range(number, max(0, number - _LOOK_BACK), -1):
        report = state.report(each)
        settled = {**(report.types if report else {}), **settled}
    for archive in archives_in(fs, root):
        settled = {**_of_events(ArchivedSchemas(archive, archive.ledger(), keeps=False).of(flow)), **settled}
    return ShownSchema(flow, settled, schema)


def _of_events(fields: ArchivedFields) -> dict[str, TypeReport]:
    """Return the columns in the schemas inside events; of several types the one that holds the others, else the newest."""
    found = {}
    for name, definitions in fields.by_column.items():
        rules = [column_type({**each}, fields.connector) for each in definitions]
        spelled = spelling(definitions[-1]) if is_encoded(definitions[-1]) else ""
        found[name] = TypeReport(common_type_of(rules) or rules[-1].sql_type, Origin.EVENTS, spelled)
    return found
