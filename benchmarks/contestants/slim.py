"""The textbook's way by one who measures: no images before, one aggregation, staged once, deletion vectors."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants.contestant import OnSpark, struct_of
from benchmarks.shapes import KEY

_SOURCE = "STRUCT<commit_lsn: STRING, change_lsn: STRING, event_serial_no: BIGINT>"


class Slim(OnSpark):
    """What a good engineer makes of the textbook in a day."""

    name = "slim"
    settings = {"spark.databricks.delta.merge.materializeSource": "none"}  # noqa: RUF012 - declared by the class above.

    @property
    def origin(self) -> Path:
        """The table with deletion vectors."""
        return self.task.base.with_vectors

    def merge(self) -> None:
        """Read, aggregate, stage, merge."""
        self.stage()
        self.spark.read.parquet(self.staged).createOrReplaceTempView("latest")
        self.spark.sql(f"MERGE INTO delta.`{self.table}` AS t USING latest AS s ON t.{KEY} = s.{KEY} {self.merge_clauses()}")

    @property
    def staged(self) -> str:
        """Where the last event of each key is written to."""
        return str(self.folder / "staged")

    def stage(self) -> None:
        """Write the last event of each key, as its operation and the row's columns."""
        record = f"key STRUCT<{KEY}: BIGINT>, value STRUCT<after: {struct_of(self.task.types)}, source: {_SOURCE}, op: STRING>"
        events = self.spark.read.schema(record).json(self.task.paths)
        position = "value.source.commit_lsn, value.source.change_lsn, value.source.event_serial_no AS serial"
        others = [name for name in self.task.names if name != KEY]
        flat = events.filter("value IS NOT NULL").selectExpr(f"key.{KEY}", f"struct({position}, value.op, value.after) AS event")
        latest = flat.groupBy(KEY).agg({"event": "max"}).withColumnRenamed("max(event)", "event")
        latest.selectExpr(KEY, "event.op", *(f"event.after.{name}" for name in others)).write.parquet(self.staged)
