"""Combine the imported files' schemas, flow by flow: the columns of its rows, and its key."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from airflow_cdc.model.connectors.flattened_names import without_metadata
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema
from airflow_cdc.model.handed_over.connect import ConnectSchema, connector_of, fields_of, is_envelope, native_type, row_fields
from airflow_cdc.model.handed_over.found import FoundSchema, LeftAside, is_control
from airflow_cdc.model.handed_over.read_files import Parts
from airflow_cdc.model.handed_over.registry import PROTOBUF_NEXT_STEP, PROTOBUF_REFUSED

_SHOWN = 10


@dataclass(frozen=True)
class HandedOver:
    """The imported schemas, ordered by flow, and what was left aside."""

    schemas: tuple[SourceSchema, ...]
    aside: tuple[LeftAside, ...]


def bring_together(parts: Parts, flow: str | None = None) -> HandedOver:
    """Return the schema of each flow: the newest of several versions, and the best-ranked of several names for one topic.

    :param flow: the wanted flow. Of several schemas its own is taken; a single schema is taken for it, whatever its topic is called.
    :raises ConfigurationError: when there is no schema, when a schema's topic is not known, or when two schemas of one flow differ.
    """
    aside = list(parts.aside)
    found = _with_topics(list(_usable(parts.found, aside)), parts, flow, aside)
    schemas = {schema.flow: schema for schema in _assembled(found, aside)}
    for schema in parts.ready:
        if schemas.setdefault(schema.flow, schema) != schema:
            raise _differ(schema.flow, [schema.origin, schemas[schema.flow].origin])
    if not schemas:
        raise _nothing(aside)
    chosen = _chosen(schemas, flow) if flow else schemas
    return HandedOver(tuple(chosen[name] for name in sorted(chosen)), tuple(aside))


def _with_topics(found: Sequence[FoundSchema], parts: Parts, flow: str | None, aside: list[LeftAside]) -> Sequence[FoundSchema]:
    """Return the schemas with known topics. Schemas without a topic get ``flow``, where no other schema is for it."""
    named, nameless = [each for each in found if each.topic], [each for each in found if not each.topic]
    topics = {each.topic for each in named} | {schema.flow for schema in parts.ready}
    if nameless and flow and flow not in topics:
        # Some of Apicurio's strategies give an artifact the topic's plain name.
        meant = [each for each in nameless if each.subject.partition("/")[2] == flow] or nameless
        return [*named, *(replace(each, topic=flow) for each in meant)]
    if nameless and not topics:
        raise ConfigurationError(
            f"The topic of these schemas is not known: {'; '.join(each.origin for each in nameless[:_SHOWN])}.",
            next_step="Hand over one file at a time and name its topic, as the archive has it: --flow TOPIC.",
        )
    aside += [LeftAside(_what(each), "its topic is not known") for each in nameless]
    return named


def _what(found: FoundSchema) -> str:
    return found.subject.lstrip("/") or found.origin


def _usable(found: Iterable[FoundSchema], aside: list[LeftAside]) -> Iterable[FoundSchema]:
    for each in found:
        what = _what(each)
        if is_control(each.connect):
            aside.append(LeftAside(what, "it is of a connector's own records, not of a table's"))
        elif not each.is_key and is_envelope(each.connect) and not row_fields(each.connect):
            aside.append(LeftAside(what, "its envelope shows no columns: before and after are texts, as those of documents are"))
        elif not each.is_key and not fields_of(each.connect):
            aside.append(LeftAside(what, f"it is {each.connect.get('type', 'of several types')}, expected a struct, record or object"))
        else:
            yield each


def _assembled(found: Sequence[FoundSchema], aside: list[LeftAside]) -> Iterable[SourceSchema]:
    for topic in dict.fromkeys(each.topic for each in found):
        of_topic = [each for each in found if each.topic == topic]
        values = [each for each in of_topic if not each.is_key]
        if not values:
            aside.append(LeftAside(_what(of_topic[0]), f"it is the key of {topic}, and the schema of its values is not there"))
            continue
        value, key = _best(topic, values), _best(topic, [each for each in of_topic if each.is_key])
        if value:
            yield _source_schema(value, key)


def _best(topic: str, found: Sequence[FoundSchema]) -> FoundSchema | None:
    """Return the decisive schema among those of one topic's values, or keys."""
    rank = min((each.rank for each in found), default=0)
    newest: dict[str, FoundSchema] = {}
    for place, each in enumerate(found):
        name = each.subject or f"{place}"
        if each.rank == rank and (name not in newest or each.version > newest[name].version):
            newest[name] = each
    candidates = list(newest.values())
    if any(_row_columns(each.connect) != _row_columns(candidates[0].connect) for each in candidates):
        raise _differ(topic, [each.origin for each in candidates])
    return candidates[0] if candidates else None


def _row_columns(connect: ConnectSchema) -> list[ConnectSchema]:
    return without_metadata(row_fields(connect))


def _source_schema(value: FoundSchema, key: FoundSchema | None) -> SourceSchema:
    columns = tuple(
        SourceColumn(field["field"], {name: part for name, part in field.items() if name != "field"}, native_type(field))
        for field in _row_columns(value.connect)
    )
    keys = tuple(field["field"] for field in fields_of(key.connect)) if key else ()
    return SourceSchema(value.topic, connector_of(value.connect), columns, keys, value.origin)


def _chosen(schemas: dict[str, SourceSchema], flow: str) -> dict[str, SourceSchema]:
    if flow in schemas:
        return {flow: schemas[flow]}
    if len(schemas) == 1:
        (only,) = schemas.values()
        return {flow: replace(only, flow=flow)}
    others = ", ".join(sorted(schemas)[:_SHOWN]) + (" …" if len(schemas) > _SHOWN else "")
    raise ConfigurationError(
        f"The files hold no schema of {flow}, but of {len(schemas)} others: {others}.",
        next_step="Name one of them with --flow, or leave it out to take them all.",
    )


def _differ(flow: str, origins: Sequence[str]) -> ConfigurationError:
    return ConfigurationError(
        f"Two schemas of {flow} differ, and neither is known to be newer: {'; '.join(dict.fromkeys(origins))}.",
        next_step="Hand over one of them.",
    )


def _nothing(aside: Sequence[LeftAside]) -> ConfigurationError:
    if any(each.reason == PROTOBUF_REFUSED for each in aside):
        next_step = PROTOBUF_NEXT_STEP
    else:
        next_step = "Hand over the schema of a table's topic: /subjects/<topic>-value/versions/latest, or an event with its schema."
    shown = "; ".join(f"{each.what}: {each.reason}" for each in aside[:_SHOWN])
    return ConfigurationError(f"The files hold no schema of a table's rows. {shown or 'They hold nothing'}.", next_step=next_step)
