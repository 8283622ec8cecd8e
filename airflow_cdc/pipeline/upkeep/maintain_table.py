"""Maintain one Delta table: correct statistics, cluster, purge, compact, vacuum, each only where the table's own log shows work to do.

Delta commits each step whole or not at all, and none changes what the table holds; so a crash between two is harmless, and a repetition
does what is left. A concurrent merge may lose its commit to a step, or the reverse: both are retried.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, TypeVar

from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import Row, SparkSession

from airflow_cdc.model.errors import ConcurrentRunError, ConfigurationError, first_line
from airflow_cdc.model.report.maintenance import SAFE_RETENTION, Action, MaintenanceSettings, TableKind, TableMaintenance
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import set_options
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.target.alter_table import set_properties
from airflow_cdc.pipeline.target.correct_statistics import correct_statistics
from airflow_cdc.pipeline.target.lost_commits import lost_commit
from airflow_cdc.pipeline.target.table_history import TableHistory, read_history
from airflow_cdc.pipeline.target.table_properties import EXACT_STATISTICS, has_exact_statistics
from airflow_cdc.pipeline.target.target_table import describe_table

_TARGET_FILE_BYTES = 256 * 1024**2
"""Larger files would make a merge rewrite more than necessary."""
_RETENTION_PROPERTY = "delta.deletedFileRetentionDuration"
_INTERVAL = re.compile(r"(?:interval\s+)?(\d+)\s+(hour|day|week)s?", re.IGNORECASE)
_ATTEMPTS = 3
_Done = TypeVar("_Done")


@dataclass(frozen=True)
class Upkeep:
    """A table, and its flow's upkeep settings."""

    kind: TableKind
    uri: str
    settings: MaintenanceSettings
    cluster_by: tuple[str, ...] = ()
    """The flow's clustering columns; empty: leave the rows as they are."""
    needed_since: Callable[[TableHistory], datetime | None] = lambda history: None
    """Returns since when the files that our own readers may need have left the table; called only before files are removed."""
    expire: Callable[[SparkSession], int] | None = None
    """Removes expired rows and returns their number; in a dry run the number that would be removed."""


def maintain_table(spark: SparkSession, upkeep: Upkeep) -> TableMaintenance | None:
    """Maintain a table and return what was done, None where the table does not exist.

    Without work to do, it costs two reads of the table's log.

    :raises ConfigurationError: when Delta cannot cluster by the columns, or the table requires a longer retention than it is given.
    :raises ConcurrentRunError: when merges kept committing first; nothing is lost.
    """
    before = describe_table(spark, upkeep.uri)
    if before is None:
        return None
    work = _Work(_session(spark, upkeep, int(before["sizeInBytes"] or 0)), upkeep)
    look = _Look(before, read_history(work.spark, upkeep.uri))
    done = TableMaintenance(
        upkeep.kind,
        upkeep.uri,
        files_before=int(before["numFiles"]),
        bytes_before=int(before["sizeInBytes"]),
        version_before=look.history.latest,
    )
    for step in (work.statistics, work.expire, work.cluster, work.purge, work.compact, work.vacuum):
        so_far, done = done.actions, step(done, look)
        if done.actions != so_far and not upkeep.settings.dry_run:
            look = work.look()
    return replace(
        done,
        files_after=int(look.detail["numFiles"]),
        bytes_after=int(look.detail["sizeInBytes"]),
        version_after=look.history.latest,
    )


def _session(spark: SparkSession, upkeep: Upkeep, size: int) -> SparkSession:
    session = session_for_batch(spark, batch_bytes=size)
    settings = {
        "optimize.maxFileSize": str(_TARGET_FILE_BYTES),
        "optimize.minFileSize": str(_TARGET_FILE_BYTES // 2),
        "optimize.maxDeletedRowsRatio": str(upkeep.settings.purge_from),
        # On object stores Delta logs no vacuum by default; our readers find out from the log which versions are gone.
        "vacuum.logging.enabled": "true",
    }
    set_options(session, {f"spark.databricks.delta.{name}": value for name, value in settings.items()})
    # A vacuum lists folders in this many tasks, however few there are; Spark's default of 10,000 takes a minute on two cores.
    session.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", str(max(2, min(64, size // _TARGET_FILE_BYTES))))
    return session


@dataclass(frozen=True)
class _Look:
    """A table's state by its log."""

    detail: Row
    history: TableHistory


@dataclass(frozen=True)
class _Work:
    spark: SparkSession
    """A session for this table only."""
    upkeep: Upkeep

    def look(self) -> _Look:
        """Return the table's current state."""
        detail = describe_table(self.spark, self.upkeep.uri)
        if detail is None:
            raise ConcurrentRunError(f"Table {self.upkeep.uri} went away meanwhile.", next_step="Run again.")
        return _Look(detail, read_history(self.spark, self.upkeep.uri))

    def statistics(self, done: TableMaintenance, look: _Look) -> TableMaintenance:
        properties = look.detail["properties"] or {}
        if self.upkeep.kind is not TableKind.TARGET or (has_exact_statistics(properties) and not look.history.may_be_rounded):
            return done
        dry_run = self.upkeep.settings.dry_run
        corrected = correct_statistics(self.upkeep.uri, dry_run=dry_run)
        if corrected is not None and not dry_run and not has_exact_statistics(properties):
            self._attempt(lambda: set_properties(self.spark, self.upkeep.uri, EXACT_STATISTICS))
        return replace(done, actions=(*done.actions, Action.STATISTICS)) if corrected else done

    def expire(self, done: TableMaintenance, look: _Look) -> TableMaintenance:
        if self.upkeep.expire is None:
            return done
        expire = self.upkeep.expire
        removed = self._attempt(lambda: expire(self.spark))
        return replace(done, actions=(*done.actions, Action.EXPIRE), markers_removed=removed) if removed else done

    def cluster(self, done: TableMaintenance, look: _Look) -> TableMaintenance:
        wanted = self.upkeep.cluster_by
        if not wanted or _unquoted(look.detail["clusteringColumns"] or ()) == wanted:
            return done
        if not self.upkeep.settings.dry_run:
            try:
                self._attempt(lambda: self.spark.sql(f"ALTER TABLE {self._table} CLUSTER BY ({sql.names(wanted)})"))
            except AnalysisException as error:
                raise ConfigurationError(
                    f"Table {self.upkeep.uri} cannot be clustered by {list(wanted)}: {first_line(error)}",
                    next_step="Correct the flow's cluster_by: at most four columns of types that Delta keeps statistics of.",
                ) from error
        return replace(done, actions=(*done.actions, Action.CLUSTER))

    def purge(self, done: TableMaintenance, look: _Look) -> TableMaintenance:
        hidden = look.history.hidden_rows
        if not hidden or hidden < self.upkeep.settings.purge_from * (hidden + self._rows()):
            return done
        purged = replace(done, actions=(*done.actions, Action.PURGE))
        if self.upkeep.settings.dry_run:
            return purged
        by = _unquoted(look.detail["clusteringColumns"] or ()) if self.upkeep.cluster_by else ()
        if by:
            # Delta 4.4 purges no clustered file. If a crash leaves the table unclustered, the next run restores the flow's columns.
            self._attempt(lambda: self.spark.sql(f"ALTER TABLE {self._table} CLUSTER BY NONE"))
        purged = self._rewrite(purged, f"REORG TABLE {self._table} APPLY (PURGE)")
        return self.cluster(purged, self.look()) if by else purged if purged.deletion_vectors_purged else done

    def compact(self, done: TableMaintenance, look: _Look) -> TableMaintenance:
        needed = max(1, math.ceil(int(look.detail["sizeInBytes"]) / _TARGET_FILE_BYTES))
        is_new = Action.CLUSTER in done.actions
        is_spread = int(look.detail["numFiles"]) - needed >= self.upkeep.settings.compact_from
        if not (is_new or is_spread) or (look.history.is_rewritten and not is_new):
            return done
        done = replace(done, actions=(*done.actions, Action.COMPACT))
        # Only FULL rewrites rows that are clustered by other columns.
        full = " FULL" if is_new and Action.PURGE not in done.actions else ""
        return done if self.upkeep.settings.dry_run else self._rewrite(done, f"OPTIMIZE {self._table}{full}")

    def vacuum(self, done: TableMaintenance, look: _Look) -> TableMaintenance:
        history, now = look.history, datetime.now(timezone.utc)
        retention = max(self.upkeep.settings.vacuum_after, _own_retention(look.detail["properties"] or {}))
        if not history.leaves_to_vacuum(now - retention):
            return done
        needed_since = self.upkeep.needed_since(history)
        if needed_since is not None:
            retention = max(retention, now - needed_since + timedelta(hours=1))
            if not history.leaves_to_vacuum(now - retention):
                return done
        hours = math.ceil(retention / timedelta(hours=1))
        done = replace(done, actions=(*done.actions, Action.VACUUM), retention_hours=hours)
        return done if self.upkeep.settings.dry_run else replace(done, files_vacuumed=self._vacuum(hours))

    def _vacuum(self, hours: int) -> int:
        check = "spark.databricks.delta.retentionDurationCheck.enabled"
        is_short = timedelta(hours=hours) < SAFE_RETENTION
        if is_short:
            # Requested explicitly (allow_short_retention); applies to this session, which is the table's own.
            self.spark.conf.set(check, "false")
        try:
            self._attempt(lambda: self.spark.sql(f"VACUUM {self._table} RETAIN {hours} HOURS"))
        finally:
            if is_short:
                self.spark.conf.unset(check)
        ended = read_history(self.spark, self.upkeep.uri).commits
        return next((int(commit.metrics.get("numDeletedFiles", 0)) for commit in ended if commit.operation == "VACUUM END"), 0)

    def _rewrite(self, done: TableMaintenance, statement: str) -> TableMaintenance:
        metrics: Any = self._attempt(lambda: self.spark.sql(statement).collect())[0]["metrics"]
        vectors = metrics["deletionVectorStats"]
        if vectors is None:
            return done
        return replace(
            done,
            rows_purged=done.rows_purged + int(vectors["numDeletionVectorRowsRemoved"]),
            deletion_vectors_purged=done.deletion_vectors_purged + int(vectors["numDeletionVectorsRemoved"]),
        )

    def _rows(self) -> int:
        return self.spark.sql(f"SELECT * FROM {self._table}").count()

    def _attempt(self, act: Callable[[], _Done], attempts: int = _ATTEMPTS) -> _Done:
        """Call ``act``; retry where a merge committed first.

        :raises ConcurrentRunError: when merges kept doing so.
        """
        try:
            return act()
        except PySparkException as error:
            if (conflict := lost_commit(error)) is None:
                raise
            if attempts > 1:
                return self._attempt(act, attempts - 1)
            raise ConcurrentRunError(
                f"Table {self.upkeep.uri}: other runs kept committing first ({conflict}).",
                next_step="Nothing is lost; run again, when fewer merges are at work.",
            ) from error

    @property
    def _table(self) -> str:
        return sql.delta(self.upkeep.uri)


def _unquoted(columns: Sequence[str]) -> tuple[str, ...]:
    # Delta quotes unusual names in backticks, and no others.
    return tuple(name[1:-1].replace("``", "`") if name.startswith("`") else name for name in columns)


def _own_retention(properties: Mapping[str, str]) -> timedelta:
    """Return the table's own retention of removed files, if its property can be parsed; Delta refuses less."""
    found = _INTERVAL.fullmatch(properties.get(_RETENTION_PROPERTY, "").strip())
    return timedelta(**{f"{found[2].lower()}s": int(found[1])}) if found else timedelta(0)
