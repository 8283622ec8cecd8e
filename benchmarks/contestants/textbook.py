"""The textbook's way (:mod:`benchmarks.textbook`) among the contestants."""

from __future__ import annotations

from pathlib import Path

from benchmarks.contestants.contestant import OnSpark, struct_of
from benchmarks.shapes import KEY
from benchmarks.textbook import TextbookTable


class Textbook(OnSpark):
    """As it stands in tutorials."""

    name = "textbook"

    def merge(self) -> None:
        """Read, rank, merge."""
        row = struct_of(self.task.types)
        source = "STRUCT<commit_lsn: STRING, change_lsn: STRING, event_serial_no: BIGINT, ts_ms: BIGINT>"
        value = f"STRUCT<before: {row}, after: {row}, source: {source}, op: STRING, ts_ms: BIGINT>"
        place = ("value.source.commit_lsn", "value.source.change_lsn", "value.source.event_serial_no")
        table = TextbookTable(
            record=f"topic STRING, partition INT, offset BIGINT, key STRUCT<{KEY}: BIGINT>, value {value}",
            key=f"key.{KEY}",
            newest_first=", ".join(f"{part} DESC" for part in place),
            names=self.task.names,
        )
        table.merge(self.spark, self.task.paths, self.table)


class TextbookWithDeletionVectors(Textbook):
    """The same into a table with deletion vectors."""

    name = "textbook + DV"

    @property
    def origin(self) -> Path:
        """The table with deletion vectors."""
        return self.task.base.with_vectors
