"""reference_schema: the JSON Schema of the reports, from their classes (airflow_cdc/model/plain_json.py defines how a type is spelled)."""

from __future__ import annotations

import collections.abc
from dataclasses import fields
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

from reference_docstrings import described_members, purpose_of

from airflow_cdc.model.plain_json import JsonArray, JsonObject
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.reprocessing import ReprocessReport
from airflow_cdc.model.report.retyping import RetypeReport

REPORTS: tuple[type[JsonObject], ...] = (ApplyReport, BatchReport, ReprocessReport, RetypeReport)
_SCALARS = {str: "string", int: "integer", float: "number", bool: "boolean"}
_ARRAYS = (tuple, list, frozenset, collections.abc.Sequence)
_OBJECTS = (dict, collections.abc.Mapping)
_ADDED: dict[type[Any], dict[str, Any]] = {
    ApplyReport: {"ok": {"type": "boolean"}, "nothing_pending": {"type": "boolean"}},
    FlowOutcome: {"events": EventCounts, "rows": RowCounts},
}
"""Members that ``to_json`` adds to those of the fields."""


def report_schema() -> dict[str, Any]:
    """Return one JSON Schema: a definition for each kind of report and for whatever they hold.

    No member is required: a report of an earlier version lacks those that came later.
    """
    definitions: dict[str, Any] = {}
    reports = [_schema_of(report, definitions) for report in REPORTS]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Reports of airflow-cdc",
        "anyOf": reports,
        "$defs": dict(sorted(definitions.items())),
    }


def _schema_of(declared: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    origin, args = get_origin(declared), get_args(declared)
    if origin is Annotated:
        return {"type": "string"}
    if origin in {Union, UnionType}:
        return {"anyOf": [_schema_of(each, definitions) for each in args]}
    if origin in _ARRAYS:
        items = [each for each in args if each is not Ellipsis]
        if len(items) == 1:
            return {"type": "array", "items": _schema_of(items[0], definitions)}
        return {"type": "array", "prefixItems": [_schema_of(each, definitions) for each in items]}
    if origin in _OBJECTS:
        return {"type": "object", "additionalProperties": _schema_of(args[1], definitions)}
    return _schema_of_class(declared, definitions)


def _schema_of_class(declared: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    if declared is Any:
        return {}
    if declared in {None, NoneType}:
        return {"type": "null"}
    if declared in _SCALARS:
        return {"type": _SCALARS[declared]}
    if issubclass(declared, Enum):
        return {"enum": [member.value for member in declared]}
    if declared.__name__ not in definitions:
        # In it before its members are asked: a class may hold itself.
        definitions[declared.__name__] = {}
        definitions[declared.__name__] = _definition(declared, definitions)
    return {"$ref": f"#/$defs/{declared.__name__}"}


def _definition(cls: type[Any], definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(cls, include_extras=True)
    if issubclass(cls, JsonArray):
        items = [_schema_of(hints[each.name], definitions) for each in fields(cls)]
        return {"description": purpose_of(cls), "type": "array", "prefixItems": items}
    described = described_members(cls)
    members: dict[str, Any] = {}
    for each in fields(cls):
        if each.name not in cls._options.own:
            text = {"description": described[each.name]} if each.name in described else {}
            members[cls._options.names.get(each.name, each.name)] = {**text, **_schema_of(hints[each.name], definitions)}
    for name, added in _ADDED.get(cls, {}).items():
        members[name] = added if isinstance(added, dict) else _schema_of(added, definitions)
    return {"description": purpose_of(cls), "type": "object", "properties": members}
