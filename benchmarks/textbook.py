"""The textbook's way: parse everything, keep each key's last event by ``row_number``, MERGE on the key."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import SparkSession

from benchmarks.shapes import KEY


@dataclass(frozen=True)
class TextbookTable:
    """What the textbook has to know of a table and its events."""

    record: str
    """DDL of a record; its ``value`` is the event."""
    key: str
    """SQL of an event's key."""
    newest_first: str
    """Terms of ORDER BY: an event's place in the log, descending."""
    names: Sequence[str]
    """The table's columns, the key among them."""

    def merge(self, spark: SparkSession, paths: Sequence[str], table: Path) -> None:
        """Merge files of events into the Delta table."""
        spark.read.schema(self.record).json(list(paths)).createOrReplaceTempView("events")
        others = ", ".join(f"value.after.{name}" for name in self.names if name != KEY)
        spark.sql(
            f"""
            CREATE OR REPLACE TEMP VIEW latest AS SELECT * FROM (
                SELECT {self.key} AS {KEY}, value.op, {others},
                    row_number() OVER (PARTITION BY {self.key} ORDER BY {self.newest_first}) AS place
                FROM events WHERE value IS NOT NULL) WHERE place = 1
            """
        )
        spark.sql(f"MERGE INTO delta.`{table}` AS t USING latest AS s ON t.{KEY} = s.{KEY} {merge_clauses(self.names)}")


def merge_clauses(names: Sequence[str], *, op: str = "op") -> str:
    """Return the clauses of a MERGE of rows ``s`` that hold an operation and the row's columns."""
    assigned = ", ".join(f"t.{name} = s.{name}" for name in names if name != KEY)
    values = ", ".join(f"s.{name}" for name in names)
    return f"""
        WHEN MATCHED AND s.{op} = 'd' THEN DELETE
        WHEN MATCHED THEN UPDATE SET {assigned}
        WHEN NOT MATCHED AND s.{op} <> 'd' THEN INSERT ({", ".join(names)}) VALUES ({values})
    """
