"""From a row of a catalogue to the column that its connector writes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from airflow_cdc.model.catalogue.modes import ConnectorSettings
from airflow_cdc.model.flow.source_schema import SourceColumn
from airflow_cdc.model.pull.settings import catalogues


def source_column(connector: str, row: Sequence[Any], settings: ConnectorSettings) -> SourceColumn:
    """Return a table's column in its connector's encoding; without a field where that is not known.

    :param row: of the statement ``columns`` of the connector's :class:`~airflow_cdc.model.catalogue.queries.Queries`.
    """
    catalogue = catalogues()[connector]
    column = catalogue.column_of(row)
    return SourceColumn(column.name, catalogue.field_of(column, settings) or {}, column.native)
