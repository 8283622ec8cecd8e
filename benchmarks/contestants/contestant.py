"""What a contestant is given, and what it has to do."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from pyspark.sql import DataFrame, SparkSession

from benchmarks.base import Base
from benchmarks.delta_files import Written, last_version, link_tree, written_since
from benchmarks.textbook import merge_clauses


@dataclass(frozen=True)
class Task:
    """Events to be merged into a table."""

    base: Base
    files: Sequence[Path]
    """The archived events."""

    @property
    def types(self) -> dict[str, str]:
        """SQL types of the table's columns, the key first."""
        return self.base.shape.types

    @property
    def names(self) -> list[str]:
        """The table's columns."""
        return list(self.types)

    @property
    def paths(self) -> list[str]:
        """The archived files as texts."""
        return [str(file.absolute()) for file in self.files]


class Contestant(ABC):
    """One way to merge. Each turn: ``prepare``, then ``merge``, which alone is measured, then the questions."""

    name: ClassVar[str]

    def __init__(self, task: Task, folder: Path) -> None:
        self.task = task
        self.folder = folder.absolute()
        """A folder of its own, empty at the beginning of each turn."""

    @property
    def origin(self) -> Path:
        """The base table: it merges into a copy."""
        return self.task.base.plain

    @property
    def table(self) -> Path:
        """The Delta table that is merged into."""
        return self.folder / self.origin.name

    def prepare(self) -> None:
        """Make a fresh copy of the base table; not measured."""
        self.copy(self.origin)

    @abstractmethod
    def merge(self) -> None:
        """Merge the events."""

    def written(self) -> Written:
        """Return what the merge wrote into the table."""
        return written_since(self.table, self._before)

    def facts(self) -> dict[str, Any]:
        """Return further facts of its last merge."""
        return {}

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the rows that the table holds now, with their own columns."""
        return spark.read.format("delta").load(str(self.table)).select(*self.task.names)

    def copy(self, table: Path) -> None:
        """Copy the base table or lake, and remember where the merge begins."""
        link_tree(table, self.folder / table.name)
        self._before = last_version(self.table)

    _before = -1


class OnSpark(Contestant):
    """One that works in the Spark application in which ours works too, in a session with Delta's own settings."""

    settings: ClassVar[dict[str, str]] = {}

    @cached_property
    def spark(self) -> SparkSession:
        """Its session: Spark's own settings but for sizes of shuffles, which suit this machine better than 200."""
        session = self.task.base.spark.newSession()
        usual = {
            "spark.sql.ansi.enabled": "false",
            "spark.sql.adaptive.enabled": "true",
            "spark.sql.shuffle.partitions": "8",
            "spark.databricks.delta.snapshotPartitions": "2",
            "spark.databricks.delta.merge.materializeSource": "auto",
        }
        for key, value in {**usual, **self.settings}.items():
            session.conf.set(key, value)
        return session

    def merge_clauses(self, *, op: str = "op") -> str:
        """Return the clauses of a MERGE of rows ``s`` that hold an operation and the row's columns."""
        return merge_clauses(self.task.names, op=op)


def struct_of(types: Mapping[str, str]) -> str:
    """Return the Spark SQL type of a row image."""
    return f"STRUCT<{', '.join(f'{name}: {kind}' for name, kind in types.items())}>"
