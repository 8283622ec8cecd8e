"""Settle how a microbatch is decoded: its connector, its columns and its keys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.archive.survey import RecordLayout, TopicShape
from airflow_cdc.model.columns import RAW, RAW_KEY
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.connectors.registry import ANY, CONNECTORS, connector_of
from airflow_cdc.model.errors import ConfigurationError, KeysUnknownError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import DEFAULT_ENGINE, Engine
from airflow_cdc.model.flow.policies import OnDroppedColumn
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.operation import ROW_OPERATIONS, Operation
from airflow_cdc.model.position.epochs import FIRST_EPOCH, Epochs
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.envelope import no_utf8
from airflow_cdc.pipeline.decode.foreign_shapes import NONE_FOREIGN, Foreign, are_few, find_foreign
from airflow_cdc.pipeline.decode.key_guard import Updates
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.decode.types.connect_types import STRING, ColumnType
from airflow_cdc.pipeline.decode.value_shapes import shape_of
from airflow_cdc.pipeline.locate.file_parts import read_microbatch
from airflow_cdc.pipeline.settle.find_renames import find_renames
from airflow_cdc.pipeline.settle.images import Images, ImagesInSpark
from airflow_cdc.pipeline.settle.images_natively import NativeImages, may_look_natively
from airflow_cdc.pipeline.settle.settle_columns import Source, settle_columns
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.survey.source_facts import SourceFacts
from airflow_cdc.pipeline.target.target_table import TargetTable

_OF_CURRENT_ROWS = (TableMode.CURRENT, TableMode.FLAGGED)
_EVENT_KINDS = {operation.value for operation in (*ROW_OPERATIONS, Operation.TRUNCATE)}


def plan_decoding(
    spark: SparkSession,
    flow: CdcFlow,
    microbatch: Microbatch,
    target: TargetTable | None,
    facts: SourceFacts,
    *,
    epochs: Epochs = FIRST_EPOCH,
) -> Decoder:
    """Return the decoder of a microbatch.

    :param target: the target table, None where it does not exist yet.
    :param facts: facts about the topic's table from outside the events.
    :param epochs: where epochs of the source's log begin.
    :raises UnsupportedConnectorError: for a connector that is not known.
    :raises ConfigurationError: when the flow takes columns out of documents, and the topic has none; or when ``scd_columns`` chooses a
        name that a source column has.
    :raises KeysUnknownError: when nothing identifies a row, or the key differs from the one that the table was created with.
    :raises SchemaChangeError: when the columns cannot be settled.
    """
    events = [shape for shape in microbatch.shapes if shape.kind in _EVENT_KINDS]
    rows = [shape for shape in events if shape.kind != Operation.TRUNCATE.value]
    dialect = connector_of({shape.connector for shape in events if shape.connector}, flow.name) if events else ANY
    if events and flow.document_columns and not dialect.documents:
        raise ConfigurationError(
            f"Flow {flow.name}: document_columns takes columns out of documents, and the topic's events are those of tables.",
            next_step="Take document_columns out of the flow's settings; 'columns' declares the types of a table's columns.",
        )
    without_key = is_without_key(flow, microbatch, target)
    foreign = NONE_FOREIGN if dialect.values.columns else _foreign(flow, microbatch, target)
    if not rows:
        columns = SourceColumns({}, target.keys if target else ())
    elif dialect.values.columns:
        columns = _fixed_columns(flow, dialect.values.columns)
    else:
        ours = [shape for shape in rows if not foreign.holds(shape)]
        renames = find_renames(flow, dialect, ours, target, facts.changes, without_key=without_key)
        source = Source(flow, ours, target, facts, renames, without_key=without_key)
        columns = _with_dropped(settle_columns(source, partial(_images, spark, source, microbatch, dialect)), source)
    flow.scd_columns.refuse_columns((*columns.types, *columns.untyped, *columns.keys), flow.name)
    if target and rows and columns.keys != target.keys:
        raise KeysUnknownError(
            f"Flow {flow.name}: the rows are identified by {list(columns.keys)}, but table {target.uri} was made with {list(target.keys)}.",
            next_step="Rebuild the table under the new key, or set the flow's keys back.",
        )
    keeps_deleted = flow.mode is TableMode.FLAGGED
    return Decoder(
        flow.topic,
        microbatch.files,
        microbatch.shapes,
        columns,
        dialect,
        keeps_deleted=keeps_deleted,
        foreign=foreign,
        lives=microbatch.lives,
        epochs=epochs,
        images_are_whole=flow.images_are_whole,
        files_are_in_order=flow.files_are_in_order,
        without_key=without_key,
    )


def _with_dropped(columns: SourceColumns, source: Source) -> SourceColumns:
    """Return the columns, plus those of a table of current rows that are in no event's schema: each event leaves them out, or they are NULL
    where an event lacks them, as the flow says.
    """
    if source.flow.mode not in _OF_CURRENT_ROWS or source.without_key:
        return columns
    clears = source.flow.on_dropped_column is OnDroppedColumn.CLEAR
    known = {name.lower() for name in (*columns.types, *columns.untyped, *columns.keys)}
    held = source.table.columns if source.table else {}
    dropped = {name: _absent(kind) for name, kind in held.items() if name.lower() not in known}
    types = {**columns.types, **dropped}
    return replace(columns, types=types, clears_absent=clears, dropped=() if clears else tuple(dropped))


def _absent(sql_type: str) -> ColumnType:
    return ColumnType(sql_type, lambda _text: f"CAST(NULL AS {sql_type})", checked=False)


def _foreign(flow: CdcFlow, microbatch: Microbatch, target: TargetTable | None) -> Foreign:
    keys = flow.keys or (target.keys if target else None) or None
    return find_foreign(_rows(microbatch), columns=target.columns if target else (), keys=keys)


def _rows(microbatch: Microbatch) -> list[TopicShape]:
    return [shape for shape in microbatch.shapes if shape.kind in {operation.value for operation in ROW_OPERATIONS}]


def is_without_key(flow: CdcFlow, microbatch: Microbatch, target: TargetTable | None) -> bool:
    """Return whether the flow's table has no key, so that only its content identifies a row.

    Only whole records prove that: their keys are null. An archive of values may have lost the keys.

    :raises KeysUnknownError: when the flow's settings need a key.
    """
    if target and target.mode is TableMode.MULTISET and flow.keys:
        raise KeysUnknownError(
            f"Flow {flow.name}: table {target.uri} was made without a key, and the flow's are {list(flow.keys)}.",
            next_step="Take the flow's keys back, or rebuild the table with them.",
        )
    if target or flow.keys:
        return target is not None and target.mode is TableMode.MULTISET
    foreign = _foreign(flow, microbatch, target)
    rows = [shape for shape in _rows(microbatch) if not foreign.holds(shape)]
    # A record that lost its offset proves nothing.
    if not rows or not are_few([shape for shape in rows if not _shows_no_key(shape)], rows):
        return False
    if flow.mode is not TableMode.CURRENT:
        raise KeysUnknownError(
            f"Flow {flow.name}: the records' keys are null, as those of a table without a key are, and a table that keeps history"
            f" ({flow.mode.value}) needs one.",
            next_step="Give the flow its keys in a flows file, or leave out stored_as_scd_type, on_delete and write_disposition.",
        )
    return True


def _shows_no_key(shape: TopicShape) -> bool:
    is_record = shape.layout is RecordLayout.RECORD and shape.first_offset is not None
    entry = CONNECTORS.get(shape.connector or "")
    return is_record and shape.key_shape is None and (entry is None or entry.values.null_key_means_no_key)


def look_at_updates(spark: SparkSession, decoder: Decoder, microbatch: Microbatch) -> Decoder:
    """Return the decoder with what the microbatch's updates show, if the flow's keys ask for it. Then runs a job."""
    if not decoder.splits_key_changes or not any(shape.kind in ("u", "d") for shape in decoder.shapes):
        return decoder
    return with_updates(decoder, decoder.look_at_updates(read_microbatch(spark, microbatch)))


def with_updates(decoder: Decoder, updates: Updates) -> Decoder:
    """Count an update that changes the key as the two events it becomes: the survey did not know the key columns."""
    split = [shape for shape in decoder.shapes if shape.kind == Operation.UPDATE.value][:1]
    deletes = [replace(shape, kind=Operation.DELETE.value, records=updates.changes) for shape in split if updates.changes]
    return replace(decoder, shapes=(*decoder.shapes, *deletes), updates=updates)


def _fixed_columns(flow: CdcFlow, columns: Sequence[str]) -> SourceColumns:
    """Return the columns of a table of documents; they are the same for all such tables.

    :param columns: their names; the first is the key.

    :raises KeysUnknownError: when the flow declares other keys.
    """
    key = columns[0]
    if flow.keys not in ((), (key,)):
        raise KeysUnknownError(
            f"Flow {flow.name}: a document is identified by {key}, the flow's settings declare {list(flow.keys)}.",
            next_step="Leave the flow's keys out.",
        )
    return SourceColumns(dict.fromkeys(columns, STRING), (key,))


def _images(spark: SparkSession, source: Source, microbatch: Microbatch, connector: Connector, columns: Sequence[str]) -> Images:
    """Return the topic's row images and keys that carry no schema."""
    members = [*shape_of(connector).images, *(["before"] if source.without_key else [])]
    in_spark = ImagesInSpark(partial(_images_in_spark, spark, source.flow.topic, microbatch, members), source.renames)
    is_spark_s = (source.flow.engine or DEFAULT_ENGINE) is Engine.SPARK or source.renames
    if is_spark_s or not may_look_natively(microbatch):
        return in_spark
    return NativeImages(microbatch, source.flow.topic, members, columns, in_spark)


def _images_in_spark(spark: SparkSession, flow: str, microbatch: Microbatch, members: Sequence[str]) -> DataFrame:
    """Return images and keys, in one column ``image`` (VARIANT): as a text, a number with a point would have 17 digits."""
    lines = read_microbatch(spark, microbatch)
    topic = f"coalesce(get_json_object({RAW}, '$.topic'), {sql.text(flow)}) = {sql.text(flow)}"
    images = ", ".join(f"{sql.name(member)} VARIANT" for member in members)
    read = lines.filter(f"{topic} AND NOT ({no_utf8(RAW_KEY)})").selectExpr(
        RAW_KEY, f"from_json({RAW}, {sql.text(f'value STRUCT<{images}>, {images}, key VARIANT')}) AS line"
    )
    paths = [f"line.{path}{sql.name(member)}" for member in members for path in ("value.", "")]
    # A key may be a text that holds JSON.
    key = "if(schema_of_variant(line.key) = 'STRING', try_parse_json(CAST(line.key AS STRING)), line.key)"
    return read.selectExpr(f"explode(array_compact(array({', '.join([*paths, key, f'try_parse_json({RAW_KEY})'])}))) AS image")
