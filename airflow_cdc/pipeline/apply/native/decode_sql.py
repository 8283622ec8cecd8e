"""The native engine's SQL (DuckDB) of a microbatch's events: lines to events, and to the images of some of them.

Each leaf of an image is read as JSON, whose text shows its type. A line that is not JSON, has a member twice, or a member of another kind
fails the whole statement; so does nothing that Spark would read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from airflow_cdc.model.columns import COMMITTED_AT, OFFSET, OP, PARTITION, POSITION, SNAPSHOT, TRANSACTION
from airflow_cdc.model.operation import ROW_OPERATIONS
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import LANES, Lives
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.model.position.reach import UNKNOWN_PARTITION
from airflow_cdc.pipeline.apply.native.left_out import HAS_BEFORE, LEFT_OUT, find_placeholders, is_odd_placeholder, names_left_out
from airflow_cdc.pipeline.apply.native.own_keys_sql import MOVES, misfits, of_leaves, of_staged
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.event_place import INITIAL
from airflow_cdc.pipeline.decode.mongodb import KEY_MEMBER
from airflow_cdc.pipeline.decode.schema_types import DEFINITION
from airflow_cdc.pipeline.decode.source_columns import IMAGES, is_schema
from airflow_cdc.pipeline.decode.types.connect_types import FIRST_DAY, LAST_DAY
from airflow_cdc.pipeline.decode.types.native_readings import definition_of, read_instant
from airflow_cdc.pipeline.decode.unavailable_values import may_be_unavailable
from airflow_cdc.pipeline.native.duckdb_sql import name, of_source, struct, text, texts
from airflow_cdc.pipeline.native.record_lines import IS_OF_LAYOUT, START, RecordLines

EVENTS = "cdc_events"
"""The table of events; the number of a row is the event's."""
_DEFINED = {
    "type": "VARCHAR",
    "name": "VARCHAR",
    "parameters": struct(dict.fromkeys(DEFINITION[2:], "VARCHAR")),
}
_FIELD = struct({"field": "VARCHAR", **_DEFINED, "items": struct(_DEFINED)})
_SCHEMA = struct({"fields": f"{struct({'field': 'VARCHAR', 'fields': f'{_FIELD}[]'})}[]"})
"""What of an event's schema shows how it spells the columns."""
_PARTS = (f"{of}.{part if part in _DEFINED else f'parameters.{name(part)}'}" for of in ("each", "each.items") for part in DEFINITION)
_DEFINITION = f"concat_ws('|', {', '.join(_PARTS)})"
"""As :func:`airflow_cdc.pipeline.decode.schema_types.definition_in_event`."""
NUMBER = "DECIMAL(38,0)"
"""Type of a position's parts."""


def decode(decoder: Decoder, lines: RecordLines) -> str:
    """Return the statement that makes :data:`EVENTS`: one row per record of the topic, with ``problem`` where the engine cannot read it."""
    columns, keys = list(decoder.columns.types), decoder.columns.keys
    key = "key.payload" if _has_wrapped_keys(decoder) else "key"
    leaf_of = _leaf_of_document if decoder.dialect.documents else _leaf
    leaves = {column: f"CAST({leaf_of(column, keys, key)} AS VARCHAR)" for column in columns}
    old, kept = of_leaves(decoder, of_key=key, are_values=lines.are_values), of_staged(decoder)
    read = _named({**{f"leaf {column}": leaf for column, leaf in leaves.items()}, **old})
    op, raised = (f"CASE WHEN {MOVES} THEN 'c' ELSE op END", f" + CAST({MOVES} AS INTEGER)") if old else ("op", "")
    native = decoder.dialect.native
    assert native is not None
    commit, change, serial, transaction = (
        part.replace("source.", "payload.source.") for part in (native.commit, native.change, native.serial, native.transaction)
    )
    values = {column: rule.native(name(f"leaf {column}")) for column, rule in decoder.columns.types.items() if rule.native}
    types = decoder.columns.sql_types
    ours = texts(decoder.dialect.names)
    nameless = f"NOT {IS_OF_LAYOUT} THEN 'a value without its key'" if lines.are_values else "topic IS NULL THEN 'a line names no topic'"
    place = START if lines.are_values else OFFSET
    lane = _lane(decoder.lives, dict(zip((file.path for file in lines.files), lines.uris, strict=True)))
    return f"""
CREATE OR REPLACE TEMP TABLE {EVENTS} AS
WITH lines AS (
  SELECT {lane} AS {PARTITION}, TRY_CAST("offset" AS BIGINT) AS {OFFSET}, topic, key, {START}, {IS_OF_LAYOUT},
    value IS NULL AS is_tombstone, {_payload(decoder)} AS payload{", value.schema AS schema" if decoder.columns.by_schema else ""}
  FROM ({lines.read(*_members(decoder))})
), leaves AS (
  SELECT *, payload.op AS op, {", ".join([read, *_definitions(decoder)])} FROM lines WHERE {_is_ours(decoder, lines)}
), staged AS (
  SELECT {", ".join(f"{value} AS {of_source(column)}" for column, value in values.items())},
    {", ".join(name(column) for column in (*(f"leaf {column}" for column in columns), *old) if column not in kept)}
    {_listed(_named(kept | find_placeholders(types)))},
    {op} AS {OP}, is_tombstone, topic, payload, {START}, {IS_OF_LAYOUT},
    {PARTITION}, {OFFSET},
    {{'commit': {_in_epoch(f"CAST({commit} AS {NUMBER})", decoder.epochs)},
      'change': CAST(CASE WHEN op = 'r' THEN -1 ELSE {change} END AS {NUMBER}),
      'serial': CAST(CASE WHEN op = 'r' THEN -1 ELSE {serial} END AS BIGINT){raised}}} AS {POSITION},
    {transaction} AS {TRANSACTION}, {_marker(decoder)} AS {SNAPSHOT},
    {read_instant(1_000, FIRST_DAY, LAST_DAY)("payload.source.ts_ms")} AS {COMMITTED_AT}
  FROM leaves
)
SELECT {", ".join(map(of_source, columns))}, {OP}, is_tombstone, {PARTITION}, {OFFSET}, {START}, {POSITION}, {TRANSACTION}, {SNAPSHOT},
  {COMMITTED_AT}, {names_left_out(types, keys, reads_are_whole=decoder.dialect.images.reads_are_whole)} AS {LEFT_OUT},
  payload.before IS NOT NULL AS {HAS_BEFORE}{_listed(", ".join(map(name, kept)))}, CASE WHEN {nameless}
    WHEN is_tombstone THEN NULL
    WHEN {OP} IS NULL OR {OP} NOT IN ({texts(each.value for each in ROW_OPERATIONS)}) THEN 'a record is no change of a row'
    WHEN payload.source.connector IS NULL OR payload.source.connector NOT IN ({ours}) THEN 'a record names another connector'
    WHEN {PARTITION} IS NULL OR {place} IS NULL THEN 'a record has no offset'
    WHEN {POSITION}.commit IS NULL OR {POSITION}.change IS NULL OR {POSITION}.serial IS NULL THEN 'a position of another form'
    WHEN payload.source.ts_ms IS NOT NULL AND {COMMITTED_AT} IS NULL THEN 'a commit time of another form'
    WHEN {OP} <> 'd' AND payload.after IS NULL THEN 'an event without a row'
    {_misfits(decoder)} {misfits(decoder)} END AS problem
FROM staged"""


def _named(values: Mapping[str, str]) -> str:
    return ", ".join(f"{value} AS {name(column)}" for column, value in values.items())


def _listed(columns: str) -> str:
    """Return more columns of a list."""
    return f", {columns}" if columns else ""


def read_images(decoder: Decoder, lines: RecordLines, chosen: str) -> str:
    """Return the query of events' images: ``event``, ``op``, ``before`` and ``after``.

    The images are VARCHAR[], with a text for each column without the keys, NULL where the event has none.

    :param chosen: a table with the numbers of events (``event``).
    """
    columns = decoder.hashed_columns
    image = struct(dict.fromkeys(columns or ["op"], "JSON"))
    read = lines.read(_in_payload(decoder, {"op": "VARCHAR", "before": image, "after": image}), _members(decoder)[1])
    images = {}
    for each in ("before", "after"):
        values = ", ".join(f"payload.{each}.{name(column)} ->> '$'" for column in columns)
        images[each] = (
            f"CASE WHEN payload.{each} IS NOT NULL THEN CAST([{values}] AS VARCHAR[]) END" if columns else "CAST(NULL AS VARCHAR[])"
        )
    return f"""
WITH lines AS (SELECT topic, {_payload(decoder)} AS payload FROM ({read})),
numbered AS (SELECT row_number() OVER () - 1 AS event, payload FROM lines WHERE {_is_ours(decoder, lines)})
SELECT event, payload.op AS op, {", ".join(f"{value} AS {each}" for each, value in images.items())}
FROM numbered SEMI JOIN {chosen} USING (event)"""


def find_transaction(decoder: Decoder, lines: RecordLines) -> str:
    """Return the query of one streamed event that names its transaction: one row, or none."""
    native = decoder.dialect.native
    assert native is not None
    value = {"op": "VARCHAR", "source": struct(dict.fromkeys(decoder.dialect.position.fields, "VARCHAR"))}
    named = native.transaction.replace("source.", "payload.source.")
    return f"""
WITH lines AS (SELECT topic, {_payload(decoder)} AS payload FROM ({lines.read(_in_payload(decoder, value), _members(decoder)[1])}))
SELECT 1 FROM lines WHERE {_is_ours(decoder, lines)}
  AND payload.op IN ({texts(each.value for each in ROW_OPERATIONS)}) AND payload.op <> 'r' AND {named} IS NOT NULL LIMIT 1"""


def _lane(lives: Lives, uris: Mapping[str, str]) -> str:
    """Return the SQL of a record's lane, as :func:`airflow_cdc.pipeline.decode.lanes.lane`, where no file holds two lives of a partition.

    :param uris: DuckDB's names of the files, by path.
    """
    partition = "TRY_CAST(partition AS INTEGER)"
    files: dict[tuple[int, int], list[str]] = {}
    for path, spans in lives.items():
        for span in spans:
            files.setdefault((span.life, span.partition), []).append(uris[path])
    cases = [
        f"WHEN {partition} = {number} AND filename IN ({texts(theirs)}) THEN {life}" for (life, number), theirs in files.items() if life
    ]
    return f"({partition} + {LANES} * CASE {' '.join(cases)} ELSE 0 END)" if cases else partition


def _in_epoch(commit: str, epochs: Epochs) -> str:
    """Return the SQL of a commit with its epoch, as :func:`airflow_cdc.pipeline.decode.lanes.in_epoch`.

    :param commit: SQL of the source's own commit, of type :data:`NUMBER`.
    """
    cases = [
        f"WHEN {PARTITION} = {int(lane)} AND coalesce({OFFSET}, {START}) >= {offset} THEN CAST({text(str(epoch * EPOCH))} AS {NUMBER})"
        for lane, places in epochs.begins.items()
        if lane != UNKNOWN_PARTITION
        for offset, epoch in sorted(places, reverse=True)
        if epoch
    ]
    return f"({commit} + CASE {' '.join(cases)} ELSE 0 END)" if cases else commit


def _is_ours(decoder: Decoder, lines: RecordLines) -> str:
    # In a file of values each line is the topic's.
    return "true" if lines.are_values else f"(topic IS NULL OR topic = {text(decoder.topic)})"


def _members(decoder: Decoder) -> tuple[dict[str, str], dict[str, str]]:
    """Return the members of a record's value and of its key that are read, with their types."""
    if decoder.dialect.documents:
        # Documents are texts.
        before, image, keys = "JSON", "JSON", {KEY_MEMBER: "JSON"}
    else:
        of_records = decoder.keys_of_records if decoder.has_own_keys else ()
        keys = dict.fromkeys((*decoder.columns.keys, *sorted(set(of_records).difference(decoder.columns.keys))), "JSON")
        image = struct(dict.fromkeys(decoder.columns.types, "JSON"))
        before = image if decoder.has_own_keys and decoder.guard.has_fillers else struct(dict.fromkeys(decoder.columns.keys, "JSON"))
    source = struct(dict.fromkeys(("connector", "ts_ms", "snapshot", *decoder.dialect.position.fields), "VARCHAR"))
    value = {"op": "VARCHAR", "before": before, "after": image, "source": source}
    members = _in_payload(decoder, value)
    if decoder.columns.by_schema:
        members["schema"] = _SCHEMA
    return members, {"payload": struct(keys)} if _has_wrapped_keys(decoder) else keys


def _definitions(decoder: Decoder) -> list[str]:
    """Return the columns that hold how an event's own schema defines a column, where the schemas of the microbatch differ in that."""
    # As in Spark: the first member that is an image.
    image = f"list_filter(schema.fields, lambda each: each.field IN ({texts(IMAGES)}))[1].fields"
    return [
        f"list_transform(list_filter({image}, lambda each: each.field = {text(column)}), lambda each: {_DEFINITION})[1]"
        f" AS {definition_of(column)}"
        for column in decoder.columns.by_schema
    ]


def _in_payload(decoder: Decoder, members: dict[str, str]) -> dict[str, str]:
    return {"payload": struct(members)} if _is_wrapped(decoder) else members


def _is_wrapped(decoder: Decoder) -> bool:
    return any(is_schema(shape.value_shape) for shape in decoder.shapes if shape.value_shape)


def _has_wrapped_keys(decoder: Decoder) -> bool:
    return any(is_schema(shape.key_shape) for shape in decoder.shapes if shape.key_shape)


def _payload(decoder: Decoder) -> str:
    return "value.payload" if _is_wrapped(decoder) else "value"


def _marker(decoder: Decoder) -> str:
    """Return the SQL of a read's marker, as :func:`airflow_cdc.pipeline.decode.event_place.snapshot_marker`."""
    rule, marker = decoder.dialect.snapshots, "payload.source.snapshot"
    if not rule.initial:
        return marker
    # The rule's SQL is plain enough for both engines.
    initial = rule.initial.replace("source.", "payload.source.")
    return f"CASE WHEN op = 'r' AND {marker} <> 'incremental' AND {initial} THEN concat({marker}, {text(INITIAL)}) ELSE {marker} END"


def _leaf(column: str, keys: Sequence[str], of_key: str) -> str:
    after, quoted = f"payload.after.{name(column)}", name(column)
    if column not in keys:
        return f"CASE WHEN payload.op <> 'd' THEN {after} END"
    in_key, before = f"{of_key}.{quoted}", f"payload.before.{quoted}"
    return f"CASE WHEN payload.op = 'd' THEN coalesce({in_key}, {before}) ELSE coalesce({after}, {in_key}) END"


def _leaf_of_document(column: str, keys: Sequence[str], of_key: str) -> str:
    return f"{of_key}.{name(KEY_MEMBER)}" if column in keys else "CASE WHEN payload.op <> 'd' THEN payload.after END"


def _misfits(decoder: Decoder) -> str:
    cases = []
    for column, rule in decoder.columns.types.items():
        leaf, value = name(f"leaf {column}"), of_source(column)
        if column in decoder.columns.keys:
            cases.append(f"WHEN {leaf} IS NULL THEN 'a record without key'")
        cases.append(f"WHEN {leaf} IS NOT NULL AND {value} IS NULL THEN {text(f'a value of column {column}')}")
        if may_be_unavailable(rule.sql_type):
            is_key = column in decoder.columns.keys
            cases.append(f"WHEN {is_odd_placeholder(column, is_key=is_key)} THEN 'an unavailable value of an unusual form'")
    return " ".join(cases)


def count_kinds(*, splits: bool) -> str:
    """Return the query of the number of records by operation; NULL: tombstones; and of a problem, if there is any.

    :param splits: whether some of them are key changes.
    """
    op = f"CASE WHEN {MOVES} THEN 'u' ELSE {OP} END" if splits else OP
    return f"SELECT CASE WHEN is_tombstone THEN 'tombstone' ELSE {op} END, count(*), min(problem) FROM {EVENTS} GROUP BY ALL"
