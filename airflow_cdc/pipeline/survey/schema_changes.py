"""Read the archived schema-change topics: each table's columns and their types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Lock
from typing import Any

from pyspark.sql import Row, SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordKind
from airflow_cdc.model.columns import FILE, ORDINAL, RAW
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.decode.envelope import in_line
from airflow_cdc.pipeline.read.read_lines import read_lines
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.spark.storage import file_system

MOST_CHANGES = 20_000
"""Most table changes that are read. If there are more, none is: a part of a table's changes is useless."""

_CHANGES = (
    "ARRAY<STRUCT<type: STRING, id: STRING, table: STRUCT<primaryKeyColumnNames: ARRAY<STRING>,"
    " columns: ARRAY<STRUCT<name: STRING, typeName: STRING, length: BIGINT, scale: BIGINT>>>>>"
)


@dataclass(frozen=True)
class ChangedColumn:
    """A column in a schema change."""

    name: str
    type_name: str
    length: int | None
    scale: int | None


@dataclass(frozen=True)
class TableChange:
    """One change of a table: the table after it."""

    kind: str
    """``CREATE`` or ``ALTER``."""
    id: str
    """The table's full identifier, as the connector quotes it."""
    keys: tuple[str, ...]
    columns: tuple[ChangedColumn, ...]
    ddl: str = ""
    """The statement that made the change, if the connector reports it."""

    def under(self, renames: Mapping[str, str]) -> TableChange:
        """Return the change with current column names.

        :param renames: current names by older name.
        """
        columns = (replace(column, name=renames.get(column.name, column.name)) for column in self.columns)
        return replace(self, columns=tuple(columns))


ChangesOf = Callable[[str], tuple[TableChange, ...]]
"""From a table's topic to its changes (:meth:`SchemaChanges.of`)."""


def no_changes(_topic: str) -> tuple[TableChange, ...]:
    """Return no changes, as if no schema-change topic were archived."""
    return ()


@dataclass
class SchemaChanges:
    """The schema-change topics of one archive, read on first use, once per run; tables are identified by their topic."""

    spark: SparkSession
    archive: ArchiveState
    ledger: Ledger
    _by_topic: dict[str, list[TableChange]] | None = None
    _lock: Lock = field(default_factory=Lock)

    def of(self, topic: str) -> tuple[TableChange, ...]:
        """Return a table's changes in topic order; none if the topic does not hold them from the table's beginning."""
        with self._lock:
            if self._by_topic is None:
                self._by_topic = self._read()
        changes = self._by_topic.get(topic, [])
        # Two tables may share a topic's name, and the table's beginning may be missing.
        is_whole = len({change.id for change in changes}) == 1 and changes[0].kind == "CREATE"
        return tuple(changes) if is_whole else ()

    def _read(self) -> dict[str, list[TableChange]]:
        files = self._files()
        if not files:
            return {}
        session = session_for_batch(self.spark, batch_bytes=sum(file.text_size for file in files))
        lines = read_lines(session, self.archive.archive, files)
        changes = lines.filter(f"{in_line('op')} IS NULL").selectExpr(
            FILE,
            ORDINAL,
            f"try_cast(get_json_object({RAW}, '$.offset') AS BIGINT) AS offset",
            f"{in_line('source.name')} AS prefix",
            f"{in_line('ddl')} AS ddl",
            f"posexplode(from_json({in_line('tableChanges')}, '{_CHANGES}')) AS (place, change)",
        )
        rows = changes.filter("prefix IS NOT NULL AND change.table.columns IS NOT NULL").limit(MOST_CHANGES + 1).collect()
        if len(rows) > MOST_CHANGES:
            return {}
        order = {file.path: number for number, file in enumerate(files)}
        found: dict[str, list[TableChange]] = {}

        def place(row: Row) -> tuple[int, ...]:
            return (row["offset"] or 0, order[row[FILE]], row[ORDINAL]["block"], row[ORDINAL]["row"], row["place"])

        for row in sorted(rows, key=place):
            change = _table_change(row["change"].asDict(recursive=True), row["ddl"] or "")
            for topic in topics_of(row["prefix"], change.id):
                found.setdefault(topic, []).append(change)
        return found

    def _files(self) -> list[ArchivedFile]:
        """Return the files that hold schema changes and are still in the archive, in the surveys' order."""
        kind = RecordKind.SCHEMA_CHANGE.value
        topics = {topic for topic in self.ledger.control_topics() if kind in self.ledger.kinds[topic]}
        if not topics:
            return []
        fs, root = file_system(self.archive.archive)
        first = min(self.ledger.topics[topic] for topic in topics)
        files: list[ArchivedFile] = []
        for survey in self.archive.surveys(first, self.ledger.surveyed_through):
            holding = {shape.file for shape in survey.shapes if shape.topic in topics and shape.kind == kind}
            files += [file for file in survey.files if file.path in holding and fs.exists(f"{root}/{file.path}")]
        return files


def _table_change(row: Mapping[str, Any], ddl: str) -> TableChange:
    table = row["table"]
    columns = tuple(
        ChangedColumn(column["name"], column["typeName"] or "", column["length"], column["scale"])
        for column in table["columns"]
        if column and column["name"]
    )
    return TableChange(row["type"] or "", row["id"] or "", tuple(table["primaryKeyColumnNames"] or ()), columns, ddl)


def topics_of(prefix: str, identifier: str) -> Iterable[str]:
    """Return the possible topics of a table's events: from the whole identifier, and, for older connectors, without the database."""
    parts = [part.replace('""', '"') for part in re.findall(r'"((?:[^"]|"")*)"', identifier)]
    # As Debezium derives a topic's name from a table's.
    plain = [re.sub(r"[^A-Za-z0-9._-]", "_", part) for part in parts]
    forms: Sequence[list[str]] = [plain, plain[1:]] if len(plain) > 2 else [plain]
    return [".".join([prefix, *form]) for form in forms if form]
