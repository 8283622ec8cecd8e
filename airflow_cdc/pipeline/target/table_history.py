"""Table history: facts from a Delta table's log, without reading its data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.spark import sql

_REWRITES = ("OPTIMIZE", "REORG")
_VACUUM = "VACUUM START"
_NO_FILE_LEAVES = (
    "CREATE TABLE",
    "WRITE",
    "SET TBLPROPERTIES",
    "UNSET TBLPROPERTIES",
    "ADD COLUMNS",
    "CHANGE COLUMN",
    "CHANGE COLUMNS",
    "RENAME COLUMN",
    "DROP COLUMNS",
    "ADD CONSTRAINT",
    "DROP CONSTRAINT",
    "UPGRADE PROTOCOL",
    "COMPUTE STATS",
    "CLUSTER BY",
    "VACUUM START",
    "VACUUM END",
)
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


@dataclass(frozen=True)
class Commit:
    """One version of a table."""

    version: int
    at: datetime
    operation: str
    parameters: Mapping[str, str]
    metrics: Mapping[str, str]
    engine: str = ""
    """Name and version of the writer."""

    @property
    def may_add_rounded(self) -> bool:
        """Whether it may have added files whose statistics delta-rs rounds."""
        return self.engine.startswith("delta-rs") and (self.operation == "WRITE" or self.operation not in _NO_FILE_LEAVES)

    @property
    def may_drop_files(self) -> bool:
        """Whether files of the version before may be missing from this one."""
        overwrites = self.operation == "WRITE" and self.parameters.get("mode") != "Append"
        return overwrites or self.operation not in _NO_FILE_LEAVES

    @property
    def changes_rows(self) -> bool:
        """Whether it may have left files, or deletion vectors, that a rewrite would act on."""
        return self.operation == "WRITE" or (self.may_drop_files and self.operation not in _REWRITES)

    @property
    def hidden_rows(self) -> int:
        """Upper bound of the rows that this commit's deletion vectors hide; 0 where it wrote none."""
        counts = {name: int(value) for name, value in self.metrics.items() if value.isdigit()}
        vectors = ("DeletionVectorsAdded", "DeletionVectorsUpdated")
        if not any(counts.get(f"{prefix}{name}") for prefix in ("numTarget", "num") for name in vectors):
            return 0
        return sum(counts.get(name, 0) for name in ("numTargetRowsUpdated", "numTargetRowsDeleted", "numDeletedRows", "numUpdatedRows"))


@dataclass(frozen=True)
class TableHistory:
    """The versions that the log still has, newest first; Delta drops them after 30 days."""

    commits: tuple[Commit, ...]

    @property
    def latest(self) -> int:
        """Number of the newest version."""
        return self.commits[0].version

    @property
    def is_rewritten(self) -> bool:
        """Whether nothing changed since the last rewrite: another rewrite would have nothing to do."""
        return not any(commit.changes_rows for commit in self._since(_REWRITES))

    @property
    def may_be_rounded(self) -> bool:
        """Whether delta-rs added files since statistics were last corrected."""
        return any(commit.may_add_rounded for commit in self._since(("COMPUTE STATS",)))

    @property
    def hidden_rows(self) -> int:
        """Upper bound of the rows hidden by deletion vectors since the last rewrite, which leaves no file with many of them."""
        return sum(commit.hidden_rows for commit in self._since(_REWRITES))

    @property
    def vacuumed_before(self) -> datetime | None:
        """Moment before which files that left the table are removed from storage; None where a vacuum never ran."""
        moments = [commit.at - _retention(commit) for commit in self.commits if commit.operation == _VACUUM]
        return max(moments, default=None)

    def at(self, version: int) -> datetime | None:
        """Return when a version was committed, None where the log no longer has it."""
        return next((commit.at for commit in self.commits if commit.version == version), None)

    def leaves_to_vacuum(self, before: datetime) -> bool:
        """Return whether files may have left the table before a moment and are not vacuumed yet."""
        done = self.vacuumed_before
        return any(commit.may_drop_files and commit.at < before and (done is None or commit.at >= done) for commit in self.commits)

    def is_readable(self, version: int) -> bool:
        """Return whether all files of a version still exist, as far as the log shows."""
        done = self.vacuumed_before
        return done is None or not any(commit.version > version and commit.may_drop_files and commit.at < done for commit in self.commits)

    def _since(self, operations: tuple[str, ...]) -> list[Commit]:
        last = max((commit.version for commit in self.commits if commit.operation in operations), default=-1)
        return [commit for commit in self.commits if commit.version > last]


def read_history(spark: SparkSession, uri: str) -> TableHistory:
    """Return the history of a Delta table."""
    history = spark.sql(f"DESCRIBE HISTORY {sql.delta(uri)}").selectExpr(
        # Python's local time of an instant depends on the machine's time zone.
        "version",
        "unix_millis(timestamp) AS at",
        "operation",
        "operationParameters",
        "operationMetrics",
        "engineInfo",
    )
    return TableHistory(
        tuple(
            Commit(
                version=int(row["version"]),
                at=_EPOCH + timedelta(milliseconds=row["at"]),
                operation=row["operation"],
                parameters=row["operationParameters"] or {},
                metrics=row["operationMetrics"] or {},
                engine=row["engineInfo"] or "",
            )
            for row in history.collect()
        )
    )


def _retention(vacuum: Commit) -> timedelta:
    millis = vacuum.parameters.get("specifiedRetentionMillis") or vacuum.parameters.get("defaultRetentionMillis") or "0"
    return timedelta(milliseconds=int(millis))
