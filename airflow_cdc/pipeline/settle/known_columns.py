"""Known columns: how events without a schema encode their columns, from other events' schemas and the imported schema."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.errors import SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.column_origin import Origin
from airflow_cdc.model.flow.source_schema import SourceSchema
from airflow_cdc.pipeline.decode.renamed_columns import formerly
from airflow_cdc.pipeline.decode.types.connect_types import FORMERLY, ColumnType, column_type, is_encoded, is_field
from airflow_cdc.pipeline.survey.source_facts import SourceFacts


@dataclass(frozen=True)
class KnownColumns:
    """Facts known about some columns."""

    types: Mapping[str, ColumnType] = field(default_factory=dict)
    origins: Mapping[str, Origin] = field(default_factory=dict)
    spelled: Mapping[str, str] = field(default_factory=dict)
    """The encoding's name, for columns whose JSON text alone is ambiguous."""
    keys: tuple[str, ...] = ()
    """The table's primary key, where an imported schema has it."""


def known_columns(flow: CdcFlow, names: Collection[str], connector: str, facts: SourceFacts, renames: Mapping[str, str]) -> KnownColumns:
    """Return what is known of columns that neither the flow nor the events declare.

    :param connector: of the events; empty where they do not name it.
    :param renames: current column names by their older ones.
    :raises SchemaChangeError: when events had a column in two encodings that no single rule reads: nothing shows which a bare event has.
    """
    if not names:
        return KnownColumns()
    archived, schema = facts.archived(flow.topic), facts.handed_over(flow.topic)
    spoken = next(filter(None, [connector, archived.connector, schema.connector if schema else ""]), "")
    older = formerly(renames)
    types: dict[str, ColumnType] = {}
    origins: dict[str, Origin] = {}
    spelled: dict[str, str] = {}
    for name, definitions in _definitions(names, _today(archived.by_column, renames), _fields(schema)).items():
        rules = {
            origin: _rule(name, [{**each, FORMERLY: older.get(name, ())} for each in defs], spoken) for origin, defs in definitions.items()
        }
        found = next(((origin, rule) for origin, rule in rules.items() if rule), None)
        if found is None:
            _refuse_two_spellings(flow, name, definitions.get(Origin.ARCHIVE, ()), spoken)
            continue
        origin, types[name] = found
        origins[name] = origin
        if is_encoded(definitions[origin][-1]):
            spelled[name] = spelling(definitions[origin][-1])
    return KnownColumns(types, origins, spelled, schema.keys if schema else ())


_Fields = Mapping[str, Sequence[Mapping[str, Any]]]


def _definitions(names: Collection[str], archived: _Fields, handed_over: _Fields) -> dict[str, dict[Origin, Sequence[Mapping[str, Any]]]]:
    """Return each column's definitions by origin. The archive comes first; where it has two encodings, the imported schema decides."""
    both = {Origin.ARCHIVE: archived, Origin.SCHEMA: handed_over}
    found = {name: {origin: fields[name] for origin, fields in both.items() if name in fields} for name in names}
    return {name: definitions for name, definitions in found.items() if definitions}


def _fields(schema: SourceSchema | None) -> dict[str, list[Mapping[str, Any]]]:
    fields = (column.connect_field() for column in schema.columns) if schema else ()
    return {each["field"]: [each] for each in fields if is_field(each)}


def _today(fields: Mapping[str, Sequence[Mapping[str, Any]]], renames: Mapping[str, str]) -> dict[str, list[Mapping[str, Any]]]:
    found: dict[str, list[Mapping[str, Any]]] = {}
    for name, definitions in fields.items():
        today = renames.get(name, name)
        found.setdefault(today, []).extend({**each, "field": today} for each in definitions)
    return found


def _rule(name: str, fields: Sequence[Mapping[str, Any]], connector: str) -> ColumnType | None:
    """Return the rule that reads the values of all definitions, None where no single rule does."""
    rules = [column_type({**each, "field": name}, connector) for each in fields]
    return next((rule for rule in rules if all(map(rule.reads, rules))), None)


def spelling(each: Mapping[str, Any]) -> str:
    """Return the name of an encoded field's encoding; for an array, of its elements' encoding."""
    items = each.get("items")
    return spelling(items) if each.get("type") == "array" and isinstance(items, Mapping) else str(each.get("name"))


def _refuse_two_spellings(flow: CdcFlow, name: str, fields: Sequence[Mapping[str, Any]], connector: str) -> None:
    if not any(map(is_encoded, fields)):
        # Either way the JSON text is unambiguous.
        return
    kinds = ", ".join(f"{column_type({**each, 'field': name}, connector).sql_type} ({spelling(each)})" for each in fields)
    raise SchemaChangeError(
        f"Flow {flow.name}: events without a schema have column {name}, and the archive's schemas spell it in two ways: {kinds}.",
        next_step="Nothing of these events was merged, and none is lost. Declare under 'columns' in the flows file how the events without"
        " a schema spell it ({type: …, encoding: …} or {type: …, unit: …}), or hand over their schema (airflow-cdc schema import).",
    )
