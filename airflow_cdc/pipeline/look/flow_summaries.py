"""Summaries of a lake's flows: from their state, with the rows and the version of their tables."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.look.pending import surveyed_files_pending
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState, archives_in, flows_in
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.look.native_table import open_table
from airflow_cdc.pipeline.spark.storage import file_system

_LATEST_INTENTS = 20
"""Number of intents to look for the flow's connector in; the newest one nearly always names it."""


class TableFacts(NamedTuple):
    """A table, as far as a summary shows it."""

    rows: int
    """Those that the source has."""
    version: int


Archives = Sequence[tuple[ArchiveState, Ledger]]
"""The archives of a lake, with their ledgers."""
FactsOf = Callable[[str], TableFacts | None]
"""Returns the facts of the table at a URI; None where there is none."""


@dataclass(frozen=True)
class FlowSummary:
    """Summary of one flow of a lake."""

    flow: str
    table: str
    connector: str | None
    """``source.connector`` of its newest events; None where they name none, or several."""
    rows: int | None
    """None where the table does not exist yet."""
    applied_through: Mapping[str, Position]
    """By Kafka partition ("-" where the archive does not carry it)."""
    microbatches: int
    pending_files: int
    """Surveyed files that no committed microbatch owns."""
    rejected: int
    """Number of records quarantined since the flow began."""
    table_version: int | None

    def to_json(self) -> dict[str, Any]:
        """Return the summary as commands print it, with positions in our own numbers."""
        return {
            "flow": self.flow,
            "table": self.table,
            "rows": self.rows,
            "applied_position": {partition: str(position) for partition, position in self.applied_through.items()},
            "microbatches": self.microbatches,
            "pending_files": self.pending_files,
            "rejected": self.rejected,
            "table_version": self.table_version,
        }


def summarize(lake: str, globs: Iterable[str], facts_of: FactsOf) -> list[FlowSummary]:
    """Return the summaries of a lake's matching flows, ordered by name."""
    fs, root = file_system(lake)
    archives = [(archive, archive.ledger()) for archive in archives_in(fs, root)]
    flows = (FlowState(fs, root, flow) for flow in flows_in(fs, root) if matches_any(flow, globs))
    return [_summarize(lake, state, facts_of, archives) for state in flows]


def summarize_natively(lake: str, globs: Iterable[str] = ()) -> list[FlowSummary]:
    """Return the summaries without Spark.

    :raises NeedsSparkError: where only Spark reads one of the tables.
    """
    return summarize(lake, globs, _facts)


def _facts(uri: str) -> TableFacts | None:
    table = open_table(uri)
    return TableFacts(table.count(), table.version) if table else None


def table_of(lake: str, checkpoint: FlowCheckpoint) -> str:
    """Return the URI of a flow's table, whether it exists or not."""
    return checkpoint.table_in(lake) or f"{lake.rstrip('/')}/{checkpoint.flow}"


def _summarize(lake: str, state: FlowState, facts_of: FactsOf, archives: Archives) -> FlowSummary:
    checkpoint = state.checkpoint()
    table = table_of(lake, checkpoint)
    facts = facts_of(table)
    return FlowSummary(
        flow=state.flow,
        table=table,
        connector=connector_of(state, checkpoint, archives),
        rows=facts and facts.rows,
        applied_through=dict(sorted(checkpoint.applied_through.items())),
        microbatches=checkpoint.number,
        pending_files=sum(surveyed_files_pending(archive, ledger, state) for archive, ledger in archives if state.flow in ledger.topics),
        rejected=checkpoint.events.rejected,
        table_version=facts and facts.version,
    )


def connector_of(state: FlowState, checkpoint: FlowCheckpoint, archives: Archives) -> str | None:
    """Return the connector of a flow's events; None where they name none, or several."""
    schemas = [archive.archived_schema(state.flow) for archive, ledger in archives if state.flow in ledger.topics]
    named: set[str | None] = {schema.connector for schema in schemas if schema and schema.connector in CONNECTORS}
    for number in range(checkpoint.number, max(0, checkpoint.number - _LATEST_INTENTS), -1):
        # An intent of many files takes long to read: only without a schema.
        if named:
            break
        intent = state.intent(number)
        named = {shape.connector for shape in intent.shapes if shape.connector in CONNECTORS} if intent else set()
    return named.pop() if len(named) == 1 else None
