"""Settle the columns of a microbatch: type, encoding and origin of each (docs/reference/types.md)."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.errors import SchemaChangeError, TypesUnknownError, UnsupportedConnectorError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.column_origin import ENCODED_COMMENT, GUESSED_COMMENT, TOPIC_COMMENT, Origin, TypeReport
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.pipeline.decode.renamed_columns import formerly, under_new_names
from airflow_cdc.pipeline.decode.resolve_columns import resolve_columns
from airflow_cdc.pipeline.decode.schema_types import bare_names, schema_types
from airflow_cdc.pipeline.decode.source_columns import SourceColumns, column_names, image_fields, is_schema, is_single, member_names
from airflow_cdc.pipeline.decode.types.connect_types import STRING, ColumnType, is_encoded
from airflow_cdc.pipeline.decode.types.infer_types import LONG_FRACTIONS
from airflow_cdc.pipeline.decode.types.suspicions import Suspicion, find_suspicions
from airflow_cdc.pipeline.settle.images import Images
from airflow_cdc.pipeline.settle.known_columns import KnownColumns, known_columns, spelling
from airflow_cdc.pipeline.settle.schema_topic_columns import SchemaTopicColumns, schema_topic_columns
from airflow_cdc.pipeline.settle.settle_form import Forms
from airflow_cdc.pipeline.survey.schema_changes import TableChange
from airflow_cdc.pipeline.survey.source_facts import SourceFacts
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True)
class Source:
    """The inputs from which columns are settled."""

    flow: CdcFlow
    shapes: Sequence[TopicShape]
    """Of the microbatch's row events, as archived."""
    target: TargetTable | None
    facts: SourceFacts
    renames: Mapping[str, str]
    """Current column names by their older ones."""
    without_key: bool

    @cached_property
    def rows(self) -> list[TopicShape]:
        """The shapes under current column names."""
        return [under_new_names(shape, self.renames) for shape in self.shapes]

    @cached_property
    def table(self) -> TargetTable | None:
        """The target under current column names."""
        return self.target and self.target.under(self.renames)

    @property
    def connector(self) -> str:
        """The connector's name in the events; empty where they differ or do not name it."""
        found = {shape.connector for shape in self.rows if shape.connector}
        return found.pop() if len(found) == 1 else ""

    def changes(self, topic: str) -> tuple[TableChange, ...]:
        """Return the changes in the schema-change topic, under current column names."""
        return tuple(change.under(self.renames) for change in self.facts.changes(topic))


def settle_columns(source: Source, images: Callable[[Sequence[str]], Images]) -> SourceColumns:
    """Settle the columns; the first origin that knows a type decides (:class:`~airflow_cdc.model.flow.column_origin.Origin`).

    :param images: returns the row images and keys without a schema, for columns of these names.
    :raises KeysUnknownError: when nothing identifies a row.
    :raises SchemaChangeError: when the columns cannot be settled, or would be read differently from the table's.
    :raises TypesUnknownError: when new columns look encoded, and the flow's policy is to stop.
    :raises UnsupportedConnectorError: for values in the own form of YugabyteDB's connector.
    """
    flow, rows, table = source.flow, source.rows, source.table
    _refuse_value_set(flow, [name for name, each in _fields(rows) if _is_value_set(each)])
    from_events = schema_types(rows, flow)
    bare = set(bare_names(rows))
    names = [name for name in column_names(rows) if name not in flow.columns and (name in bare or name not in from_events)]
    known = known_columns(flow, names, source.connector, source.facts, source.renames)
    others = [name for name in names if name not in known.types and name not in from_events]

    images_now = cache(lambda: images(others))
    of_topic = schema_topic_columns(flow, rows, table, source.changes, images_now, names=others)
    held = table.columns if table else {}
    unknown = [name for name in others if name not in of_topic.types and name not in held]
    keyed = _with_keys(flow, rows, table, known.keys or of_topic.keys)
    guess = _guess(source, keyed.keys, unknown, images_now()) if unknown else _Guess()
    if guess.doubts and flow.on_unknown_types in (None, OnUnknownTypes.STOP):
        raise unknown_types(flow, column_names(rows), {**guess.types, **_spelled_out(from_events, known, of_topic)}, guess.doubts)
    columns = resolve_columns(
        flow=keyed,
        shapes=rows,
        table=held,
        inferred=guess.types,
        known={**of_topic.types, **known.types},
        without_key=source.without_key,
        form_of=Forms(
            flow=flow, table=table, archived=source.facts.archived, connector=source.connector, without_key=source.without_key
        ).of,
    )
    untyped_keys = {key: STRING for key in columns.keys if key not in columns.types}
    columns = replace(columns, types={**columns.types, **untyped_keys})
    encoded = {name: column.encoding.value for name, column in flow.declared.items() if column.encoding}
    _refuse_other_reading(flow, table, columns, {**known.spelled, **_spelled_by_events(rows), **encoded})
    origins = {
        **dict.fromkeys(guess.types, Origin.VALUES),
        **dict.fromkeys(held, Origin.TABLE),
        **dict.fromkeys(of_topic.types, Origin.TOPIC),
        **known.origins,
        **dict.fromkeys(from_events, Origin.EVENTS),
        **dict.fromkeys(flow.columns, Origin.FLOW),
    }
    comments = {
        **dict.fromkeys(guess.types, GUESSED_COMMENT),
        **dict.fromkeys(of_topic.encoded, TOPIC_COMMENT),
        **dict.fromkeys({*known.spelled.keys() - from_events.keys(), *encoded}, ENCODED_COMMENT),
    }
    doubts = {name: doubt.evidence for name, doubt in guess.doubts.items()}
    reports = {
        name: TypeReport(rule.sql_type, origin, {**known.spelled, **encoded}.get(name, ""), doubts.get(name, ""))
        for name, rule in columns.types.items()
        if (origin := origins.get(name, Origin.VALUES)) is not Origin.EVENTS
    }
    by_value = len(flow.keys) == 1 and any(is_single(shape.key_shape) for shape in rows)
    return replace(columns, comments=comments, reports=reports, formerly=formerly(source.renames), key_is_single=by_value)


@dataclass(frozen=True)
class _Guess:
    """Types inferred from the values of columns that no other origin knows."""

    types: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, Suspicion] = field(default_factory=dict)


def _guess(source: Source, keys: Sequence[str], unknown: Sequence[str], images: Images) -> _Guess:
    of_events = [member_names(shape.key_shape) for shape in source.rows if shape.key_shape]
    in_key = {*keys, *(name for names in of_events for name in names)}
    # To one double belong many decimals: in a key, rows of several would be one.
    types = {name: LONG_FRACTIONS if name in in_key and kind == "DOUBLE" else kind for name, kind in images.types(unknown).items()}
    seen = images.values(types) if types else {}
    _refuse_value_set(source.flow, [name for name, values in seen.items() if values.kinds == {"other"} and not values.some_no_value_set])
    doubts = find_suspicions(seen, in_key)
    if source.flow.on_unknown_types is OnUnknownTypes.TEXT:
        types |= dict.fromkeys(doubts, "STRING")
    return _Guess(types, doubts)


def _with_keys(flow: CdcFlow, rows: Sequence[TopicShape], table: TargetTable | None, known: tuple[str, ...]) -> CdcFlow:
    """Return the flow with its table's keys, or keys known from outside the events, where neither flow nor events have any."""
    if flow.keys or any(shape.key_shape and member_names(shape.key_shape) for shape in rows):
        return flow
    return CdcFlow(flow.topic, keys=table.keys if table else known, columns=flow.columns)


def _spelled_out(from_events: Mapping[str, ColumnType], known: KnownColumns, of_topic: SchemaTopicColumns) -> dict[str, str]:
    return {name: rule.sql_type for name, rule in {**of_topic.types, **known.types, **from_events}.items()}


def _spelled_by_events(rows: Sequence[TopicShape]) -> dict[str, str]:
    """Return the columns that the events' own schemas declare as encoded, with the name of each encoding."""
    return {name: spelling(each) for name, each in _fields(rows) if is_encoded(each)}


def _fields(rows: Sequence[TopicShape]) -> list[tuple[str, dict[str, Any]]]:
    """Return the columns in the events' own schemas."""
    schemas = {shape.value_shape for shape in rows if shape.value_shape and is_schema(shape.value_shape)}
    return [(each["field"], each) for schema in sorted(schemas) for each in image_fields(schema)]


def _is_value_set(each: Mapping[str, Any]) -> bool:
    return each.get("type") == "struct" and {member.get("field") for member in each.get("fields") or ()} == {"value", "set"}


def _refuse_value_set(flow: CdcFlow, columns: Sequence[str]) -> None:
    """Refuse events of YugabyteDB's connector in its own form, which names itself ``postgresql``.

    In it null says that an update did not touch the column: as a row's value it would overwrite what the row holds.
    """
    if columns:
        raise UnsupportedConnectorError(
            f"Flow {flow.name}: columns {', '.join(sorted(columns))} hold objects of value and set, as YugabyteDB's connector writes them"
            " with plugin.name=yboutput. There, null stands for a column that an update did not touch.",
            next_step="Nothing of these events was merged, and none is lost. This package does not read that form, neither what is archived"
            " in it already: set the connector's plugin.name to pgoutput, and let it take a snapshot into a new topic.",
        )


def _refuse_other_reading(flow: CdcFlow, table: TargetTable | None, columns: SourceColumns, spelled: Mapping[str, str]) -> None:
    """Stop where a column's rows were read as plain JSON text, and its text is now known to be encoded.

    Otherwise both would share a column: ``C2E=`` and ``29.13`` in one column of texts.
    """
    wrong = sorted(name for name in (table.guessed if table else ()) if name in spelled and name in columns.types)
    if wrong and table:
        both = "; ".join(f"{name}: {table.columns[name]} | {columns.types[name].sql_type} ({spelled[name]})" for name in wrong)
        raise SchemaChangeError(
            f"Flow {flow.name}: columns of table {table.uri} were made of what the JSON values look like, and now it is known what they"
            f" are (column: table | known now): {both}.",
            next_step=f"Nothing of these events was merged, and none is lost. Make the table anew from the archive with the types that"
            f" are known now: airflow-cdc retype {flow.name}.",
        )


def unknown_types(flow: CdcFlow, names: Sequence[str], types: Mapping[str, str], doubts: Mapping[str, Suspicion]) -> TypesUnknownError:
    """Return the error about columns that look encoded, with the settings to paste.

    :param names: all columns of the events, in the source's order.
    :param types: by column, the known or inferred type.
    """
    evidence = "\n".join(f"  {name}: {doubt.evidence}" for name, doubt in doubts.items())
    declared = {name: column.to_setting() for name, column in flow.declared.items()}
    lines = [f"    {json.dumps(name)}: {_setting(declared.get(name) or types.get(name))}" for name in names if name not in doubts]
    asked = [f"    {json.dumps(name)}: {doubt.setting}" for name, doubt in doubts.items()]
    snippet = "\n".join(["flows:", f"- topic: {json.dumps(flow.topic)}", "  columns:", *asked, *lines])
    return TypesUnknownError(
        f"Flow {flow.name}: the events carry no schema, and nothing else declares the types of these columns:\n{evidence}\n",
        next_step="Nothing was made, and nothing is lost. Take the types from the source (airflow-cdc schema pull), hand over a schema"
        " (airflow-cdc schema import), or declare the columns in the flows file (--flows), with what stands where a question mark is; a"
        " column whose text is what it looks like is declared as that, such as STRING or BIGINT. on_unknown_types: text or guess"
        f" goes on without.\n{snippet}\n",
        columns=sorted(doubts),
    )


def _setting(value: Any) -> str:
    return "STRING  # of which no value was seen" if value is None else json.dumps(value) if not isinstance(value, str) else value
