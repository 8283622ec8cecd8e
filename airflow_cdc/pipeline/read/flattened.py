"""Output of ``ExtractNewRecordState``: the row's columns, followed by ``__op``, ``__deleted`` and the ``add.fields``.

A delete carries its row only with ``delete.tombstone.handling.mode=rewrite``, and an event its position only with the ``source`` fields
that make it up (docs/reference/archive-layouts.md). Of an update's before image only the columns are left that ``add.fields`` names.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_cdc.model.connectors.connector import PLACEHOLDER
from airflow_cdc.model.connectors.flattened_names import BEFORE, MARKS, metadata_pattern, source_fields
from airflow_cdc.model.connectors.registry import by_flattened_fields
from airflow_cdc.pipeline.spark import sql

_SCALAR = r'(?:"[^"\\]*+(?:\\.[^"\\]*+)*+"|[^,"{}\[\]]++)'


def envelope(parts: str) -> str:
    """Return the SQL of a flattened record's value as an envelope, NULL for any other record.

    :param parts: SQL of a struct: ``schema``, NULL for a bare value, and ``payload``, both JSON without whitespace between tokens.
    """
    payload = f"{parts}.payload"
    op = "coalesce(flat['__op'], CASE flat['__deleted'] WHEN 'true' THEN 'd' WHEN 'false' THEN 'u' END)"
    source = {name: f"coalesce(flat['__source_{name}'], flat['__{name}'])" for name in source_fields()}
    # The bare name, __ts_ms, is the time at which the connector processed the event.
    source["ts_ms"] = "flat['__source_ts_ms']"
    source["connector"] = f"coalesce(flat['__source_connector'], flat['__connector'], {_connector_by_fields(source)})"
    image = _without_metadata(payload)
    members = {
        "op": f"to_json(array({op}))",
        "before": f"if({op} = 'd', {image}, {_before(image)})",
        "after": f"if({op} = 'd', 'null', {image})",
        "source": f"to_json({sql.struct(source)})",
    }
    members["op"] = f"trim(BOTH '[]' FROM {members['op']})"
    text = ", ',', ".join(f"'\"{name}\":', {value}" for name, value in members.items())
    spelled = f"concat('{{', {text}, '}}')"
    wrapped = f"concat('{{\"schema\":', {_schema(f'{parts}.schema')}, ',\"payload\":', {spelled}, '}}')"
    whole = f"CASE WHEN {op} IS NOT NULL THEN if({parts}.schema IS NULL, {spelled}, {wrapped}) END"
    found = sql.let("flat", f"from_json({payload}, 'MAP<STRING, STRING>')", whole)
    return f"if({sql.mentions(payload, MARKS)}, {found}, NULL)"


def _before(image: str) -> str:
    """Return the SQL of the before image of a record that is no delete, as JSON: the values that it carries, else placeholders."""
    carried = f"map_filter(flat, (name, value) -> startswith(name, '{BEFORE}') AND value IS NOT NULL)"
    others = f"map_filter(from_json({image}, 'MAP<STRING, STRING>'), (name, value) -> NOT map_contains_key(flat, concat('{BEFORE}', name)))"
    placeholders = f"transform_values({others}, (name, value) -> {sql.text(PLACEHOLDER)})"
    values = f"transform_keys({carried}, (name, value) -> substr(name, {len(BEFORE) + 1}))"
    return f"if(size({carried}) > 0, to_json(map_concat({placeholders}, {values})), 'null')"


def _connector_by_fields(source: Mapping[str, str]) -> str:
    """Return the SQL of the connector of a record that does not name one, inferred from its fields."""
    found = []
    for entry, marks in by_flattened_fields():
        holds = f"RLIKE {sql.text(marks.pattern)}" if marks.pattern else "IS NOT NULL"
        condition = " OR ".join(f"coalesce({source[name]} {holds}, false)" for name in marks.fields)
        found.append(f"WHEN {condition} THEN {sql.text(entry.names[0])}")
    return f"CASE {' '.join(found)} END"


def _without_metadata(payload: str) -> str:
    behind = rf',"{metadata_pattern()}":{_SCALAR}'
    first = rf'^\{{"{metadata_pattern()}":{_SCALAR},?'
    return f"regexp_replace(regexp_replace({payload}, {sql.text(behind)}, ''), {sql.text(first)}, '{{')"


def _schema(schema: str) -> str:
    """Return the SQL of an envelope's schema from a flattened record's; only its ``after`` is used."""
    fields = f"from_json(get_json_object({schema}, '$.fields'), 'ARRAY<STRING>')"
    columns = f"filter({fields}, field -> NOT get_json_object(field, '$.field') RLIKE {sql.text(f'^{metadata_pattern()}$')})"
    return f'concat(\'{{"type":"struct","fields":[{{"type":"struct","field":"after","fields":[\', array_join({columns}, \',\'), \']}}]}}\')'
