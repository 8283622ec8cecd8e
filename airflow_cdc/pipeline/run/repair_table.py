"""Repair a table that another writer changed: restore its own version before the change, or else reapply the flow's microbatches.

    <lake>/_cdc/repairs/<flow>/    a separate lake in which the microbatches are reapplied; removed once the table is replaced

The live table changes by one Delta commit, a RESTORE or an overwrite of all rows, which records what it repairs. A crash before it leaves
the table unchanged, and the next run goes on with the separate lake; a crash after it leaves a correct table.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from pyspark.sql import SparkSession

from airflow_cdc.model.errors import TableChangedError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.places import repair_uri
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.foreign_change import REPAIRED, UPKEEP, ForeignChanges
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.commit_metadata import metadata_text
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.run.apply_again import FlowAgain
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import release_session
from airflow_cdc.pipeline.spark.session import noted, session_for_batch
from airflow_cdc.pipeline.spark.spark_errors import SPARK_ERRORS, error_line
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.survey.source_facts import SourceFacts
from airflow_cdc.pipeline.target.find_commit import history_of
from airflow_cdc.pipeline.target.lost_commits import unless_lost
from airflow_cdc.pipeline.target.refuse_other_shape import refuse_other_shape
from airflow_cdc.pipeline.target.table_properties import (
    DOCUMENT_COLUMNS_PROPERTY,
    KEYS_PROPERTY,
    MODE_OF_MAPPING,
    MODE_PROPERTY,
    RENAMED_PROPERTY,
    SCD_COLUMNS_PROPERTY,
)
from airflow_cdc.pipeline.target.target_table import describe_table, read_target

_PROPERTIES = (KEYS_PROPERTY, MODE_PROPERTY, DOCUMENT_COLUMNS_PROPERTY, RENAMED_PROPERTY, SCD_COLUMNS_PROPERTY, MODE_OF_MAPPING)


@dataclass(frozen=True)
class RepairedFlow:
    """The flow whose table is repaired."""

    run: ArchiveRun
    flow: CdcFlow
    state: FlowState
    facts: SourceFacts


def repair_table(of: RepairedFlow, checkpoint: FlowCheckpoint, found: ForeignChanges) -> None:
    """Restore a flow's table to what it would be without foreign changes.

    :param checkpoint: the flow's current checkpoint.
    :param found: the foreign changes; at least one is still in effect.
    :raises TableChangedError: when the archive, or the flow's current settings, give another table than before; nothing was changed.
    :raises TableModeError: when the flow's settings ask for a table of another shape; nothing was changed.
    :raises ConcurrentRunError: when another run committed at the same time.
    :raises CdcError: when Spark failed; the next run goes on.
    """
    repair = _Repair(**vars(of), checkpoint=checkpoint, found=found)
    of.run.progress(f"{of.flow.name}: repairing the table, which others changed: {repair.changes}")
    if not repair.restore():
        repair.rebuild()
    of.run.after_effect("repair")
    repair.again.clear()


@dataclass(frozen=True)
class _Repair(RepairedFlow):
    checkpoint: FlowCheckpoint
    found: ForeignChanges

    @property
    def changes(self) -> str:
        """The foreign changes, as text for messages."""
        return "; ".join(str(commit.as_change()) for commit in self.found.standing)

    def restore(self) -> bool:
        """Restore the version before the first foreign change; return False where it lacks a merge, or no longer exists."""
        before = self.found.standing[0].version - 1
        if before < self.found.merged or any(version > before for version in self.found.vouched):
            return False
        # A commit's metadata is a setting of its session.
        session = session_for_batch(self.run.spark, batch_bytes=0)
        try:
            with self._committing(session):
                session.sql(f"RESTORE TABLE {sql.delta(self._table)} TO VERSION AS OF {before}")
        except SPARK_ERRORS as problem:
            # VACUUM removed its files, or log clean-up its commit.
            self.run.progress(f"{self.flow.name}: version {before} cannot be restored: {error_line(problem)}")
            return False
        finally:
            release_session(session)
        return True

    def rebuild(self) -> None:
        """Reapply the flow's microbatches in a separate lake, and replace the table's rows by the result."""
        self._refuse_vouched()
        self._refuse_other_shape()
        for number in range(1, max(self.checkpoint.number, self.found.through) + 1):
            self._refuse_other(number, *self.again.apply(number))
        self._replace_rows()

    @cached_property
    def again(self) -> FlowAgain:
        """The flow in the separate lake."""
        return FlowAgain(self.run, self.flow, self.state, self.facts, repair_uri(self.run.lake, self.state.folder), self._refused)

    def _refuse_other(self, number: int, was: BatchReport | None, now: BatchReport) -> None:
        """Refuse where a microbatch has another effect than before: some settings were set for one run, and later removed."""
        if was is None:
            return
        other = [name for name in ("truncated_through", "epochs") if getattr(was, name) != getattr(now, name)]
        if (was.replaced_by and was.replaced_by.position) != (now.replaced_by and now.replaced_by.position):
            other.append("replaced_by")
        if now.events.rejected > was.events.rejected:
            other.append("rejects")
        if other:
            self.again.clear()
            raise self._refused(
                f"microbatch {number} does not give what it gave ({', '.join(other)}): settings of the flow were others then (on_snapshot,"
                " on_log_went_back, on_truncate, columns)"
            )

    def _refuse_other_shape(self) -> None:
        # A foreign REPLACE TABLE removes the properties. Without them nothing contradicts the settings, and the rebuild restores them.
        if MODE_PROPERTY in _properties(self.run.spark, self._table) and (target := read_target(self.run.spark, self._table)):
            refuse_other_shape(self.flow, target)

    def _refuse_vouched(self) -> None:
        vouched: list[int] = []
        for commit in history_of(self.run.spark, self._table):
            if commit.is_intended and commit.changes_rows:
                vouched = [] if commit.replaces_all else [*vouched, commit.version]
        if vouched:
            versions = ", ".join(map(str, vouched))
            raise self._refused(f"the archive knows nothing of the changes that somebody vouched for (versions {versions})")

    def _replace_rows(self) -> None:
        session = session_for_batch(self.run.spark, batch_bytes=self.again.table_bytes)
        try:
            self._bring_properties(session)
            rows = session.read.format("delta").load(self.again.table)
            there = session.sql(f"SELECT * FROM {sql.delta(self._table)}")
            is_other = {*map(tuple, rows.dtypes)} != {*map(tuple, there.dtypes)}
            writer = rows.write.format("delta").mode("overwrite")
            with self._committing(session):
                # Only if the columns differ: overwriteSchema would remove the clustering columns.
                (writer.option("overwriteSchema", "true") if is_other else writer).save(self._table)
        finally:
            release_session(session)

    def _bring_properties(self, session: SparkSession) -> None:
        """Restore the properties that we set: a foreign RESTORE undoes renames recorded since, a REPLACE removes all of them."""
        wanted, held = (_properties(session, uri) for uri in (self.again.table, self._table))
        ours = {name: wanted[name] for name in _PROPERTIES if name in wanted and wanted[name] != held.get(name)}
        if ours:
            assigned = ", ".join(f"{sql.text(name)} = {sql.text(value)}" for name, value in ours.items())
            with noted(session, metadata_text({UPKEEP: self._application})):
                session.sql(f"ALTER TABLE {sql.delta(self._table)} SET TBLPROPERTIES ({assigned})")

    @property
    def _application(self) -> str:
        return f"{self.flow.name}:{self.state.incarnation()}"

    @contextmanager
    def _committing(self, session: SparkSession) -> Iterator[None]:
        mark = {UPKEEP: self._application, REPAIRED: self.found.merged}
        lost = unless_lost(self.flow.name, self._table, "repaired", next_step="Nothing is lost; run again.")
        with lost, noted(session, metadata_text(mark)):
            yield

    def _refused(self, why: str) -> TableChangedError:
        return TableChangedError(
            f"Flow {self.flow.name}, table {self._table} was changed by others since microbatch {self.checkpoint.number}: {self.changes}."
            f" Its version before that cannot be restored, and it cannot be rebuilt: {why}. The table was left as it is.",
            next_step="Bring back what is missing and run again; or keep the change: set on_foreign_change to 'warn' until the flow has"
            " merged again.",
        )

    @cached_property
    def _table(self) -> str:
        return spark_uri(self.flow.table_path(self.run.lake))


def _properties(session: SparkSession, uri: str) -> Mapping[str, str]:
    detail = describe_table(session, uri)
    return detail["properties"] or {} if detail else {}
