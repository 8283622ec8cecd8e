"""Import schemas into a lake, and report what they contain. Starts no Spark."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import FileSystem, absolute_uri
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema, SourceSchemas
from airflow_cdc.model.handed_over.found import LeftAside
from airflow_cdc.model.handed_over.read_files import read_files
from airflow_cdc.model.handed_over.source_schemas import bring_together
from airflow_cdc.model.state.lake import FlowState, archives_in
from airflow_cdc.pipeline.decode.types.connect_types import column_type, is_field
from airflow_cdc.pipeline.spark.storage import file_system

STDIN = "-"
_YAML = (".yaml", ".yml")
_NUMBERS = ("scale", "connect.decimal.precision")
_SHORT = "org.apache.kafka.connect.data."


@dataclass(frozen=True)
class ImportedSchema:
    """One flow's schema, compared with the lake's previous one."""

    schema: SourceSchema
    changes: tuple[str, ...] | None
    """Changes against the previous schema, one line a column; None where there was none."""
    table: str | None
    """URI of the flow's table, None where it does not exist yet."""
    in_archive: bool
    """Whether an archive of the lake has a topic of that name, or no archive has been surveyed yet."""

    @property
    def unknown(self) -> list[str]:
        """The columns whose encoding the schema does not define."""
        return [column.name for column in self.schema.columns if not column.field]

    def to_json(self) -> dict[str, Any]:
        """Return the JSON that the command prints."""
        described = {name: part for name, part in self.schema.to_json().items() if name not in {"columns", "settings"}}
        counts = {"columns": len(self.schema.columns), "unknown": self.unknown}
        changes = None if self.changes is None else list(self.changes)
        return {**described, **counts, "changes": changes, "table": self.table, "in_archive": self.in_archive}


@dataclass(frozen=True)
class SchemaImport:
    """Result of an import of files."""

    schemas: tuple[ImportedSchema, ...]
    aside: tuple[LeftAside, ...]
    """Parts of the files that define no table's columns."""


def read_inputs(names: Iterable[str]) -> list[tuple[str, bytes]]:
    """Return the contents of files by their base names; ``-`` reads stdin. YAML, the format of ``schema pull``, becomes JSON.

    :raises ConfigurationError: when one cannot be read.
    """
    found = []
    for name in names:
        if name == STDIN:
            found.append(("stdin", sys.stdin.buffer.read()))
            continue
        fs, path = file_system(absolute_uri(name))
        try:
            data = fs.cat_file(path)
        except OSError as error:
            raise ConfigurationError(
                f"File {name} cannot be read: {type(error).__name__}.", next_step="Check the path, and that it is a file."
            ) from error
        found.append((name.rstrip("/").rsplit("/", 1)[-1], _as_json(name, data) if name.lower().endswith(_YAML) else data))
    return found


def _as_json(name: str, data: bytes) -> bytes:
    try:
        return json.dumps(yaml.safe_load(data)).encode()
    except (yaml.YAMLError, TypeError) as error:
        raise ConfigurationError(
            f"File {name} cannot be read as YAML: {' '.join(str(error).split())}",
            next_step="Correct it; airflow-cdc schema pull --overwrite writes it anew.",
        ) from error


def import_schemas(lake: str, files: Iterable[tuple[str, bytes]], flow: str | None = None, *, dry_run: bool = False) -> SchemaImport:
    """Store the schemas of some files in a lake; each replaces its flow's earlier one.

    :param files: names and contents, see :func:`read_inputs`.
    :param flow: see :func:`airflow_cdc.model.handed_over.source_schemas.bring_together`.
    :param dry_run: whether to report only, and store nothing.
    :raises ConfigurationError: when a file's form is unknown, or a column's field cannot be read; nothing is stored then.
    """
    handed_over = bring_together(read_files(files), flow)
    for schema in handed_over.schemas:
        _check(schema)
    fs, root = file_system(lake)
    topics = {topic for archive in archives_in(fs, root) for topic in archive.ledger().topics}
    imported = tuple(_beside_the_one_before(lake, fs, root, schema, topics) for schema in handed_over.schemas)
    if not dry_run:
        for schema in handed_over.schemas:
            SourceSchemas(fs, root).put(FlowState(fs, root, schema.flow).folder, schema)
    return SchemaImport(imported, handed_over.aside)


def becomes(column: SourceColumn, connector: str) -> str:
    """Return a column's Spark type from its Connect field; empty where unknown."""
    return column_type(column.connect_field(), connector).sql_type if column.field else ""


def connect_word(field: Mapping[str, Any]) -> str:
    """Return a Connect field's type as text: ``bytes Decimal(scale=2, connect.decimal.precision=12)``."""
    if not field:
        return ""
    name = str(field.get("name", "")).removeprefix(_SHORT)
    numbers = [
        f"{name}={value}" for name, value in (field.get("parameters") or {}).items() if name in {"scale", "connect.decimal.precision"}
    ]
    items = field.get("items")
    of_items = f" of {connect_word(items) or 'unknown'}" if isinstance(items, Mapping) else ""
    return " ".join(part for part in (str(field["type"]) + of_items, name) if part) + (f"({', '.join(numbers)})" if numbers else "")


def _check(schema: SourceSchema) -> None:
    for column in schema.columns:
        if column.field and not is_field(column.connect_field()):
            raise ConfigurationError(
                f"Flow {schema.flow}: the Connect field of column {column.name} cannot be read: {dict(column.field)} ({schema.origin}).",
                next_step="Expected a type of Kafka Connect, and a Decimal's scale as a number. Correct it, or make it {}: not known.",
            )


def _beside_the_one_before(lake: str, fs: FileSystem, root: str, schema: SourceSchema, topics: set[str]) -> ImportedSchema:
    state = FlowState(fs, root, schema.flow)
    before = SourceSchemas(fs, root).of(state.folder)
    changes = None if before is None else tuple(_changes(before, schema))
    return ImportedSchema(schema, changes, state.checkpoint().table_in(lake), not topics or schema.flow in topics)


def _changes(before: SourceSchema, now: SourceSchema) -> Iterable[str]:
    old, new = ({column.name: column for column in schema.columns} for schema in (before, now))
    for name in [*new, *(name for name in old if name not in new)]:
        if name not in new:
            yield f"{name}: gone"
        elif name not in old:
            yield f"{name}: new, {_known(becomes(new[name], now.connector))}"
        else:
            types = [becomes(old[name], before.connector), becomes(new[name], now.connector)]
            words = types if types[0] != types[1] else [connect_word(old[name].field), connect_word(new[name].field)]
            if types[0] != types[1] or old[name].field != new[name].field:
                yield f"{name}: {_known(words[0])} → {_known(words[1])}"
    if before.keys != now.keys:
        yield f"key: {', '.join(before.keys) or 'unknown'} → {', '.join(now.keys) or 'unknown'}"


def _known(word: str) -> str:
    return word or "unknown"
