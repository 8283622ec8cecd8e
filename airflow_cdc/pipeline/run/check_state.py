"""Check a flow's state against its table before planning. State that is older than the table, or incomplete, must not make files count as
done, and a table that another writer changed must not pass for the source's.

The table's log is read without Spark, from the flow's last merge on: usually that one commit and none after it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import NoReturn

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.errors import StateLostError, TableChangedError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnForeignChange
from airflow_cdc.model.report.foreign_change import INTENT, SEEN_THROUGH, ForeignChange, ForeignChanges, TableCommit, foreign_changes
from airflow_cdc.model.report.retyping import RetypeNote
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.storage import store_of
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.find_commit import history_of
from airflow_cdc.pipeline.target.read_commits import has_log, read_commit
from airflow_cdc.pipeline.target.target_table import describe_table

_WAY_OUT = (
    "Restore the newer state of the flow (its whole folder below _cdc/flows); or rebuild the flow: remove its table and that folder, both,"
    " and run again."
)

_REPAIRED = frozenset({"DELETE", "RESTORE", "TRUNCATE"})
"""Operations that write no values of their own: the rows that they remove come back when the events are read again."""

Repair = Callable[[FlowCheckpoint, ForeignChanges], None]


@dataclass
class StateCheck:
    """Checks one flow in one run, and remembers the findings."""

    spark: SparkSession
    lake: str
    """URI of the lake's root."""
    flow: CdcFlow
    state: FlowState
    seen_through: int | None = None
    """Table version up to which the last check looked."""
    changes: list[ForeignChange] = field(default_factory=list)
    """Changes by other writers that did not stop the flow, and those that were repaired."""

    def before(self, checkpoint: FlowCheckpoint, *, repairs: bool = False, repair: Repair | None = None) -> None:
        """Check before a microbatch is planned or resumed.

        :param repairs: whether the microbatch only reprocesses, and so restores what a foreign change removed.
        :param repair: undoes foreign changes, if the flow's policy is to repair.
        :raises RetypeUnfinishedError: when a retype was interrupted while it replaced the table.
        :raises StateLostError: when the table holds microbatches that the state does not know.
        :raises TableChangedError: when the table lacks rows that the state records as applied, or another writer changed it and the policy
            is to stop.
        """
        RetypeNote(*file_system(self.lake), self.state.folder).refuse_unfinished(self.flow.name)
        known = checkpoint.table_version
        if known is None:
            self._refuse_rows(checkpoint)
            return
        found = self._look(checkpoint, known)
        if found.standing and repair and not repairs and self.flow.on_foreign_change is OnForeignChange.REPAIR:
            repair(checkpoint, found)
            found = self._look(checkpoint, known)
        self._record(found.undone)
        if found.standing and not repairs:
            self._decide(found.standing, checkpoint, known)
        elif not {commit.operation for commit in found.standing} <= _REPAIRED:
            # What reprocessing cannot restore is still to be decided afterwards.
            self.seen_through = found.standing[0].version - 1

    def _look(self, checkpoint: FlowCheckpoint, known: int) -> ForeignChanges:
        """Return the changes by others since the last merge."""
        commits = self._commits_since(checkpoint, known)
        for commit in commits:
            self._refuse_unknown(commit, checkpoint)
        self.seen_through = max([known, *(commit.version for commit in commits)])
        return foreign_changes(commits, self.flow.name, known=known)

    def _record(self, changes: Sequence[ForeignChange]) -> None:
        self.changes += [change for change in changes if change not in self.changes]

    def surveys_of(self, archive: str, ledger: Ledger, checkpoint: FlowCheckpoint) -> None:
        """Check that an archive's surveys are the ones that the flow was planned by: with others, new files would count as planned.

        :raises StateLostError: when they are not.
        """
        known, planned = checkpoint.surveyed.get(archive), checkpoint.plan(archive)[0]
        if known and ledger.digest_of(planned) != known:
            raise StateLostError(
                f"Flow {self.flow.name}: its microbatches through {checkpoint.number} were planned by surveys of archive {archive} that are"
                " gone, or are others today: which of its files are applied is not known. Nothing was planned.",
                next_step="Restore the lake's folder _cdc/archives; or make the lake anew: remove its whole _cdc folder and its tables, and"
                " run again.",
            )

    def _commits_since(self, checkpoint: FlowCheckpoint, known: int) -> list[TableCommit]:
        """Return the commits that the check before the last merge did not see, in order, without the merge itself if it is ours."""
        last = read_commit(self.table, known) if self._may_read_log else None
        if last is None:
            return self._from_history(checkpoint, known)
        unseen = self._unseen_before(last, checkpoint)
        return [*filter(None, (read_commit(self.table, version) for version in unseen)), *_behind(self.table, known)]

    def _unseen_before(self, last: TableCommit, checkpoint: FlowCheckpoint) -> range:
        """Return the versions between a check and the merge after it; refuse another commit in the merge's place."""
        if not last.is_of(self.flow.name):
            raise TableChangedError(
                f"{self._place}: the flow's last merge is version {last.version}, and the table there has another commit of that number"
                f" ({last.as_change()}): it is another table, or an older one that was written since.",
                next_step="Bring the table back as it was; or rebuild the flow: remove its table and its folder below _cdc/flows, both.",
            )
        if last.application != self._application:
            self._lost(f"was merged into in another life of the flow's state ({last.application}, version {last.version})", checkpoint)
        seen = last.metadata.get(SEEN_THROUGH)
        return range(last.version if seen is None else int(seen) + 1, last.version)

    def _from_history(self, checkpoint: FlowCheckpoint, known: int) -> list[TableCommit]:
        """As :meth:`_commits_since`, from the table's history: the log is in another store, or does not go back to the last merge."""
        is_there = describe_table(self.spark, self.table) is not None
        if not is_there and not self._is_at(checkpoint):
            # The settings name another location without a table: refused with an error of its own before anything is merged.
            return []
        history = {commit.version: commit for commit in history_of(self.spark, self.table)} if is_there else {}
        if known > max(history, default=-1):
            seen = f"its newest version is {max(history)}" if history else "no table is there"
            raise TableChangedError(
                f"{self._place}: the flow has merged into version {known}, and {seen}: rows are gone that count as applied.",
                next_step="Bring the table back, or the table and the flow's state (_cdc/flows) of one backup; or rebuild the flow: remove"
                " both and run again.",
            )
        unseen = self._unseen_before(history[known], checkpoint) if known in history else range(0)
        if min(history) > known + 1:
            self._refuse_forgotten(checkpoint)
        return [commit for version, commit in history.items() if version > known or version in unseen]

    def _is_at(self, checkpoint: FlowCheckpoint) -> bool:
        table = checkpoint.table_in(self.lake)
        return table is not None and spark_uri(table) == self.table

    def _refuse_rows(self, checkpoint: FlowCheckpoint) -> None:
        """Refuse a table that holds rows although the state has no merge."""
        if self._may_read_log and not has_log(self.table):
            return
        detail = describe_table(self.spark, self.table)
        if detail is None:
            return
        history = list(history_of(self.spark, self.table))
        ours = [commit for commit in history if commit.microbatch is not None and commit.is_of(self.flow.name)]
        for commit in ours:
            self._refuse_unknown(commit, checkpoint)
        self.seen_through = history[-1].version if history else None
        if detail["numFiles"] and not ours:
            self._lost(f"holds rows in {detail['numFiles']} files", checkpoint)

    def _refuse_unknown(self, commit: TableCommit, checkpoint: FlowCheckpoint) -> None:
        """Refuse a merge that the state does not know: its number would be given to other files."""
        number = commit.microbatch
        if number is None or not commit.is_of(self.flow.name):
            return
        if commit.application != self._application:
            self._lost(f"holds microbatch {number} of another life of the flow's state ({commit.application})", checkpoint)
        if number > checkpoint.number:
            # Merged but without a commit marker yet, by a preceding or a parallel run.
            intent = self.state.intent(number)
            if intent is None or commit.metadata.get(INTENT, intent.digest) != intent.digest:
                self._lost(f"holds microbatch {number} (version {commit.version})", checkpoint)

    def _refuse_forgotten(self, checkpoint: FlowCheckpoint) -> None:
        """Refuse where only Delta's own transaction records show microbatches that the state does not know."""
        files = self.spark.read.option("pathGlobFilter", "*.checkpoint*.parquet")
        try:
            rows = files.parquet(f"{self.table}/_delta_log").filter(F.col("txn.appId") == self._application)
            merged = rows.agg(F.max("txn.version").alias("version")).collect()[0]["version"]
        except AnalysisException:
            # No Parquet checkpoint: the log was never cleaned up.
            return
        if merged is not None and merged > checkpoint.number and self.state.intent(int(merged)) is None:
            self._lost(f"holds microbatch {merged}", checkpoint)

    def _decide(self, found: Sequence[TableCommit], checkpoint: FlowCheckpoint, known: int) -> None:
        changes = [commit.as_change() for commit in found]
        if self.flow.on_foreign_change is OnForeignChange.WARN:
            self._record(changes)
            return
        undo = f"Undo it (RESTORE TABLE {sql.delta(self.table)} TO VERSION AS OF {max(known, changes[0].version - 1)})"
        raise TableChangedError(
            f"{self._place} was changed by others since microbatch {checkpoint.number} (version {known}):"
            f" {'; '.join(map(str, changes))}. The flow's policy is to {self.flow.on_foreign_change.value}.",
            next_step=f"{undo if changes[0].version > known else 'Rebuild the flow'}; or give rows back with `airflow-cdc reprocess`; or"
            " keep the change: set on_foreign_change to 'warn' until the flow has merged again.",
        )

    def _lost(self, seen: str, checkpoint: FlowCheckpoint) -> NoReturn:
        stands = f"stands at microbatch {checkpoint.number}" if checkpoint.number else "knows of no microbatch"
        raise StateLostError(
            f"{self._place}: the table {seen}, the flow's state {stands}: the state is lost, or older than the table. Nothing was planned.",
            next_step=_WAY_OUT,
        )

    @cached_property
    def table(self) -> str:
        """URI of the target table, as Spark spells it."""
        return spark_uri(self.flow.table_path(self.lake))

    @cached_property
    def _may_read_log(self) -> bool:
        # fsspec has credentials only for the lake's store.
        return store_of(self.table) == store_of(spark_uri(self.lake))

    @property
    def _application(self) -> str:
        return f"{self.flow.name}:{self.state.incarnation()}"

    @property
    def _place(self) -> str:
        return f"Flow {self.flow.name}, table {self.table}"


def _behind(uri: str, version: int) -> Iterator[TableCommit]:
    while commit := read_commit(uri, version + 1):
        yield commit
        version += 1
