"""Spark's floor: the steps of the native limit as plain Spark jobs, in the application in which ours works too."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants.floor import Floor, joined_changes
from benchmarks.contestants.slim import Slim
from benchmarks.delta_files import live_files
from benchmarks.shapes import KEY


class SparkFloor(Slim, Floor):
    """Parse, collapse, stage; read the table's keys, join, write only changed rows."""

    name = "Spark's floor"

    @property
    def table(self) -> Path:
        """The plain table; it stays as it is."""
        return self.task.base.plain

    prepare = Floor.prepare
    written = Floor.written
    rows = Floor.rows

    def merge(self) -> None:
        """Do the least that a merge on Spark has to."""
        self.stage()
        self.spark.read.parquet(self.staged).createOrReplaceTempView("s")
        keys = self.spark.read.parquet(*live_files(self.table))
        keys.selectExpr(KEY, "_metadata.file_path AS file", "_metadata.row_index AS place").createOrReplaceTempView("t")
        self.spark.sql(joined_changes(self.task.names)).write.parquet(str(self.changes))
