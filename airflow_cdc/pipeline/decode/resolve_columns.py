"""Resolve the columns of a microbatch: of the origins of a type, the first that knows a column decides.

In order of precedence: the flow's declaration; the schema inside the events; types known beside the events (other events' schemas, a
provided one, the schema-change topic); the target table; the JSON values. The table comes late because a type alone does not define how a
value is encoded. :func:`~airflow_cdc.pipeline.settle.schema_topic_columns.schema_topic_columns` leaves to the table each of its columns
that was not made by the schema-change topic.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from airflow_cdc.model.archive.survey import TopicShape
from airflow_cdc.model.columns import is_reserved
from airflow_cdc.model.errors import SchemaChangeError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.decode.schema_types import FormOf, bare_names, follow_events, schema_types
from airflow_cdc.pipeline.decode.source_columns import SourceColumns, column_names, key_columns
from airflow_cdc.pipeline.decode.types.column_types import holds
from airflow_cdc.pipeline.decode.types.connect_types import ColumnType, cast_to, column_type, read_as
from airflow_cdc.pipeline.decode.types.exact_keys import exact_key
from airflow_cdc.pipeline.decode.types.text_forms import TextForm


def _refuse_names_that_differ_in_case(names: Sequence[str], flow: CdcFlow) -> None:
    spelled: dict[str, list[str]] = {}
    for name in names:
        spelled.setdefault(name.lower(), []).append(name)
    alike = [found for found in spelled.values() if len(found) > 1]
    if alike:
        raise SchemaChangeError(
            f"Flow {flow.name}: the events of the microbatch have columns that differ only in case, which a Delta table cannot: {alike}.",
            next_step="If the source renamed the column, set the flow's max_microbatch_bytes to 1: each file is a microbatch then, and the"
            " table keeps its column (divide a file that holds both). If rows have both, rename one in the connector (a ReplaceField"
            " transform), move the topic's archived files away, and take a new snapshot.",
        )


def resolve_columns(
    *,
    flow: CdcFlow,
    shapes: Sequence[TopicShape],
    table: Mapping[str, str],
    inferred: Mapping[str, str],
    known: Mapping[str, ColumnType] | None = None,
    without_key: bool = False,
    form_of: FormOf = follow_events,
) -> SourceColumns:
    """Resolve the columns of a microbatch.

    :param table: the target table's types by column; empty if the table does not exist.
    :param inferred: types by column, inferred from the JSON values.
    :param known: types by column that are known beside the events: from other events' schemas, a provided one, or the schema-change topic.
    :param without_key: whether no column identifies a row, and so all do.
    :param form_of: returns the form of a column's texts; asked of the columns that identify a row.
    :raises KeysUnknownError: see :func:`key_columns`.
    :raises SchemaChangeError: if a column's name is reserved, two differ only in case, or a column's types have no common type.
    """
    connector = next((shape.connector for shape in shapes if shape.connector), "")
    encoded = {name: column_type(field, connector) for name, each in flow.declared.items() if (field := each.connect_field(name))}
    plain = {name: read_as(each.sql_type, encoded.get(name)) for name, each in flow.declared.items()}
    of_bare = {name: {**(known or {}), **plain}.get(name) for name in bare_names(shapes)}
    keys = () if without_key else key_columns(shapes, flow)

    def form_if_identity(name: str, rules: Iterable[ColumnType]) -> TextForm | None:
        return form_of(name, rules) if without_key or name in keys else None

    from_schema = schema_types(shapes, flow, of_bare=of_bare, form_of=form_if_identity)
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
        if name in from_schema:
            types[name] = from_schema[name]
        elif name in flow.declared:
            types[name] = plain[name]
        elif known and name in known:
            types[name] = known[name]
        elif name in table or name in inferred:
            types[name] = cast_to(table.get(name) or inferred[name])
        else:
            untyped.append(name)
    as_text = {name: spelled for name, rule in types.items() if table.get(name) == "STRING" and (spelled := _as_text(rule))}
    by_schema = {*from_schema, *(known or ())}
    not_own = [name for name in keys if name in types and (name not in by_schema or name in flow.declared)]
    types |= {name: exact_key(types[name], is_declared=name in by_schema) for name in not_own}
    types |= as_text
    texts = [name for name, rule in types.items() if rule.sql_type == "STRING" and (without_key or name in keys)]
    types |= {name: types[name].in_form(form_of(name, [types[name]])) for name in texts}
    forms = {name: types[name].form for name in texts if not types[name].form.is_plain}
    return SourceColumns(types, keys, tuple(untyped), as_text=tuple(as_text), forms=forms)


def _as_text(rule: ColumnType) -> ColumnType | None:
    """Return the rule that reads a value as its text; None for texts, and for types without an unambiguous text."""
    # The merge would compare a numeric key with texts as numbers: '07' would equal 7.
    return read_as("STRING", rule) if rule.sql_type != "STRING" and holds("STRING", rule.sql_type) else None
