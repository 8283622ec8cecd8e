"""Reasons for which a microbatch goes to Spark, found before it is read."""

from __future__ import annotations

import re
from collections.abc import Sequence

from airflow_cdc.model.archive.archived_files import FileFormat
from airflow_cdc.model.archive.survey import TopicShape, are_values
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.operation import ROW_OPERATIONS
from airflow_cdc.model.places import delete_markers_uri
from airflow_cdc.model.position.lives import needs_lines
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.reach import Reach
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.pipeline.decode.absent_columns import sometimes_absent
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.source_columns import is_schema, is_single
from airflow_cdc.pipeline.evidence.find_snapshot import is_awaited
from airflow_cdc.pipeline.microbatch.count_events import Staged, count_surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.native.fetched_files import is_fetched
from airflow_cdc.pipeline.native.record_lines import is_paired_natively
from airflow_cdc.pipeline.spark.storage import is_local
from airflow_cdc.pipeline.target.open_natively import why_not_reached
from airflow_cdc.pipeline.target.target_table import TargetTable

_KEY_TYPES = re.compile(r"TINYINT|SMALLINT|INT|BIGINT|STRING|DATE|DECIMAL\(.*\)")
"""Types whose equal values have one form."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
NATIVE_MODES = (TableMode.CURRENT, TableMode.FLAGGED, TableMode.CHANGE_LOG)
_ROWS = tuple(operation.value for operation in ROW_OPERATIONS)


class HandedOver(Exception):  # noqa: N818 - not an error: Spark takes the microbatch.
    """The native engine does not take the microbatch; the message is the reason."""


def why_not_read(run: MicrobatchRun, target: TargetTable | None) -> str | None:
    """Return why a microbatch is not decoded natively, from its plan alone; None where nothing is against it.

    :param target: None where the table is to be created.
    """
    microbatch, flow = run.microbatch, run.flow
    files = microbatch.files
    modes = {flow.mode, *([target.mode] if target else [])}
    against = {
        "the table keeps row versions, or rows without a key": modes not in [{mode} for mode in NATIVE_MODES],
        "the microbatch is a dry run, is read again, or carries a decision": run.is_dry or microbatch.is_again or microbatch.decides,
        "files are divided": microbatch.parts,
        "the topic began again inside of a file": needs_lines(microbatch.lives),
        "the archive is on a store that only Spark reads": not is_fetched(microbatch.archive),
        "the lake is on a store that only Spark writes": not is_fetched(run.lake),
        "the files are not JSON lines": any(file.format is not FileFormat.LINES for file in files),
        "some files have companions, and others have none": len({not file.keys_path for file in files}) > 1,
        "a companion is a file that only Spark reads": not all(map(is_paired_natively, files)),
        "records are respelled": any(file.respelled for file in files),
        "columns are renamed, or taken out of documents": flow.document_columns or (target and target.renamed),
    }
    return next((reason for reason, is_so in against.items() if is_so), None)


def why_not_merged(run: MicrobatchRun) -> str | None:
    """Return why a microbatch that is decoded natively is merged by Spark, from its plan alone; None where nothing is against it."""
    checkpoint = run.checkpoint
    unreached = why_not_reached(run.table) or why_not_reached(run.state(delete_markers_uri))
    against = {
        "a snapshot that is not complete yet may void events": _awaits_snapshot(run),
        "an earlier microbatch awaits the delete of a moved row": checkpoint.unpaired_moves,
        "the table is on another store than the lake": not (run.may_read_log or is_local(run.table)),
        f"{unreached}": unreached,
    }
    return next((reason for reason, is_so in against.items() if is_so), None)


def voids_events(run: MicrobatchRun, staged: Staged | None = None) -> bool:
    """Return whether a truncate or a snapshot of an earlier microbatch may void events of this one.

    :param staged: counts of its streamed events, which have no reads among them; None where they are not known.
    """
    checkpoint = run.checkpoint
    shield = checkpoint.replaced_by
    cuts = [*checkpoint.truncated_through.values(), *([shield.cut or shield.position] if shield else [])]
    return _awaits_snapshot(run) or (bool(cuts) and (staged is None or not _is_behind(staged.reach, max(cuts), shield)))


def _awaits_snapshot(run: MicrobatchRun) -> bool:
    return any(is_awaited(each, run.flow) for each in run.checkpoint.known_snapshots.values())


def _is_behind(reach: Reach, cut: Position, shield: Snapshot | None) -> bool:
    """Return whether no streamed event stands before a cut, or before a snapshot that replaced rows
    (:func:`airflow_cdc.pipeline.decode.stands_before.stands_before`).
    """
    begins = shield.begins if shield else {}
    in_order = all(begins.get(lane, offset) <= offset for lane, offset in reach.offset_from.items())
    return in_order and all(first > cut for first in reach.streamed_from.values())


def why_not_surveyed(shapes: Sequence[TopicShape], dialect: Connector) -> str | None:
    """Return why a microbatch's events are not for the native engine, from their survey alone; None where nothing is against it."""
    surveyed = count_surveyed(shapes)
    rows = [shape for shape in shapes if shape.kind in _ROWS]
    keys = {shape.key_shape for shape in rows}
    against = {
        f"events of {dialect.title}": dialect.native is None or not dialect.commit_identifies_transaction,
        "truncates or broken lines": surveyed.truncates or surveyed.broken or not surveyed.rows,
        "whole records and values in one microbatch": len({shape.layout for shape in shapes}) > 1,
        "values with and without schemas": len({is_schema(shape.value_shape) for shape in rows if shape.value_shape}) != 1,
        "keys of several shapes, or single values": len(keys) != 1 or any(key and is_single(key) for key in keys),
    }
    return next((reason for reason, is_so in against.items() if is_so), None)


def why_not_decoded(decoder: Decoder, target: TargetTable | None) -> str | None:
    """Return why a microbatch's events are not for the native engine; None where nothing is against it."""
    if reason := why_not_surveyed(decoder.shapes, decoder.dialect):
        return reason
    columns, shapes = decoder.columns, decoder.shapes
    held = set(target.columns if target else columns.types)
    changing = columns.untyped or columns.formerly or columns.clears_absent or columns.as_text
    nameless = any(file.partition is None or file.start_offset is None for file in decoder.files)
    against = {
        "files of values whose names give no partition and offset": are_values(shapes) and nameless,
        "columns of the key that are not known": not columns.keys,
        "documents, in a table that flags deletes": decoder.dialect.documents and decoder.keeps_deleted,
        "records of a foreign shape": decoder.foreign.condition() is not None,
        "columns whose type or name changes": changing or columns.key_is_single,
        "columns that are missing in some events": sometimes_absent(columns, shapes) or set(columns.types) != held,
    }
    return next((reason for reason, is_so in against.items() if is_so), None) or _why_not_typed(decoder, target)


def _why_not_typed(decoder: Decoder, target: TargetTable | None) -> str | None:
    types = decoder.columns.types
    held = target.columns if target else decoder.columns.sql_types
    if len({name.lower() for name in types}) < len(types):
        return "names of columns that differ in case alone"
    for name, rule in types.items():
        if not _PLAIN_NAME.fullmatch(name):
            return f"column {name} has an unusual name"
        if rule.native is None or held.get(name) != rule.sql_type:
            return f"column {name} is {rule.sql_type} of a kind that only Spark reads"
    if any(key not in types or not _KEY_TYPES.fullmatch(types[key].sql_type) for key in decoder.columns.keys):
        return "a key of a type that has equal values of different forms"
    return None
