"""Columns and key from a schema-change topic, for a microbatch whose events carry no schema."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_cdc.model.archive.survey import RecordLayout, TopicShape
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.errors import SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.decode.source_columns import column_names, is_schema
from airflow_cdc.pipeline.decode.types.column_types import holds
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, column_type
from airflow_cdc.pipeline.decode.types.native_types import NativeType, native_type
from airflow_cdc.pipeline.decode.types.schema_topic_types import common_native, schema_topic_types
from airflow_cdc.pipeline.settle.images import Images
from airflow_cdc.pipeline.survey.schema_changes import ChangesOf, TableChange
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True)
class SchemaTopicColumns:
    """The topic's facts about a microbatch."""

    types: Mapping[str, ColumnType] = field(default_factory=dict)
    """By column; a column that the topic does not define well enough is missing."""
    encoded: frozenset[str] = frozenset()
    """Columns among them whose values cannot be read without the topic."""
    keys: tuple[str, ...] = ()
    """The table's primary key, where the archive holds values only."""


def schema_topic_columns(
    flow: CdcFlow,
    rows: Sequence[TopicShape],
    target: TargetTable | None,
    changes_of: ChangesOf,
    images: Callable[[], Images],
    *,
    names: Sequence[str],
) -> SchemaTopicColumns:
    """Return the columns and the key from the schema-change topic; reads it only where some events carry no schema.

    A column of the table that was created from the topic is always read by the topic. Any other column of the table keeps the table's type,
    unless the topic declares a wider number: its rows were read by another rule.

    :param rows: shapes of the microbatch's row events.
    :param images: returns the row images; costs a pass over the microbatch, made for new columns only.
    :param names: the columns whose types no earlier origin knows.
    :raises SchemaChangeError: when a column of the table was created from the topic, and the topic no longer defines how to read it.
    """
    if all(shape.value_shape is None or is_schema(shape.value_shape) for shape in rows):
        return SchemaTopicColumns()
    connector = _connector(rows)
    changes = changes_of(flow.topic) if connector else ()
    natives = _natives(changes, connector)
    there = target.columns if target else {}
    made = target.declared if target else frozenset()
    _refuse_undeclared(flow, [name for name in names if name in made and name not in natives], there)
    rules = {name: column_type(native.connect_field(name), connector) for name, native in natives.items()}
    kept = {
        name: rules[name]
        for name in names
        if name in there and name in natives and (name in made or _is_wider(natives[name], rules[name], there[name]))
    }
    new = [name for name in names if name in natives and name not in there]
    seen = images().values(new) if new else {}
    types = {**kept, **schema_topic_types(natives, seen, connector, proven=made)}
    encoded = frozenset(name for name in types if natives[name].is_encoded)
    return SchemaTopicColumns(types, encoded, _keys(changes, rows))


def _connector(rows: Sequence[TopicShape]) -> str:
    """Return the connector whose column types are known, ignoring stray records of another; empty where there is none."""
    named = (CONNECTORS.get(shape.connector or "") for shape in rows)
    found = {entry.names[0] for entry in named if entry and entry.schema_changes}
    return found.pop() if len(found) == 1 else ""


def _natives(changes: Sequence[TableChange], connector: str) -> dict[str, NativeType]:
    """Return the columns whose type one rule reads, through all ALTERs of the table."""
    found: dict[str, list[NativeType | None]] = {}
    for change in changes:
        for column in change.columns:
            found.setdefault(column.name, []).append(native_type(connector, column.type_name, column.length, column.scale))
    common = {name: common_native(dict.fromkeys(natives)) for name, natives in found.items()}
    return {name: native for name, native in common.items() if native}


def _is_wider(native: NativeType, rule: ColumnType, held: str) -> bool:
    return not native.is_encoded and rule.sql_type not in (held, "STRING") and holds(rule.sql_type, held)


def _refuse_undeclared(flow: CdcFlow, columns: Sequence[str], held: Mapping[str, str]) -> None:
    if columns:
        named = ", ".join(f"{name} ({held[name]})" for name in columns)
        raise SchemaChangeError(
            f"Flow {flow.name}: columns {named} are encoded in events without a schema, and their encoding is no longer declared: not by"
            " the flow, not by a schema (in the archive, or handed over), and not by the schema-change topic, from the table's creation on"
            " and with one rule for the values of before and after each ALTER.",
            next_step="Nothing of these events was merged, and none is lost. Bring the topic's missing files to the archive, set 'columns'"
            " in the flows file back, hand over a schema (airflow-cdc schema import), or archive the events with their schemas. Where an"
            " ALTER changed a unit or a scale, no event shows which it has: declare under 'columns' the encoding of before, apply the"
            " files up to the ALTER (airflow-cdc apply --until), then declare the one of after, and apply the rest.",
        )


def _keys(changes: Sequence[TableChange], rows: Sequence[TopicShape]) -> tuple[str, ...]:
    """Return the primary key of a table whose archive may have lost the records' keys, if the key never changed."""
    keys = {change.keys for change in changes}
    if len(keys) != 1 or not all(shape.layout is RecordLayout.VALUE for shape in rows):
        return ()
    (key,) = keys
    return key if set(key) <= set(column_names(rows)) else ()
