"""Reasons for which a microbatch goes to Spark, found before it is read."""

from __future__ import annotations

import re
from collections.abc import Iterator

from airflow_cdc.model.archive.archived_files import FileFormat
from airflow_cdc.model.archive.survey import RecordLayout
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.operation import Operation
from airflow_cdc.pipeline.decode.absent_columns import sometimes_absent
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.foreign_shapes import NONE_FOREIGN
from airflow_cdc.pipeline.decode.source_columns import is_schema, is_single
from airflow_cdc.pipeline.evidence.find_snapshot import may_replace
from airflow_cdc.pipeline.microbatch.count_events import Surveyed, count_surveyed
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.target_table import TargetTable

MOST_TEXT_BYTES = 256 * 1024**2
"""Text of a microbatch that one process decodes and folds."""
MOST_TABLE_BYTES = 128 * 1024**2
"""Size of a table that delta-rs, which copies whole files, merges into."""
_KEY_TYPES = re.compile(r"TINYINT|SMALLINT|INT|BIGINT|STRING|DATE|DECIMAL\(.*\)")
"""Types whose equal values have one form."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_ROWS = tuple(operation.value for operation in (Operation.CREATE, Operation.UPDATE, Operation.DELETE))


class HandedOver(Exception):  # noqa: N818 - not an error: Spark takes the microbatch.
    """The native engine does not take the microbatch; the message is the reason."""


def why_not_read(run: MicrobatchRun, target: TargetTable | None) -> str | None:
    """Return why a microbatch is not for the native engine, from its plan alone; None where nothing is against it."""
    return next(_against_plan(run, target), None)


def _against_plan(run: MicrobatchRun, target: TargetTable | None) -> Iterator[str]:
    microbatch, checkpoint = run.microbatch, run.checkpoint
    if target is None:
        yield "the table is to be created"
        return
    if run.flow.mode is not TableMode.CURRENT or target.mode is not TableMode.CURRENT:
        yield "the table does not keep current rows by key"
    if run.is_dry or run.is_retry or microbatch.is_again or microbatch.decides:
        yield "the microbatch is not read for the first time"
    if microbatch.parts or microbatch.lives or run.epochs.newest or (run.new_lanes and checkpoint.reach.partitions):
        yield "the files are divided, or the topic or the log began again"
    if checkpoint.truncated_through or checkpoint.unpaired_moves or checkpoint.replaced_by:
        yield "truncates, snapshots or moved rows of earlier microbatches still count"
    if any(may_replace(each, run.flow.on_snapshot) for each in checkpoint.known_snapshots.values()):
        yield "a snapshot awaits its proof"
    if not run.may_read_log or "://" in microbatch.archive or "://" in run.table.removeprefix("file://"):
        yield "the archive or the lake is not on a local file system"
    if microbatch.text_size > MOST_TEXT_BYTES or target.size > MOST_TABLE_BYTES:
        yield "the microbatch or the table is large"
    if any(file.format is not FileFormat.LINES or file.respelled or file.keys_path for file in microbatch.files):
        yield "the files are not JSON lines of whole records"
    if run.flow.document_columns or target.renamed:
        yield "columns are renamed, or taken out of documents"


def why_not_decoded(decoder: Decoder, target: TargetTable) -> str | None:
    """Return why a microbatch's events are not for the native engine; None where nothing is against it."""
    return next(_against_events(decoder, target, count_surveyed(decoder.shapes)), None)


def _against_events(decoder: Decoder, target: TargetTable, surveyed: Surveyed) -> Iterator[str]:
    columns, shapes = decoder.columns, decoder.shapes
    rows = [shape for shape in shapes if shape.kind in _ROWS]
    if decoder.dialect.native is None or not decoder.dialect.commit_identifies_transaction or decoder.value_shape.splits_key_changes:
        yield f"events of {decoder.dialect.title}"
    if surveyed.reads or surveyed.truncates or surveyed.broken or surveyed.rows == 0:
        yield "snapshot reads, truncates or broken lines"
    if any(shape.layout is not RecordLayout.RECORD or shape.partition is None for shape in shapes):
        yield "the files are not JSON lines of whole records"
    if len({is_schema(shape.value_shape) for shape in rows if shape.value_shape}) != 1:
        yield "values with and without schemas"
    keys = {shape.key_shape for shape in rows}
    if len(keys) != 1 or None in keys or any(is_single(shape.key_shape) for shape in rows):
        yield "keys of several shapes, or none"
    if decoder.foreign is not NONE_FOREIGN and decoder.foreign.condition() is not None:
        yield "records of a foreign shape"
    if columns.untyped or columns.altered or columns.formerly or columns.key_is_single or columns.clears_absent:
        yield "columns whose type or name changes"
    if sometimes_absent(columns, shapes) or set(columns.types) != set(target.columns):
        yield "columns that are missing in some events"
    if odd := [name for name in (*columns.types, *columns.keys) if not _PLAIN_NAME.fullmatch(name)]:
        yield f"column {odd[0]} has an unusual name"
    for name, rule in columns.types.items():
        if rule.native is None or target.columns.get(name) != rule.sql_type:
            yield f"column {name} is {rule.sql_type} of a kind that only Spark reads"
    if any(not _KEY_TYPES.fullmatch(columns.types[key].sql_type) for key in columns.keys if key in columns.types):
        yield "a key of a type that has equal values of different forms"
