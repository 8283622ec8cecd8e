"""Browse one flow's quarantine page by page, by reason and text, without holding it in memory."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.places import archive_quarantine_uri, quarantine_uri
from airflow_cdc.model.state.lake import FlowState, archives_in, flows_in
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from airflow_cdc.pipeline.look.quarantined import ARCHIVE_ORDER, check_known
from airflow_cdc.pipeline.native.duckdb_sql import holds_text, text
from airflow_cdc.pipeline.native.duckdb_sql import name as quoted
from airflow_cdc.pipeline.spark.storage import file_system

_BROWSED_UP_TO_BYTES = 256 * 1024**2
"""Size of a quarantine above which it is not browsed: a search reads it whole."""
_SEARCHED = ("detail", "raw", "raw_key", "file")
_WITHOUT_VALUES = ("microbatch", "topic", "reason", "file", "line", "partition", "offset")
"""Columns that hold nothing of a record. Of a later version's columns it is not known."""


@dataclass(frozen=True)
class QuarantineSearch:
    """Which records of a quarantine to return."""

    reason: str = ""
    """Empty: any."""
    text: str = ""
    """Part of the detail, the raw record or key, or the file's name, in any case; empty: any."""
    limit: int = 50
    offset: int = 0
    """Number of records to leave out before the first."""
    shows_values: bool = True
    """Whether to return, and to search, what the records hold."""


@dataclass(frozen=True)
class QuarantinePage:
    """A page of a flow's quarantine, in archive order."""

    records: list[dict[str, Any]]
    matching: int
    """Number of records that match, on this page or not."""
    reasons: dict[str, int]
    """Number of the flow's records by reason, whatever matches."""


def browse_quarantine(lake: str, flow: str, search: QuarantineSearch) -> QuarantinePage:
    """Return a page of a flow's quarantine, or of that of a topic that is not a flow.

    :raises ConfigurationError: when the lake knows no such flow or topic.
    :raises NeedsSparkError: where only Spark reads the table, or it is too large to be searched here.
    """
    table, of_topic = _table_of(lake, flow)
    if table is None:
        check_known(lake, flow)
        return QuarantinePage([], 0, {})
    if table.size > _BROWSED_UP_TO_BYTES:
        raise NeedsSparkError(f"{table.uri} is larger than {_BROWSED_UP_TO_BYTES // 1024**2} MiB")
    where = _where(search, of_topic)
    columns = [column for column in table.types if search.shows_values or column in _WITHOUT_VALUES]
    records = table.rows(
        columns, order=list(map(quoted, ARCHIVE_ORDER)), limit=search.limit, offset=search.offset, where=where, history=True
    )
    reasons = {reason: count for topic, reason, count in table.groups(["topic", "reason"]) if of_topic in (None, topic)}
    return QuarantinePage(records, table.matching(where), reasons if of_topic else _summed(table))


def _summed(table: NativeTable) -> dict[str, int]:
    return dict(table.groups(["reason"]))


def _table_of(lake: str, flow: str) -> tuple[NativeTable | None, str | None]:
    """Return the table that holds a flow's records, and the topic by which to choose among them; None: all of them."""
    fs, root = file_system(lake)
    if flow in flows_in(fs, root):
        return open_table(quarantine_uri(lake, FlowState(fs, root, flow).folder)), None
    for state in archives_in(fs, root):
        if flow in state.held_topics():
            return open_table(archive_quarantine_uri(lake, state.archive)), flow
    return None, None


def _where(search: QuarantineSearch, topic: str | None) -> str:
    conditions = [f"reason = {text(search.reason)}"] if search.reason else []
    if topic is not None:
        conditions.append(f"coalesce(topic, '') = {text(topic)}")
    if search.text:
        searched = [column for column in _SEARCHED if search.shows_values or column in _WITHOUT_VALUES]
        conditions.append(holds_text(searched, search.text))
    return " AND ".join(conditions) or "true"
