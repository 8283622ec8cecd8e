"""Physical tables of a topic: routers may send several of the source's tables to one topic, and so to one target.

A truncate, and a snapshot, concern the table that they name. Rows of two tables differ in the key column that Debezium's router adds, or in
a column that the flow declares (``table_column``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from airflow_cdc.model.flow import CdcFlow
from airflow_cdc.model.microbatch import Microbatch
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline import sql

IDENTIFIER = "__dbz__physicalTableIdentifier"
"""Key column that ByLogicalTableRouter adds; its value is the name of the topic that the event would have had without it."""


@dataclass(frozen=True)
class PhysicalTables:
    """The source's tables whose rows a target holds."""

    flow: CdcFlow
    keys: Sequence[str]
    """Key columns of the target; none where it keeps a history, whose keys are not judged one by one."""
    names: frozenset[str]
    """As :attr:`airflow_cdc.model.survey.TopicShape.table` has them; empty where the events do not say."""

    @property
    def are_several(self) -> bool:
        """Whether they share the topic."""
        return len(self.names) > 1

    @property
    def are_distinct(self) -> bool:
        """Whether each row says which table it is of."""
        return IDENTIFIER in self.keys or (bool(self.keys) and self.flow.table_column is not None)

    def rows_of(self, tables: Collection[str], alias: str = "") -> str:
        """Return the SQL that is true for a row or a row change of some tables, never NULL; for every row where there is but one table,
        for none where nothing says which one a row is of.

        :param alias: of the row, with a dot behind it.
        """
        if not self.are_several:
            return "true"
        if not self.are_distinct:
            return "false"
        if IDENTIFIER in self.keys:
            column, values = IDENTIFIER, sorted(tables)
        else:
            column, values = str(self.flow.table_column), sorted({table.rsplit(".", 1)[-1] for table in tables})
        listed = ", ".join(map(sql.text, values)) or "NULL"
        return f"coalesce({alias}{sql.name(column)} IN ({listed}), false)"


def tables_of(microbatch: Microbatch, kinds: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of the tables that a microbatch's events come from.

    :param kinds: operation codes that count; none: all.
    """
    wanted = set(kinds) or {operation.value for operation in Operation}
    return frozenset(shape.table for shape in microbatch.shapes if shape.table and shape.kind in wanted)
