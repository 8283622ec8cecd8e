"""The database table of a flow's topic."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.errors import ConfigurationError

_MOST_SHOWN = 20


@dataclass(frozen=True, order=True)
class Table:
    """A table in a catalogue. MySQL's databases are its schemas."""

    database: str
    schema: str
    name: str

    def __str__(self) -> str:
        return f"{self.schema}.{self.name}"

    def topic_ends(self, connector: str) -> tuple[str, ...]:
        """Return the possible endings of the table's topic names after the prefix, the longest first."""
        parts = (self.schema, self.name)
        # Connectors that include the database today did not before 2.0.
        forms = ((self.database, *parts), parts) if {"db", "schema"} <= {*CONNECTORS[connector].topic} else (parts,)
        return tuple(re.sub(r"[^A-Za-z0-9._-]", "_", ".".join(form)) for form in forms)


def tables_of(connector: str, flows: Collection[str], there: Collection[Table], given: Mapping[str, str]) -> dict[str, Table]:
    """Return the table of each flow.

    :param flows: names of flows, which are names of topics: ``prefix.schema.table``; for SQL Server ``prefix.database.schema.table``.
    :param there: the database's tables.
    :param given: by flow, the table ``schema.table`` where its topic has another name.
    :raises ConfigurationError: names every flow with no table or several.
    """
    found = {flow: _named(given[flow], there) if flow in given else _of_topic(connector, flow, there) for flow in flows}
    wrong = [_wrong(flow, tables, given.get(flow)) for flow, tables in found.items() if len(tables) != 1]
    if wrong:
        shown = ", ".join(map(str, sorted(there)[:_MOST_SHOWN]))
        more = f" and {len(there) - _MOST_SHOWN} more" if len(there) > _MOST_SHOWN else ""
        raise ConfigurationError(
            f"{' '.join(wrong)} The connection's user sees {shown + more if there else 'no table'}.",
            next_step="Give the table as --table FLOW=schema.table, another connection, or its user the right to see the table.",
        )
    return {flow: tables[0] for flow, tables in found.items()}


def _named(name: str, there: Collection[Table]) -> list[Table]:
    return [table for table in there if name in (str(table), f"{table.database}.{table}")]


def _of_topic(connector: str, flow: str, there: Collection[Table]) -> list[Table]:
    """Return the tables with the longest name that ends the topic's."""
    ends = [(end, table) for table in there for end in table.topic_ends(connector) if flow.endswith(f".{end}")]
    # A short form after a prefix with a dot may be a table of another database.
    fit = [(end, table) for end, table in ends if end == table.topic_ends(connector)[0] or "." not in flow[: -len(end) - 1]]
    longest = max((len(end) for end, _ in fit), default=0)
    return [table for end, table in fit if len(end) == longest]


def _wrong(flow: str, tables: Collection[Table], given: str | None) -> str:
    if not tables:
        return f"Flow {flow}: there is no table {given or 'of which that would be the topic'}."
    return f"Flow {flow}: its topic may be of any of the tables {', '.join(map(repr, map(str, sorted(tables))))}."
