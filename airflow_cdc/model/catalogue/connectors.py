"""From a row of a catalogue to the column that its connector writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.catalogue.columns import CatalogueColumn, Rule
from airflow_cdc.model.catalogue.settings import ConnectorSettings
from airflow_cdc.model.connectors import db2, mysql, oracle, postgresql, sqlserver
from airflow_cdc.model.source_schema import SourceColumn


@dataclass(frozen=True)
class Dialect:
    """How one kind of database tells its columns, and what its connector makes of them."""

    column_of: Callable[[Sequence[Any]], CatalogueColumn]
    field_of: Rule


_MYSQL = Dialect(mysql.column_of, mysql.field_of)

DIALECTS: Mapping[str, Dialect] = {
    "postgresql": Dialect(postgresql.column_of, postgresql.field_of),
    "mysql": _MYSQL,
    "mariadb": _MYSQL,
    "sqlserver": Dialect(sqlserver.column_of, sqlserver.field_of),
    "oracle": Dialect(oracle.column_of, oracle.field_of),
    "db2": Dialect(db2.column_of, db2.field_of),
}
"""By connector."""


def source_column(connector: str, row: Sequence[Any], settings: ConnectorSettings) -> SourceColumn:
    """Return a table's column as its connector spells it; without a field where that is not known.

    :param row: of the statement ``columns`` in :data:`airflow_cdc.model.catalogue.queries.QUERIES`.
    """
    dialect = DIALECTS[connector]
    column = dialect.column_of(row)
    return SourceColumn(column.name, dialect.field_of(column, settings) or {}, column.native)
