"""The textbook's way: parse everything, keep each key's last event by ``row_number``, MERGE on the key."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants.contestant import OnSpark, struct_of
from benchmarks.shapes import KEY


class Textbook(OnSpark):
    """As it stands in tutorials."""

    name = "textbook"

    def merge(self) -> None:
        """Read, rank, merge."""
        row = struct_of(self.task.types)
        source = "STRUCT<commit_lsn: STRING, change_lsn: STRING, event_serial_no: BIGINT, ts_ms: BIGINT>"
        value = f"STRUCT<before: {row}, after: {row}, source: {source}, op: STRING, ts_ms: BIGINT>"
        record = f"topic STRING, partition INT, offset BIGINT, key STRUCT<{KEY}: BIGINT>, value {value}"
        self.spark.read.schema(record).json(self.task.paths).createOrReplaceTempView("events")
        others = ", ".join(f"value.after.{name}" for name in self.task.names if name != KEY)
        self.spark.sql(
            f"""
            CREATE OR REPLACE TEMP VIEW latest AS SELECT * FROM (
                SELECT key.{KEY}, value.op, {others}, row_number() OVER (PARTITION BY key.{KEY}
                    ORDER BY value.source.commit_lsn DESC, value.source.change_lsn DESC, value.source.event_serial_no DESC) AS place
                FROM events WHERE value IS NOT NULL) WHERE place = 1
            """
        )
        self.spark.sql(f"MERGE INTO delta.`{self.table}` AS t USING latest AS s ON t.{KEY} = s.{KEY} {self.merge_clauses()}")


class TextbookWithDeletionVectors(Textbook):
    """The same into a table with deletion vectors."""

    name = "textbook + DV"

    @property
    def origin(self) -> Path:
        """The table with deletion vectors."""
        return self.task.base.with_vectors
