"""Guard: what a microbatch that does not lie wholly after everything applied must not undo, and what it must take up again."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import reduce

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import FILE, LINE, OP, POSITION, RAW, RAW_KEY, REJECT
from airflow_cdc.model.errors import StateUnreadableError, TableHistoryGoneError
from airflow_cdc.model.lake import delete_markers_uri
from airflow_cdc.model.reach import Reach
from airflow_cdc.pipeline import sql
from airflow_cdc.pipeline.count_events import Staged
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.merge import TargetTable
from airflow_cdc.pipeline.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.order import order_events
from airflow_cdc.pipeline.reconcile.drop_stale import drop_stale
from airflow_cdc.pipeline.reconcile.fold_row_versions import fold_row_versions
from airflow_cdc.pipeline.reconcile.rejoin_transactions import (
    CUT_AT,
    find_awaited_moves,
    find_cut_keys,
    find_parted_moves,
    first_part,
    upon_prior,
)
from airflow_cdc.pipeline.reconcile.trace_moved_rows import trace_moved_rows
from airflow_cdc.pipeline.record.delete_markers import read_markers


@dataclass(frozen=True)
class Guarded:
    """What is left of a microbatch's row changes, and what was added to them."""

    row_changes: DataFrame
    stale: int = 0
    """Changes that have nothing to say any more."""
    paired: int = 0
    """Rows that an earlier microbatch moved here, whose delete under the old key came now, or the other way round."""


def guard_late_events(run: MicrobatchRun, decoder: Decoder, target: TargetTable, live: DataFrame, staged: Staged, *, late: bool) -> Guarded:
    """Return the row changes that still have something to say; those of transactions and key changes that were cut are folded anew.

    :raises TableHistoryGoneError: when a transaction that was cut began upon a table version that is no more.
    """
    awaited = bool(run.checkpoint.unpaired_moves and staged.has_deletes)
    if not (late or awaited or staged.unknown):
        return Guarded(live)
    keys = list(target.keys)
    rows = run.rows_of(target)
    markers = read_markers(run.spark, run.state(delete_markers_uri), except_microbatch=run.microbatch.number)
    parted = _parted_moves(run, decoder, live, rows, markers, keys=keys, awaited=awaited, unknown=bool(staged.unknown))
    cut = run.write_down(find_cut_keys(live, rows, markers, keys), "cut") if late else None
    rejoined = _rejoin(run, decoder, target, names=live.columns, cut=cut, parted=parted)
    if rejoined is not None:
        live = live.join(rejoined.select(*map(sql.name, keys)), keys, "left_anti")
    fresh, stale = drop_stale(live, rows, markers, keys) if late else (live, 0)
    paired = parted.count() if parted is not None and rejoined is not None else 0
    return Guarded(fresh if rejoined is None else fresh.unionByName(rejoined), stale, paired)


def _parted_moves(
    run: MicrobatchRun,
    decoder: Decoder,
    live: DataFrame,
    rows: DataFrame,
    markers: DataFrame | None,
    *,
    keys: list[str],
    awaited: bool,
    unknown: bool,
) -> DataFrame | None:
    """Return the keys of rows that moved, of which this microbatch holds only the create or only the delete."""
    found = []
    if unknown and markers is not None:
        found.append(find_parted_moves(live, markers, keys))
    if awaited:
        deletes = decoder.events(run.lines()).filter(f"{REJECT} IS NULL AND {OP} = 'd'").select(POSITION)
        found.append(find_awaited_moves(deletes, rows, keys))
    if not found:
        return None
    parted = run.write_down(reduce(DataFrame.unionByName, found).distinct(), "parted")
    return None if parted.isEmpty() else parted


def _rejoin(
    run: MicrobatchRun, decoder: Decoder, target: TargetTable, *, names: list[str], cut: DataFrame | None, parted: DataFrame | None
) -> DataFrame | None:
    """Return the row changes of the keys whose transaction an earlier microbatch applied in part; None where there are none."""
    keys = list(target.keys)
    named = [sql.name(key) for key in keys]
    concerned = [frame for frame in (cut, parted) if frame is not None]
    if not concerned:
        return None
    began = reduce(DataFrame.unionByName, concerned).agg(F.min(CUT_AT)).head()
    if began is None or began[0] is None:
        return None
    first = first_part(lambda number: _reach(run, number), run.microbatch.number, int(began[0]))
    if first is None:
        return None
    columns = list(decoder.columns.types)
    here = run.write_down(_events(run, decoder), "events")
    earlier = reduce(DataFrame.unionByName, [_events_of(run, number, decoder) for number in range(first, run.microbatch.number)])
    theirs = run.write_down(earlier, "earlier")
    wanted = [] if parted is None else [parted.select(*named)]
    if cut is not None:
        # A file that comes again tells nothing new.
        seen = theirs.select(*named, POSITION)
        wanted.append(here.join(cut, keys, "left_semi").join(seen, [*keys, POSITION], "left_anti").select(*named))
    news = reduce(DataFrame.unionByName, wanted).distinct()
    everything = run.write_down(order_events(theirs.unionByName(here), keys, reads_among_changes=True), "everything")
    folded = run.write_down(fold_row_versions(everything.join(news, keys, "left_semi"), keys, columns), "rejoined")
    prior = _rows_before(run, target, first)
    traced = trace_moved_rows(
        upon_prior(folded, prior, keys, columns), everything, prior, keys=keys, columns=decoder.columns.types, write_down=run.write_down
    )
    return traced.select(*map(sql.name, names))


def _reach(run: MicrobatchRun, number: int) -> Reach | None:
    report = run.past.report(number)
    return report.reach if report else None


def _events(run: MicrobatchRun, decoder: Decoder) -> DataFrame:
    return decoder.events(run.lines(), with_images=True).filter(f"{REJECT} IS NULL AND {OP} IS NOT NULL").drop(FILE, LINE, RAW, RAW_KEY)


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
