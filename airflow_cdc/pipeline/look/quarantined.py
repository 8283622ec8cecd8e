"""A lake's quarantined records: groups with one cause, one flow's first records, or all of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive.topics import NO_TOPIC
from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.places import archive_quarantine_uri, quarantine_uri
from airflow_cdc.model.state.lake import FlowState, archives_in, flows_in
from airflow_cdc.pipeline.look.native_table import NeedsSparkError, open_table
from airflow_cdc.pipeline.native.duckdb_sql import name as quoted
from airflow_cdc.pipeline.spark.storage import file_system

ARCHIVE_ORDER = ("microbatch", "file", "line")
"""Columns that sort the records of a quarantine in archive order."""
MISFIT = r"(?s)^column (.*?) is [A-Z_]+(?:[(<][^:]*)?, seen: "
"""How the detail of a value that does not fit begins (:mod:`airflow_cdc.pipeline.decode.rejects`); Java and Python read it alike."""
_READ_UP_TO_BYTES = 32 * 1024**2
"""Size of a quarantine above which its records are left to Spark: here they are all held in memory."""

Record = dict[str, Any]
"""A quarantined record (``record.quarantine.QUARANTINE_SCHEMA``), with its ``flow`` first."""


@dataclass(frozen=True)
class QuarantineGroup:
    """Records of one flow rejected for one reason and, if values do not fit, in one column."""

    flow: str | None
    """For a topic that is not a flow, the topic; None for lines that name no topic."""
    reason: str
    column: str | None
    """None for reasons that do not concern one column."""
    records: int
    example: Record
    """The first of them in archive order, without ``flow``."""

    def to_json(self) -> dict[str, Any]:
        """Return the group as commands print it."""
        return dict(vars(self))


def largest_first(groups: Iterable[QuarantineGroup]) -> list[QuarantineGroup]:
    """Return groups in the order in which they are shown."""
    return sorted(groups, key=lambda group: (-group.records, group.flow or NO_TOPIC, group.reason, group.column or ""))


def read_quarantine_natively(lake: str, globs: Iterable[str] = ()) -> list[Record]:
    """Return the quarantined records in archive order.

    :raises NeedsSparkError: where only Spark reads one of the tables.
    """
    wanted = tuple(globs)
    return [record for records in _quarantines(lake, wanted) for record in records if matches_any(record["flow"] or NO_TOPIC, wanted)]


def groups_of(records: Iterable[Record]) -> list[QuarantineGroup]:
    """Return the groups of records that are in archive order, largest first."""
    members: dict[tuple[str | None, str, str | None], list[Record]] = {}
    for record in records:
        members.setdefault((record["flow"], record["reason"], _column(record)), []).append(record)
    return largest_first(QuarantineGroup(*cause, len(found), _without_flow(found[0])) for cause, found in members.items())


def _column(record: Mapping[str, Any]) -> str | None:
    if record["reason"] != RejectReason.VALUE_DOES_NOT_FIT_COLUMN.value or record["detail"] is None:
        return None
    found = re.search(MISFIT, record["detail"])
    # As Spark's regexp_extract: an empty text where nothing is found.
    return found[1] if found else ""


def _without_flow(record: Record) -> Record:
    return {name: value for name, value in record.items() if name != "flow"}


def records_of_natively(lake: str, flow: str, limit: int | None = None) -> tuple[Sequence[Record], int]:
    """Return the first quarantined records of a flow, or of a topic that is not a flow, in archive order, and their total number.

    :param limit: maximum number of records to return; None: all.
    :raises ConfigurationError: when the lake knows no flow of that name and has quarantined nothing under it.
    :raises NeedsSparkError: where only Spark reads one of the tables.
    """
    found = [record for records in _quarantines(lake, (), only=flow) for record in records if record["flow"] == flow]
    if not found:
        check_known(lake, flow)
    return found[:limit], len(found)


def _quarantines(lake: str, globs: Iterable[str], *, only: str | None = None) -> Iterator[list[Record]]:
    """Yield the quarantine of each flow, then that of each archive (:func:`airflow_cdc.pipeline.upkeep.inspect_lake.quarantines`)."""
    fs, root = file_system(lake)
    for flow in flows_in(fs, root):
        if matches_any(flow, globs) and only in (None, flow):
            yield [{"flow": flow, **record} for record in _records(quarantine_uri(lake, FlowState(fs, root, flow).folder))]
    for state in archives_in(fs, root):
        if state.held_topics():
            yield [{"flow": record["topic"], **record} for record in _records(archive_quarantine_uri(lake, state.archive))]


def _records(uri: str) -> list[Record]:
    table = open_table(uri)
    if table is None:
        return []
    if table.size > _READ_UP_TO_BYTES:
        raise NeedsSparkError(f"{uri} is larger than {_READ_UP_TO_BYTES // 1024**2} MiB")
    return table.rows(list(table.types), order=[quoted(name) for name in ARCHIVE_ORDER])


def check_known(lake: str, flow: str) -> None:
    """Refuse the name of a flow, or of a topic that is not a flow, that a lake does not know.

    :raises ConfigurationError: for such a name.
    """
    fs, root = file_system(lake)
    known = {*flows_in(fs, root), *(topic for state in archives_in(fs, root) for topic in state.held_topics())} - {NO_TOPIC}
    if flow not in known:
        raise ConfigurationError(
            f"Lake {lake} knows no flow {flow}; it knows {', '.join(sorted(known)) or 'none'}.",
            next_step="Check the flow's name and the lake's root with `airflow-cdc tables --lake …`.",
        )
