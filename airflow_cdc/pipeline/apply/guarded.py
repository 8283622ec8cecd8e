"""A microbatch's row changes before and after they are compared with the table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from pyspark.sql import DataFrame

from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.pipeline.apply.settled import LATE_PLAN, without_stale
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.evidence.find_voids import Voids
from airflow_cdc.pipeline.microbatch.count_events import Staged
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.target.target_table import TargetTable


@dataclass(frozen=True, kw_only=True)
class Unguarded:
    """A microbatch's row changes before they are compared with the table."""

    run: MicrobatchRun
    decoder: Decoder
    target: TargetTable
    live: DataFrame
    """Row changes that no truncate and no snapshot voids."""
    staged: Staged
    """Counts of all row changes."""
    held: bool
    """Whether the table was there before the microbatch: otherwise it holds nothing that a row change could meet."""
    has_reads: bool
    """Whether some events are snapshot reads."""
    voids: Voids
    """What truncates and snapshots void, of this microbatch and of earlier ones."""
    moves: DataFrame | None = None
    """The key changes that its rows were traced through (:attr:`~airflow_cdc.pipeline.reconcile.trace_moved_rows.Traced.moves`)."""

    @property
    def keys(self) -> list[str]:
        """Key columns of the target."""
        return list(self.target.keys)


@dataclass(frozen=True, kw_only=True)
class Guarded:
    """A microbatch's row changes after the guard: without stale ones, with those folded again."""

    row_changes: DataFrame
    is_late: bool = False
    """Whether some keys are known at, behind or among the events of this microbatch."""
    rejoined: bool = False
    """Whether some of them belong to keys whose transaction was cut."""
    stale: int = 0
    """Number of row changes that newer events make obsolete."""
    paired: int = 0
    """Number of rows moved here by an earlier microbatch whose delete under the old key came now, or the reverse."""
    unjoined: int = 0
    """Number of keys whose transaction or document could not be completed, because an earlier file is gone from the archive."""
    marking: DataFrame | None = None
    """The row changes from which delete markers follow, where these are others: no marker follows from a mended row."""
    moves: tuple[DataFrame, ...] = ()
    """The key changes that the row changes were traced through."""
    mended: int = 0
    """Number of the target's rows with values that other events left out, and that stand in the archive under other keys."""

    def in_report(self, report: BatchReport) -> BatchReport:
        """Return the report with the guard's counts."""
        plan = LATE_PLAN if self.is_late else report.merge_plan
        unpaired = report.unpaired_moves - self.paired
        guarded = replace(without_stale(report, self.stale), merge_plan=plan)
        return replace(guarded, unpaired_moves=unpaired, transactions_unjoined=self.unjoined)
