"""Guard: what a microbatch that does not lie wholly after everything applied must not undo, and what it must take up again."""

from __future__ import annotations

from dataclasses import replace
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import OP, POSITION, REJECT
from airflow_cdc.model.errors import StateUnreadableError, TableHistoryGoneError
from airflow_cdc.model.lake import delete_markers_uri
from airflow_cdc.model.reach import Reach
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.merge import TargetTable
from airflow_cdc.pipeline.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.order import order_events
from airflow_cdc.pipeline.reconcile.drop_stale import drop_stale
from airflow_cdc.pipeline.reconcile.fold_row_versions import fold_row_versions
from airflow_cdc.pipeline.reconcile.rejoin_transactions import CUT_AT, find_cut_keys, first_part, upon_prior
from airflow_cdc.pipeline.reconcile.trace_moved_rows import trace_moved_rows
from airflow_cdc.pipeline.record.delete_markers import read_markers


def guard_late_events(run: MicrobatchRun, decoder: Decoder, target: TargetTable, live: DataFrame) -> tuple[DataFrame, int]:
    """Return the row changes that still have something to say, and how many have not; those of cut transactions folded anew.

    :raises TableHistoryGoneError: when a transaction that was cut began upon a table version that is no more.
    """
    keys = list(target.keys)
    rows = run.rows_of(target)
    markers = read_markers(run.spark, run.state(delete_markers_uri), except_microbatch=run.microbatch.number)
    rejoined = _rejoin(run, decoder, target, live, rows if markers is None else rows.unionByName(markers, allowMissingColumns=True))
    if rejoined is None:
        return drop_stale(live, rows, markers, keys)
    fresh, stale = drop_stale(live.join(rejoined.select(*map(sql.name, keys)), keys, "left_anti"), rows, markers, keys)
    return fresh.unionByName(rejoined), stale


def _rejoin(run: MicrobatchRun, decoder: Decoder, target: TargetTable, live: DataFrame, known: DataFrame) -> DataFrame | None:
    """Return the row changes of the keys whose transaction an earlier microbatch applied in part; None where there are none."""
    keys = list(target.keys)
    named = [sql.name(key) for key in keys]
    cut = run.write_down(find_cut_keys(live, known, keys), "cut")
    began = cut.agg(F.min(CUT_AT)).head()
    if began is None or began[0] is None:
        return None
    first = first_part(lambda number: _reach(run, number), run.microbatch.number, int(began[0]))
    if first is None:
        return None
    columns = list(decoder.columns.types)
    here = _events(run, decoder)
    theirs = reduce(DataFrame.unionByName, [_events_of(run, number, decoder) for number in range(first, run.microbatch.number)])
    seen = theirs.select(*named, POSITION)
    news = here.join(cut, keys, "left_semi").join(seen, [*keys, POSITION], "left_anti").select(*named).distinct()
    everything = order_events(theirs.unionByName(here), keys, reads_among_changes=True)
    folded = run.write_down(fold_row_versions(everything.join(news, keys, "left_semi"), keys, columns), "rejoined")
    prior = _rows_before(run, target, first)
    traced = trace_moved_rows(
        upon_prior(folded, prior, keys, columns), everything, prior, keys=keys, columns=decoder.columns.types, write_down=run.write_down
    )
    return traced.select(*live.columns)


def _reach(run: MicrobatchRun, number: int) -> Reach | None:
    report = run.past.report(number)
    return report.reach if report else None


def _events(run: MicrobatchRun, decoder: Decoder) -> DataFrame:
    return decoder.events(run.lines(), with_images=True).filter(f"{REJECT} IS NULL AND {OP} IS NOT NULL")


def _events_of(run: MicrobatchRun, number: int, decoder: Decoder) -> DataFrame:
    """Return the events of an earlier microbatch, decoded as today's are."""
    microbatch = run.past.intent(number)
    if microbatch is None:
        raise StateUnreadableError(
            f"Flow {run.flow.name}: the intent of microbatch {number} is gone, and with it which files a transaction began in.",
            next_step="Restore it, or rebuild the table from the archive.",
        )
    return _events(replace(run, microbatch=microbatch), replace(decoder, files=microbatch.files, shapes=microbatch.shapes))


def _rows_before(run: MicrobatchRun, target: TargetTable, first: int) -> DataFrame:
    """Return the target's rows before the first of some microbatches was merged."""
    reports = (run.past.report(number) for number in range(first, run.microbatch.number))
    version = next((report.table_version for report in reports if report and report.table_version is not None), None)
    if version is None:
        return run.rows_of(target)
    try:
        return run.spark.sql(f"SELECT * FROM {sql.delta(target.uri)} VERSION AS OF {version - 1}")
    except AnalysisException as error:
        raise TableHistoryGoneError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}: it holds the rest of a transaction that microbatch {first} began,"
            f" and version {version - 1} of {target.uri}, upon which that one was merged, is gone ({error.getCondition()}).",
            next_step="Rebuild the table from the archive; keep table versions longer than late files take to arrive.",
        ) from error
