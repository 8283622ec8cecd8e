"""Mode of a change log: each event once, in one append under the microbatch's identifier."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import MICROBATCH
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.fit_table import ColumnsChanged
from airflow_cdc.pipeline.apply.quarantine_rejects import Quarantined
from airflow_cdc.pipeline.apply.settled import Ready, decoder_of
from airflow_cdc.pipeline.apply.stage_events import KeptEvents, Sieve, leave_out_known, settle_epochs, stage_events, watch_snapshots
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import PhysicalTables
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.record.change_log import without_known
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.target.document_columns import with_document_columns
from airflow_cdc.pipeline.target.target_table import TargetTable


def settle(run: MicrobatchRun, target: TargetTable | None) -> AppendedEvents:
    """Read and stage a microbatch's events."""
    return settle_epochs(run, partial(_settle, target=target))


def _settle(run: MicrobatchRun, target: TargetTable | None) -> AppendedEvents | Epochs:
    decoder = decoder_of(run, target)
    tables = PhysicalTables(run.flow, decoder.columns.keys, run.tables)
    keeps_truncates = target is not None or bool(decoder.columns.types)
    staged = stage_events(run, decoder, decoder.events(run.lines()), tables=tables, keeps_truncates=keeps_truncates)
    snapshots = watch_snapshots(run, decoder, staged, tables=tables)
    if isinstance(snapshots, Epochs):
        return snapshots
    named = replace(staged, events=tables.named_in_rows(staged.events))
    return AppendedEvents(
        run=run,
        target=target,
        decoder=decoder,
        tables=tables,
        counted=staged.counted,
        snapshots=snapshots,
        new=leave_out_known(run, target, named, sieve=_sieve(run, target, decoder, tables=tables)),
    )


def _sieve(run: MicrobatchRun, target: TargetTable | None, decoder: Decoder, *, tables: PhysicalTables) -> Sieve | None:
    if target is None:
        return None

    def sieve(events: DataFrame) -> tuple[DataFrame, int]:
        known = run.rows_of(target)
        columns, restarts = list(decoder.columns.types), decoder.change_restarts
        fresh = without_known(events, known, keys=target.keys, columns=columns, table=tables.column, change_restarts=restarts)
        fresh = run.write_down(fresh, "fresh")
        return fresh, fresh.count()

    return sieve


@dataclass(frozen=True, kw_only=True)
class AppendedEvents(KeptEvents):
    """Events to append to the target."""

    def report(self, quarantined: Quarantined, changed: ColumnsChanged) -> BatchReport:
        """Return the report as known before the append."""
        plan = "append: known events left out" if self.new.late else "append"
        return replace(super().report(quarantined, changed), merge_plan=plan)

    def log(self, target: TargetTable | None, report: BatchReport) -> Ready:
        """Log nothing: the target is the log."""
        if target is None or not report.events.merged:
            return Ready(report=replace(report, merge_plan="nothing to append"))
        return Ready(report=report, merge=partial(self.merge, report), effect="append")

    def merge(self, report: BatchReport) -> BatchReport:
        """Append the events to the target."""
        run = self.run
        fresh = with_document_columns(self.new.events, run.flow.document_columns)
        rows = in_columns_of(run.spark.sql(f"SELECT * FROM {sql.delta(run.table)}"), fresh, microbatch=run.microbatch.number)
        with run.committing(report):
            rows.write.format("delta").mode("append").save(run.table)
        return report


def in_columns_of(table: DataFrame, rows: DataFrame, *, microbatch: int) -> DataFrame:
    """Return rows with exactly the columns and types of a table; NULL in columns that the rows lack."""
    ours = {name.lower() for name in rows.columns}
    held = {field.name: F.col(sql.name(field.name)) if field.name.lower() in ours else F.lit(None) for field in table.schema.fields}
    held[MICROBATCH] = F.lit(microbatch)
    return rows.select(*[held[field.name].cast(field.dataType).alias(field.name) for field in table.schema.fields])
