"""The columns of a topic's rows and their types.

Sources of a type, in order of precedence: the flow's declaration; the schema inside the events; types known beside the events (other
events' schemas, a provided one, the schema-change topic); the target table; the JSON values. The table comes late because a type alone
does not define how a value is encoded. :func:`~airflow_cdc.pipeline.settle.schema_topic_columns.schema_topic_columns` leaves to the table
each of its columns that was not made by the schema-change topic.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.columns import is_reserved
from airflow_cdc.model.connectors.registry import own_images
from airflow_cdc.model.errors import KeysUnknownError, SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.column_origin import TypeReport
from airflow_cdc.model.flow.declared_column import DeclaredColumn
from airflow_cdc.pipeline.decode.envelope import SCHEMA, SINGLE
from airflow_cdc.pipeline.decode.types.column_types import canonical, common_type, holds, reads_alike
from airflow_cdc.pipeline.decode.types.connect_types import FORMERLY, STRING, ColumnType, cast_to, column_type
from airflow_cdc.pipeline.spark import sql


@dataclass(frozen=True)
class SourceColumns:
    """The columns of a topic's rows in one microbatch."""

    types: Mapping[str, ColumnType]
    """By column, in the source's order. A column with only nulls so far is missing until a value shows its type."""
    keys: tuple[str, ...]
    untyped: tuple[str, ...] = ()
    """Columns without a value so far."""
    comments: Mapping[str, str] = dataclasses.field(default_factory=dict)
    """By column: the origin of its type, as the table records it (:mod:`airflow_cdc.model.flow.column_origin`)."""
    reports: Mapping[str, TypeReport] = dataclasses.field(default_factory=dict)
    """By column whose type the events do not carry: the type and its origin."""
    altered: frozenset[str] = frozenset()
    """Columns whose texts have different encodings within the microbatch."""
    formerly: Mapping[str, tuple[str, ...]] = dataclasses.field(default_factory=dict)
    """By column: the older names under which events may carry it."""
    clears_absent: bool = False
    """Whether a column that is missing from an event's schema is NULL, rather than unknown."""
    as_text: tuple[str, ...] = ()
    """Columns that are STRING in the table and of another type in the events."""
    key_is_single: bool = False
    """Whether a record's key may be the only key column's value alone."""

    @property
    def sql_types(self) -> dict[str, str]:
        """Spark SQL types by column."""
        return {name: rule.sql_type for name, rule in self.types.items()}

    @property
    def renames(self) -> dict[str, str]:
        """Current names by older name."""
        return {old: name for name, olds in self.formerly.items() for old in olds}


IMAGES = ("after", "before", *own_images())
"""Members of an envelope that hold a row."""
_IMAGE_NAMES = ", ".join(sql.text(name) for name in IMAGES)


def is_schema(shape: str) -> bool:
    """Return whether a shape is a Connect schema rather than a list of member names."""
    return shape.startswith("{")


def image_fields(shape: str) -> list[dict[str, Any]]:
    """Return the fields of a row image from the value's Connect schema, in the source's order."""
    envelope = json.loads(shape)
    for field in envelope.get("fields", ()):
        if field.get("field") in IMAGES:
            fields: list[dict[str, Any]] = field.get("fields", [])
            return fields
    return []


def image_names(shape: str) -> list[str]:
    """Return the names of a row image's columns, in the source's order."""
    return [field["field"] for field in image_fields(shape)] if is_schema(shape) else member_names(shape)


def member_names(shape: str) -> list[str]:
    """Return the names that a shape lists: those of a Connect struct's fields, or of a JSON object's members."""
    document = json.loads(shape)
    if isinstance(document, dict):
        return [field["field"] for field in document.get("fields", ())]
    return list(document) if isinstance(document, list) else []


def is_single(key_shape: str | None) -> bool:
    """Return whether keys of a shape are single values, bare or with a schema. Such keys name no column."""
    if key_shape is None or key_shape == SINGLE:
        return key_shape is not None
    try:
        schema = json.loads(key_shape)
    except ValueError:
        return False
    return isinstance(schema, dict) and isinstance(schema.get("type"), str) and schema["type"] != "struct" and "fields" not in schema


def column_names(shapes: Iterable[TopicShape]) -> list[str]:
    """Return the names of all columns of the shapes. A name new to the list is inserted behind its left neighbour."""
    names: list[str] = []
    for shape in shapes:
        if shape.value_shape is None:
            continue
        at = 0
        for name in image_names(shape.value_shape):
            if name not in names:
                names.insert(at, name)
            at = names.index(name) + 1
    return names


def schema_types(shapes: Iterable[TopicShape], flow: CdcFlow) -> dict[str, ColumnType]:
    """Return the types in the events' own schemas.

    :raises SchemaChangeError: if two schemas in the microbatch declare types for a column that have no common type.
    """
    by_column: dict[str, dict[str, ColumnType]] = {}
    formerly: dict[str, Sequence[str]] = {}
    for shape in shapes:
        if shape.value_shape is None or not is_schema(shape.value_shape):
            continue
        for field in image_fields(shape.value_shape):
            name, found = field["field"], column_type(field, shape.connector or "")
            formerly[name] = field.get(FORMERLY, ())
            rules = by_column.setdefault(name, {})
            rules.setdefault(_definition(field), found)
            if common_type_of(rules.values()) is None and name not in flow.columns:
                before = next(iter(rules.values()))
                raise SchemaChangeError(
                    f"Flow {flow.name}: column {name} is {before.sql_type} in some events of the microbatch and {found.sql_type} in others"
                    f" (file {shape.file}).",
                    next_step="Declare the column's type under 'columns' in the flows file.",
                )
    return {name: _common_rule(name, rules, flow.declared.get(name), formerly[name]) for name, rules in by_column.items()}


def common_type_of(rules: Iterable[ColumnType]) -> str | None:
    """Return the type that holds the values of all rules; None if there is none."""
    found = {rule.sql_type for rule in rules}
    if len(found) > 1 and any(kind == "BINARY" or kind.startswith("ARRAY<") for kind in found):
        return None
    if "STRING" in found:
        return "STRING"
    common: str | None = next(iter(found))
    for sql_type in sorted(found):
        common = common and common_type(common, sql_type)
    return common


def _common_rule(name: str, rules: Mapping[str, ColumnType], declared: DeclaredColumn | None, formerly: Iterable[str]) -> ColumnType:
    """Return one rule for a column whose definition changes within the microbatch; ``declared`` is used if no type holds all values."""
    common = common_type_of(rules.values())
    widest = next((rule for rule in rules.values() if rule.sql_type == common), None)
    if widest and all(reads_alike(widest.sql_type, rule.sql_type) for rule in rules.values()):
        return widest
    sql_type = common or canonical(declared.sql_type if declared else "STRING")

    def read(value: str) -> str:
        # A decimal's bytes are digits; only the event's own schema carries the scale.
        cases = " ".join(
            f"WHEN {sql.text(definition)} THEN try_cast({rule.read(value)} AS {sql_type})" for definition, rule in rules.items()
        )
        return f"CASE {_event_definition(name, formerly)} {cases} END"

    return ColumnType(sql_type, read, by_schema=True)


_DEFINITION = ("type", "name", "scale", "connect.decimal.precision")


def _definition(field: Mapping[str, Any]) -> str:
    """Return the parts of a field that determine its type and rule, as one text; an array's include its items'."""
    described = [of for of in (field, field.get("items")) if isinstance(of, dict)]
    parts = [of.get(part) or (of.get("parameters") or {}).get(part) for of in described for part in _DEFINITION]
    return "|".join(str(value) for value in parts if value is not None)


def _event_definition(name: str, formerly: Iterable[str]) -> str:
    """Return the SQL of a column's :func:`_definition` in the line's own schema."""
    described = "type STRING, name STRING, parameters MAP<STRING, STRING>"
    field = f"STRUCT<field STRING, {described}, items STRUCT<{described}>>"
    envelope = f"fields ARRAY<STRUCT<field STRING, fields ARRAY<{field}>>>"
    images = f"get(filter(from_json({SCHEMA}, {sql.text(envelope)}).fields, image -> image.field IN ({_IMAGE_NAMES})), 0).fields"
    # NULL where the event's schema does not have the column yet: the value is NULL too.
    found = f"get(filter({images}, column -> column.field IN ({', '.join(map(sql.text, (name, *formerly)))})), 0)"
    parts = [
        f"{of}.{part}" if part in ("type", "name") else f"try_element_at({of}.parameters, {sql.text(part)})"
        for of in ("column", "column.items")
        for part in _DEFINITION
    ]
    return sql.let("column", found, f"concat_ws('|', {', '.join(parts)})")


def key_columns(shapes: Sequence[TopicShape], flow: CdcFlow) -> tuple[str, ...]:
    """Return the columns that identify a row: the flow's, else those of the events' keys.

    :raises KeysUnknownError: if neither is known, or the events' keys differ.
    """
    if flow.keys:
        return flow.keys
    found = {names for shape in shapes if shape.key_shape and (names := tuple(member_names(shape.key_shape)))}
    if len(found) == 1:
        return found.pop()
    if not found and any(is_single(shape.key_shape) for shape in shapes):
        raise KeysUnknownError(
            f"Flow {flow.name}: the records' keys are single values (ExtractField$Key), so the key column is not known.",
            next_step="Declare that column in a flows file: {flows: [{topic: " + flow.topic + ", keys: [id]}]}.",
        )
    if not found:
        raise KeysUnknownError(
            f"Flow {flow.name}: the archived records carry no keys, so the key columns are not known.",
            next_step="Give the flow its keys in a flows file: {flows: [{topic: " + flow.topic + ", keys: [id]}]}.",
        )
    raise KeysUnknownError(
        f"Flow {flow.name}: the events' keys differ within one microbatch: {sorted(found)}.",
        next_step="Give the flow its keys in a flows file, or rebuild the table under the new key.",
    )


def _by_flow(name: str, declared: DeclaredColumn, of_events: ColumnType | None, connector: str) -> ColumnType:
    """Return a declared column's rule: from the event's schema, else from the declared encoding of bare JSON."""
    field = declared.connect_field(name)
    return _declared(declared.sql_type, of_events or (column_type(field, connector) if field else None))


def _declared(declared: str, rule: ColumnType | None) -> ColumnType:
    """Return the rule of a declared type: from the value that ``rule`` reads, else from the JSON text.

    A value that the declared type would round or truncate does not fit.
    """
    sql_type = canonical(declared)
    if rule is None or rule is STRING:
        return cast_to(sql_type)
    if rule.sql_type == sql_type:
        return rule
    if sql_type == "STRING" and (rule.sql_type == "BINARY" or rule.sql_type.startswith("ARRAY<")):
        # A cast would decode the bytes as UTF-8, which they need not be. The JSON text has base64.
        return STRING
    if sql_type == "STRING":
        return ColumnType(sql_type, lambda value: f"CAST({rule.read(value)} AS STRING)")
    if rule.sql_type == "STRING":
        return ColumnType(sql_type, lambda value: cast_to(sql_type).read(rule.read(value)))
    there_and_back = f"if(try_cast(try_cast(value AS {sql_type}) AS {rule.sql_type}) <=> value, try_cast(value AS {sql_type}), NULL)"
    return ColumnType(sql_type, lambda value: sql.let("value", rule.read(value), there_and_back))


def _refuse_names_that_differ_in_case(names: Sequence[str], flow: CdcFlow) -> None:
    spelled: dict[str, list[str]] = {}
    for name in names:
        spelled.setdefault(name.lower(), []).append(name)
    alike = [found for found in spelled.values() if len(found) > 1]
    if alike:
        raise SchemaChangeError(
            f"Flow {flow.name}: the events of the microbatch have columns that differ only in case, which a Delta table cannot: {alike}.",
            next_step="Rename them in the connector (a ReplaceField transform) before they are archived.",
        )


def resolve_columns(
    *,
    flow: CdcFlow,
    shapes: Sequence[TopicShape],
    table: Mapping[str, str],
    inferred: Mapping[str, str],
    known: Mapping[str, ColumnType] | None = None,
    without_key: bool = False,
) -> SourceColumns:
    """Resolve the columns of a microbatch.

    :param table: the target table's types by column; empty if the table does not exist.
    :param inferred: types by column, inferred from the JSON values.
    :param known: types by column that are known beside the events: from other events' schemas, a provided one, or the schema-change topic.
    :param without_key: whether no column identifies a row.
    :raises KeysUnknownError: see :func:`key_columns`.
    :raises SchemaChangeError: if a column's name is reserved, two differ only in case, or a column's types have no common type.
    """
    from_schema = schema_types(shapes, flow)
    connector = next((shape.connector for shape in shapes if shape.connector), "")
    types: dict[str, ColumnType] = {}
    untyped: list[str] = []
    names = column_names(shapes)
    _refuse_names_that_differ_in_case(names, flow)
    for name in names:
        if is_reserved(name):
            raise SchemaChangeError(
                f"Flow {flow.name}: the source column {name} starts with the reserved prefix __cdc_.",
                next_step="Rename the column in the connector (a ReplaceField transform) before it is archived.",
            )
        declared = flow.declared.get(name)
        if declared:
            types[name] = _by_flow(name, declared, from_schema.get(name), connector)
        elif name in from_schema:
            types[name] = from_schema[name]
        elif known and name in known:
            types[name] = known[name]
        elif name in table or name in inferred:
            types[name] = cast_to(table.get(name) or inferred[name])
        else:
            untyped.append(name)
    altered = frozenset(name for name, rule in from_schema.items() if rule.by_schema)
    as_text = {name: text for name, rule in types.items() if table.get(name) == "STRING" and (text := _as_text(rule))}
    keys = () if without_key else key_columns(shapes, flow)
    return SourceColumns({**types, **as_text}, keys, tuple(untyped), altered=altered, as_text=tuple(as_text))


def _as_text(rule: ColumnType) -> ColumnType | None:
    """Return the rule that reads a value as its text; None for texts, and for types without an unambiguous text."""
    # The merge would compare a numeric key with texts as numbers: '07' would equal 7.
    return _declared("STRING", rule) if rule.sql_type != "STRING" and holds("STRING", rule.sql_type) else None
