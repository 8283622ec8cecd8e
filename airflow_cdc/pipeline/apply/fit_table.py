"""Fit the target to a microbatch's columns: create it, add missing columns, widen narrow ones, refuse types that do not fit."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError, SchemaChangeError
from airflow_cdc.model.flow.column_origin import TypeReport
from airflow_cdc.model.flow.document_columns import definition_of, names_defined
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.places import delete_markers_uri, expired_markers_uri, moves_uri
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.types.column_types import holds, widened
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.append_once import read_appended
from airflow_cdc.pipeline.record.moves import names_of_moves
from airflow_cdc.pipeline.target.alter_table import add_columns, set_properties, widen_columns, with_deletion_vectors
from airflow_cdc.pipeline.target.correct_statistics import correct_statistics
from airflow_cdc.pipeline.target.create_table import NewTable, create_target, recorded_forms
from airflow_cdc.pipeline.target.document_columns import count_misfits, fill_document_columns
from airflow_cdc.pipeline.target.table_properties import DOCUMENT_COLUMNS_PROPERTY, EXACT_STATISTICS
from airflow_cdc.pipeline.target.target_table import TargetTable, columns_of

_WIDENED_MODES = (TableMode.CURRENT, TableMode.FLAGGED, TableMode.CHANGE_LOG)
"""The other modes also keep a log of all events, and identify rows by it."""


@dataclass(frozen=True)
class ColumnsChanged:
    """Changes to a target's columns."""

    added: tuple[str, ...] = ()
    widened: tuple[str, ...] = ()
    filled: tuple[str, ...] = ()
    """Document columns filled in all rows."""
    as_text: tuple[str, ...] = ()
    """Text in the table, another type in the events."""
    misfits: dict[str, int] = field(default_factory=dict)
    """By filled column: number of rows whose document has a value that does not fit."""
    types: Mapping[str, TypeReport] = field(default_factory=dict)
    """Type and origin of each column whose type the events do not carry themselves."""


@dataclass(frozen=True)
class Ways:
    """An engine's ways to make and alter a table."""

    create: Callable[[SparkSession, str, NewTable], TargetTable] = create_target
    with_deletion_vectors: Callable[[SparkSession, TargetTable], TargetTable] = with_deletion_vectors
    set_properties: Callable[[SparkSession, str, Mapping[str, str]], None] = set_properties


_BY_SPARK = Ways()


def fit_table(
    run: MicrobatchRun, decoder: Decoder, target: TargetTable | None, *, ways: Ways = _BY_SPARK
) -> tuple[TargetTable | None, ColumnsChanged]:
    """Create the target or fit its columns; None stays None while no column is known.

    :param ways: the engine's.
    :raises SchemaChangeError: see :func:`wider_columns`.
    """
    types = decoder.columns.sql_types
    if not types:
        return target, ColumnsChanged()
    types |= _document_types(run, target)
    wider = wider_columns(target, types, run.flow.name) if target else {}
    as_text = decoder.columns.as_text
    reports = decoder.columns.reports
    if run.is_dry:
        return target, ColumnsChanged(as_text=as_text, types=reports)
    if target is None:
        mode = TableMode.MULTISET if decoder.without_key else run.flow.mode
        new = NewTable(
            columns=types,
            keys=decoder.columns.keys,
            mode=mode,
            comments=decoder.columns.comments,
            document_columns=run.flow.document_columns,
            scd_columns=run.flow.scd_columns,
            forms=decoder.columns.forms,
        )
        target = ways.create(run.spark, run.table, new)
    if wider:
        # The markers first: after a crash in between, the table is still to be widened.
        _widen_markers(run, target.keys, wider)
        widen_columns(run.spark, target.uri, wider)
    target = ways.with_deletion_vectors(run.spark, target)
    if not target.exact_statistics and correct_statistics(target.uri) is not None:
        # Once: the table is of an earlier version.
        ways.set_properties(run.spark, target.uri, EXACT_STATISTICS)
    if not decoder.columns.forms.items() <= target.forms.items():
        # Before the first of such texts: of a new column, or in a table of an earlier version.
        target = replace(target, forms={**target.forms, **decoder.columns.forms})
        ways.set_properties(run.spark, target.uri, recorded_forms(target.forms))
    added = add_columns(run.spark, target, types, comments=decoder.columns.comments)
    filled = _fill_document_columns(run, target)
    run.after_effect("target")
    misfits = count_misfits(run.spark, target.uri, run.flow.document_columns, microbatch=None) if filled else {}
    changed = ColumnsChanged(added=added, widened=tuple(wider), filled=filled, as_text=as_text, misfits=misfits, types=reports)
    return replace(target, columns={**target.columns, **types, **wider}), changed


def _document_types(run: MicrobatchRun, target: TargetTable | None) -> dict[str, str]:
    """Return the types of the flow's document columns by name.

    :raises ConfigurationError: when the table spells a name in different case.
    """
    types = {name: column.sql_type for name, column in run.flow.document_columns.items()}
    spelled = {name.lower(): name for name in target.columns} if target else {}
    otherwise = {name: held for name in types if (held := spelled.get(name.lower(), name)) != name}
    if otherwise:
        raise ConfigurationError(
            f"Flow {run.flow.name}: document_columns spells columns otherwise than table {run.table} (setting: table): {otherwise}.",
            next_step="Spell them as the table does; case does not distinguish its columns.",
        )
    return types


def _fill_document_columns(run: MicrobatchRun, target: TargetTable) -> tuple[str, ...]:
    """Fill the document columns of existing rows, where the flow's definition differs from the table's.

    The definition is recorded last: after a crash before it, the columns are filled again.
    """
    defined = definition_of(run.flow.document_columns)
    if defined == target.document_columns:
        return ()
    with run.tending():
        fill_document_columns(run.spark, target.uri, run.flow.document_columns, known=target.document_columns)
    run.after_effect("fill")
    set_properties(run.spark, target.uri, {DOCUMENT_COLUMNS_PROPERTY: defined})
    return tuple(sorted({*run.flow.document_columns, *names_defined(target.document_columns)}))


def wider_columns(target: TargetTable, columns: Mapping[str, str], flow: str) -> dict[str, str]:
    """Return the wider types that the target's columns need to hold the events' values.

    :param columns: the events' types.
    :raises SchemaChangeError: when a column cannot hold the events' values: no type holds both, Delta cannot widen to that type, or the
        table's mode does not allow widening.
    """
    known = {name.lower(): (name, kind) for name, kind in target.columns.items()}
    narrow = {name: kind for name, kind in columns.items() if name.lower() in known and not holds(known[name.lower()][1], kind)}
    wider = {}
    for name, kind in narrow.items():
        spelled, held = known[name.lower()]
        new = widened(held, kind) if target.mode in _WIDENED_MODES else None
        if new is None:
            beside = "; ".join(f"{other}: {known[other.lower()][1]} | {columns[other]}" for other in narrow)
            raise SchemaChangeError(
                f"Flow {flow}: columns of table {target.uri} do not hold the events' values (column: table | events): {beside}.",
                next_step="Nothing of these events was merged, and none is lost. Declare under 'columns' in the flows file the type that"
                " the table has: the next run goes on with them, and sets aside what that type does not hold. Or declare one that holds"
                f" the values of both, such as {widened(held, kind) or 'STRING'}, and make the table anew: airflow-cdc retype {flow}.",
            )
        wider[spelled] = new
    return wider


def _widen_markers(run: MicrobatchRun, keys: Sequence[str], wider: Mapping[str, str]) -> None:
    """Widen the key columns of the delete markers and the moves, which hold each key twice, under names of our own."""
    names = {key: [key] for key in keys}
    for uri_of, columns in ((delete_markers_uri, names), (expired_markers_uri, names), (moves_uri, names_of_moves(keys))):
        kinds = {name: wider[key] for key, theirs in columns.items() if key in wider for name in theirs}
        if kinds and read_appended(run.spark, run.state(uri_of)) is not None:
            held = columns_of(run.spark, run.state(uri_of))
            widen_columns(run.spark, run.state(uri_of), {name: kind for name, kind in kinds.items() if held.get(name) != kind})
