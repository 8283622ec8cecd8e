"""Types in the events' own schemas: each event is read by its own, whatever else its microbatch holds.

A column's unit, scale or encoding may change on any day, and its SQL type stay: milliseconds became microseconds. So the rule of such a
column chooses by how the event's own schema defines the column (:data:`DEFINITION`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.errors import SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.declared_column import BASE64_URL, HEX, DeclaredColumn
from airflow_cdc.pipeline.decode.envelope import SCHEMA
from airflow_cdc.pipeline.decode.source_columns import IMAGES, SourceColumns, column_names, image_fields, is_schema
from airflow_cdc.pipeline.decode.types.column_types import canonical, common_type
from airflow_cdc.pipeline.decode.types.connect_types import FORMERLY, ColumnType, cast_to, column_type, read_as
from airflow_cdc.pipeline.decode.types.native_readings import definition_of
from airflow_cdc.pipeline.decode.types.text_forms import TEXT, TextForm
from airflow_cdc.pipeline.native.duckdb_sql import text
from airflow_cdc.pipeline.spark import sql

_IMAGE_NAMES = ", ".join(sql.text(name) for name in IMAGES)
FormOf = Callable[[str, Iterable[ColumnType]], "TextForm | None"]
"""From a STRING column and the rules of its events to the one form of its texts; None: each text follows its event."""


def follow_events(_name: str, _rules: Iterable[ColumnType]) -> None:
    """Return no form."""


def bare_names(shapes: Iterable[TopicShape]) -> list[str]:
    """Return the names of all columns of events without a schema."""
    return column_names(shape for shape in shapes if shape.value_shape and not is_schema(shape.value_shape))


def schema_types(
    shapes: Iterable[TopicShape],
    flow: CdcFlow,
    *,
    of_bare: Mapping[str, ColumnType | None] = MappingProxyType({}),
    form_of: FormOf = follow_events,
) -> dict[str, ColumnType]:
    """Return the rules of the columns that the events' own schemas define: each event is read by its own.

    A declared column has the declared type, any other the least type that holds the values of all events.

    :param of_bare: the columns of the microbatch's events without a schema, with their rules; None: the JSON text shows the value.
    :raises SchemaChangeError: if two schemas in the microbatch declare types for a column that have no common type.
    """
    found = {}
    for name, defined in _defined(shapes, flow).items():
        bare = of_bare.get(name)
        rules = {**({NO_DEFINITION: bare} if bare else {}), **defined.rules}
        declared = flow.declared.get(name)
        sql_type = canonical(declared.sql_type) if declared else _common(flow, name, rules, defined.files)
        if name in of_bare and not bare and read_by_schema(name, rules, sql_type).by_schema:
            rules = {NO_DEFINITION: cast_to(sql_type), **rules}
        form = form_of(name, rules.values()) if sql_type == "STRING" else None
        found[name] = read_by_schema(name, rules, sql_type, formerly=defined.formerly, form=form)
    return found


def read_across(columns: SourceColumns, shapes: Sequence[TopicShape], flow: CdcFlow) -> SourceColumns:
    """Return the columns, of the same types, that read the events of other microbatches too, each by its own schema.

    :param shapes: of the microbatches' row events, under current column names.
    """
    defined = _defined(shapes, flow)
    bare = set(bare_names(shapes))
    types = {}
    for name, rule in columns.types.items():
        rules = {**({NO_DEFINITION: rule} if name in bare else {}), **(defined[name].rules if name in defined else {})}
        older, form = columns.formerly.get(name, ()), columns.forms.get(name)
        types[name] = read_by_schema(name, rules, rule.sql_type, formerly=older, form=form) if name in defined else rule
    return replace(columns, types=types)


@dataclass
class _Defined:
    """How the schemas of a microbatch define a column."""

    rules: dict[str, ColumnType] = field(default_factory=dict)
    """By definition (:data:`DEFINITION`)."""
    files: dict[str, str] = field(default_factory=dict)
    """By definition: a file that has it."""
    formerly: Sequence[str] = ()


def _defined(shapes: Iterable[TopicShape], flow: CdcFlow) -> dict[str, _Defined]:
    written = {(shape.value_shape, shape.connector): shape for shape in shapes if shape.value_shape and is_schema(shape.value_shape)}
    connector = next((shape.connector for shape in written.values() if shape.connector), "")
    found: dict[str, _Defined] = {}
    for (schema, _), shape in written.items():
        for each in image_fields(schema or ""):
            name, definition = each["field"], _definition(each)
            rule = _by_declaration(each, flow.declared.get(name)) or column_type(each, shape.connector or connector)
            defined = found.setdefault(name, _Defined())
            defined.formerly = each.get(FORMERLY, ())
            defined.files.setdefault(definition, shape.file)
            if not defined.rules.setdefault(definition, rule).reads(rule):
                _refuse_two_types(flow, name, defined.rules[definition], rule, shape.file)
    return found


def _common(flow: CdcFlow, name: str, rules: Mapping[str, ColumnType], files: Mapping[str, str]) -> str:
    """Return the type that holds the values of all rules.

    :raises SchemaChangeError: if there is none.
    """
    so_far: list[ColumnType] = []
    for definition, rule in rules.items():
        so_far.append(rule)
        if common_type_of(so_far) is None:
            _refuse_two_types(flow, name, so_far[0], rule, files.get(definition, ""))
    return common_type_of(so_far) or ""


def _refuse_two_types(flow: CdcFlow, name: str, first: ColumnType, other: ColumnType, file: str) -> None:
    raise SchemaChangeError(
        f"Flow {flow.name}: column {name} is {first.sql_type} in some events of the microbatch and {other.sql_type} in others"
        f" (file {file}).",
        next_step="Declare the column's type under 'columns' in the flows file.",
    )


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


def read_by_schema(
    name: str, rules: Mapping[str, ColumnType], sql_type: str, *, formerly: Iterable[str] = (), form: TextForm | None = None
) -> ColumnType:
    """Return the rule by which each event is read by its own schema: one rule for all where it reads the values of every schema.

    :param rules: by definition of the column (:func:`_definition`).
    :param form: the form of all texts; None where each follows its event.
    """
    widest = next((rule for rule in rules.values() if rule.sql_type == sql_type and all(map(rule.reads, rules.values()))), None)
    if widest:
        return widest.in_form(form)
    each = {definition: read_as(sql_type, rule).in_form(form) for definition, rule in rules.items()}
    first = next(iter(each.values()))
    if all(map(first.reads, each.values())):
        return first

    def read(value: str) -> str:
        cases = " ".join(f"WHEN {sql.text(definition)} THEN {rule.read(value)}" for definition, rule in each.items())
        return f"CASE {definition_in_event(name, formerly)} {cases} END"

    def native(leaf: str) -> str:
        cases = " ".join(f"WHEN {text(definition)} THEN {rule.native(leaf)}" for definition, rule in each.items() if rule.native)
        return f"CASE {definition_of(name)} {cases} END"

    return ColumnType(
        sql_type,
        read,
        by_schema=True,
        native=native if all(rule.native for rule in each.values()) else None,
        is_fraction=any(rule.is_fraction for rule in each.values()),
        form=form or TEXT,
    )


NO_DEFINITION = ""
"""The definition of a column in an event without a schema."""
DEFINITION = ("type", "name", "scale", "connect.decimal.precision")
"""Members of a field, then of its parameters, that determine its type and rule."""


def _definition(field: Mapping[str, Any]) -> str:
    """Return the parts of a field (:data:`DEFINITION`) as one text; an array's include its items'."""
    described = [of for of in (field, field.get("items")) if isinstance(of, dict)]
    parts = [of.get(part) or (of.get("parameters") or {}).get(part) for of in described for part in DEFINITION]
    return "|".join(str(value) for value in parts if value is not None)


def definition_in_event(name: str, formerly: Iterable[str]) -> str:
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
        for part in DEFINITION
    ]
    return sql.let("column", found, f"concat_ws('|', {', '.join(parts)})")


def _by_declaration(each: Mapping[str, Any], declared: DeclaredColumn | None) -> ColumnType | None:
    """Return the rule of a declared encoding that a field's schema leaves open: to it, hexadecimal digits are plain texts."""
    spelled = declared.connect_field(str(each["field"])) if declared else None
    return column_type(spelled, "") if spelled and _leaves_open(each, spelled) else None


def _leaves_open(each: Mapping[str, Any], spelled: Mapping[str, Any]) -> bool:
    if each.get("name") is not None:
        return False
    if isinstance(each.get("items"), dict) and isinstance(spelled.get("items"), dict):
        return _leaves_open(each["items"], spelled["items"])
    kind = "string" if spelled.get("name") in (HEX, BASE64_URL) else spelled["type"]
    return each["type"] == kind or {each["type"], kind} <= {"int32", "int64"}
