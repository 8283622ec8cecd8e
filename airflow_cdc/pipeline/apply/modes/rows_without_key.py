"""Apply one microbatch to a table of rows as they are: by key, or, where the table has none, by what the rows hold.

    without a key:   quarantine, make or widen the target, append the events to the flow's row log, MERGE the copies of the rows
                     that they touch

The order of effects, and why a crash after any of them is harmless, is that of a table that keeps versions (``apply_history``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import CONTENT, MICROBATCH
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.places import events_uri
from airflow_cdc.model.report import BatchReport
from airflow_cdc.model.snapshot import Snapshot
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.apply.apply_once import apply_once, report_of_commit
from airflow_cdc.pipeline.apply.fit_table import fit_table, wider_columns
from airflow_cdc.pipeline.apply.known_snapshots import may_be_base, with_unconfirmed_rows
from airflow_cdc.pipeline.apply.modes.by_key import apply_by_key, may_be_late
from airflow_cdc.pipeline.apply.modes.versions import known_events, stage_events, watch_snapshots
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.find_base import find_bases
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.physical_tables import PhysicalTables
from airflow_cdc.pipeline.plan_decoding import is_without_key, plan_decoding
from airflow_cdc.pipeline.reconcile.count_copies import contents_of, count_copies, count_unconfirmed
from airflow_cdc.pipeline.record.event_log import append_to_log
from airflow_cdc.pipeline.record.row_log import IDENTITY, logged_rows, with_contents, without_known_rows
from airflow_cdc.pipeline.target.merge_copies import copy_changes, count_missing, merge_copies
from airflow_cdc.pipeline.target.target_table import TargetTable, columns_of


def apply_rows(run: MicrobatchRun) -> BatchReport:
    """Apply a microbatch and return what it did; doing it twice does it once.

    :raises CdcError: terminal or transient by type; nothing is lost, the intent stands.
    """
    return apply_once(run, _apply)


def _apply(run: MicrobatchRun, target: TargetTable | None) -> BatchReport:
    if not is_without_key(run.flow, run.microbatch, target):
        return apply_by_key(run, target)
    if run.is_dry:
        raise ConfigurationError(
            f"Flow {run.flow.name}: its table has no key; a row that is right and one that is missing cannot be told apart by an event.",
            next_step="Rebuild the flow in a lake of its own (`airflow-cdc rebuild`) and compare.",
        )
    decoder = plan_decoding(run.spark, run.flow, run.microbatch, target, run.facts, epochs=run.epochs)
    types = _types(run, decoder, target)
    events = with_contents(decoder.events(run.lines()), decoder, types)
    # Equal rows are counted together: which table one is of nothing would say.
    tables = PhysicalTables(run.flow, (), run.tables)
    told = stage_events(run, decoder, events, tables, keeps_truncates=True, keys=(IDENTITY,))
    snapshots, epochs = watch_snapshots(run, decoder, told, tables)
    if epochs:
        return _apply(replace(run, found_epochs=epochs), target)
    rejects, told = told.quarantine(run, decoder)
    log = known_events(
        run,
        target,
        lost="has no key, and the events by which its rows were counted are gone",
        next_step="Restore that folder, or rebuild the flow.",
    )
    late = may_be_late(run, target, told.staged)
    fresh, stale = told.events, 0
    if late and log is not None:
        known = log.filter(F.col(MICROBATCH) != run.microbatch.number)
        new = without_known_rows(told.events, known, archived_before=False).count()
        stale = told.staged.events - told.staged.redelivered - new
        fresh = without_known_rows(told.events, known, archived_before=True)
    # Rows of nothing but NULLs make no table: they may be logged already.
    is_empty = target is None or not target.size
    target, changed = fit_table(run, decoder, target)
    report = replace(told.report(run, rejects, stale=stale, changed=changed), snapshot=snapshots.newest)
    rows = logged_rows(fresh, decoder, types, run.microbatch.number)
    if late:
        rows = run.write_down(rows, "logged")
    if rows.isEmpty() if late else not report.events.merged:
        return replace(report, merge_plan="nothing to merge")
    append_to_log(run.spark, run.state(events_uri), rows, application=run.application, microbatch=run.microbatch.number)
    run.after_effect("log")
    if target is None:
        return replace(report, merge_plan="nothing to merge")
    target = replace(target, columns=columns_of(run.spark, target.uri))
    return _merge(run, target, rows, report, everything=is_empty, ended=snapshots.ended, may_replace=may_be_base(run, decoder))


def _types(run: MicrobatchRun, decoder: Decoder, target: TargetTable | None) -> dict[str, str]:
    """Return the Spark SQL types of the microbatch's columns, as the target has them or will have."""
    types = {name: rule.sql_type for name, rule in decoder.columns.types.items()}
    held: Mapping[str, str] = {}
    if target:
        wider_columns(target, types, run.flow.name)
        held = {name.lower(): kind for name, kind in target.columns.items()}
    return {name: held.get(name.lower(), kind) for name, kind in types.items()}


def _merge(
    run: MicrobatchRun,
    target: TargetTable,
    rows: DataFrame,
    report: BatchReport,
    *,
    everything: bool,
    ended: Snapshot | None,
    may_replace: Callable[[bool], bool],
) -> BatchReport:
    """Count the touched rows anew, all of them where another snapshot or truncate decides from where on events count.

    :param ended: the snapshot whose last read is in the microbatch, unless it is the flow's first.
    """
    log = run.spark.read.format("delta").load(run.state(events_uri))
    floor = max(run.checkpoint.truncated_through.values(), default=None)
    base_before, base = find_bases(log, run.microbatch.number, floor, may_replace)
    if ended:
        _, newest = find_bases(log, run.microbatch.number, floor, lambda _is_initial: True)
        report = with_unconfirmed_rows(report, ended, count_unconfirmed(log, base, newest)) if newest != base else report
    everything = everything or base != base_before
    touched = None if everything else contents_of(rows)
    counted = run.write_down(count_copies(log, base, touched), "counted")
    held = run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}")
    held = held if touched is None else held.join(F.broadcast(touched), CONTENT, "left_semi")
    changes = run.write_down(copy_changes(target, held, counted, log), "changes")
    plan = "copies of all rows: another snapshot or truncate" if everything else "copies of touched rows"
    report = replace(report, merge_plan=plan, rows_missing=count_missing(changes))
    with run.merging(target, report):
        merge_copies(run.spark, target, changes, run.microbatch.number)
    run.after_effect("merge")
    return report_of_commit(run) or report
