"""Physical tables of a topic: a router may send several source tables to one topic, and so to one target.

A truncate or a snapshot concerns only the table that it names. The key column that Debezium's router adds distinguishes the tables' rows,
or a column that the flow declares (``table_column``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MICROBATCH, TABLE
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.operation import Operation
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.spark import sql

IDENTIFIER = "__dbz__physicalTableIdentifier"
"""Key column that ByLogicalTableRouter adds. Its value is the topic to which the event would go without the router."""


@dataclass(frozen=True)
class PhysicalTables:
    """The source tables whose rows a target holds."""

    flow: CdcFlow
    keys: Sequence[str]
    """Key columns of the target; empty where it only counts equal rows."""
    names: frozenset[str]
    """As in :attr:`airflow_cdc.model.archive.survey.TopicShape.table`; empty where the events name no table."""

    @property
    def are_several(self) -> bool:
        """Whether several tables share the topic."""
        return len(self.names) > 1

    @property
    def are_distinct(self) -> bool:
        """Whether each row shows its table."""
        return self.column is not None

    @property
    def column(self) -> str | None:
        """The column that shows a row's table; None if there is none."""
        if IDENTIFIER in self.keys:
            return IDENTIFIER
        return self.flow.table_column if self.keys and not self.share_a_name else None

    @property
    def share_a_name(self) -> bool:
        """Whether tables of several databases or schemas have the same name, which is then ambiguous."""
        return len({name.rpartition(".")[2] for name in self.names}) < len(self.names)

    @property
    def way_to_name_tables(self) -> str:
        """An error's next step, where no column shows a row's table."""
        if self.keys and self.share_a_name:
            return "Let the router add its column to the keys (key.enforce.uniqueness), for the tables share a name"
        column = "table_column to the column that has the table's name"
        return f"Set {column if self.keys else f'keys, which a table without them lacks, and {column}'} in the flows file"

    def rows_of(self, tables: Collection[str], alias: str = "") -> str:
        """Return the SQL that is true for a row or a row change of the given tables, never NULL.

        True for every row if there is only one table; false for every row if no column shows a row's table.

        :param alias: of the row, with a dot behind it.
        """
        if not self.are_several:
            return "true"
        if not self.are_distinct:
            return "false"
        listed = ", ".join(self._value(sql.text(table)) for table in sorted(tables)) or "NULL"
        return f"coalesce({alias}{sql.name(str(self.column))} IN ({listed}), false)"

    def marked(self, event: str, mark: str) -> str:
        """Return the SQL that is true for an event of the table that a mark in the event log names; NULL where the event does not show it.

        :param event: alias of the event, with a dot behind it.
        :param mark: alias of the mark, with a dot behind it.
        """
        if self.column is None:
            # A mark is made while all known rows are of one table. Later rows may be of any.
            return f"{event}{MICROBATCH} <= {mark}{MICROBATCH}"
        return f"{event}{sql.name(self.column)} = {self._value(f'{mark}{TABLE}')}"

    def named_in_rows(self, events: DataFrame) -> DataFrame:
        """Return a history's events with each truncate's table in the column that holds a row's (:attr:`column`).

        :param events: with :data:`~airflow_cdc.model.columns.TABLE`, if there are truncates.
        """
        if self.column is None or TABLE not in events.columns:
            return events
        named = F.expr(self._value(TABLE))
        table = F.coalesce(F.col(sql.name(self.column)), named) if self.column in events.columns else named
        return events.withColumn(self.column, table)

    def _value(self, table: str) -> str:
        """Return the SQL of the value of :attr:`column` for a table (SQL)."""
        return table if self.column == IDENTIFIER else f"substring_index({table}, '.', -1)"


def tables_of(microbatch: Microbatch, kinds: Iterable[str] = ()) -> frozenset[str]:
    """Return the names of the tables from which a microbatch's events come.

    :param kinds: operation codes that count; empty: all.
    """
    wanted = set(kinds) or {operation.value for operation in Operation}
    return frozenset(shape.table for shape in microbatch.shapes if shape.table and shape.kind in wanted)
