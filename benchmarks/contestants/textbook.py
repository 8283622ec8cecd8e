"""The textbook's way (:mod:`benchmarks.textbook`) among the contestants."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from benchmarks.contestants.contestant import OnSpark, struct_of
from benchmarks.shapes import KEY
from benchmarks.textbook import TextbookTable


def table_of(types: Mapping[str, str]) -> TextbookTable:
    """Return what the textbook has to know of a large table and its events; ``types``: SQL types by column, the key first."""
    row = struct_of(types)
    source = "STRUCT<commit_lsn: STRING, change_lsn: STRING, event_serial_no: BIGINT, ts_ms: BIGINT>"
    value = f"STRUCT<before: {row}, after: {row}, source: {source}, op: STRING, ts_ms: BIGINT>"
    place = ("value.source.commit_lsn", "value.source.change_lsn", "value.source.event_serial_no")
    return TextbookTable(
        record=f"topic STRING, partition INT, offset BIGINT, key STRUCT<{KEY}: BIGINT>, value {value}",
        key=f"key.{KEY}",
        newest_first=", ".join(f"{part} DESC" for part in place),
        names=list(types),
    )


class Textbook(OnSpark):
    """As it stands in tutorials."""

    name = "textbook"

    def merge(self) -> None:
        """Read, rank, merge."""
        table_of(self.task.types).merge(self.spark, self.task.paths, self.table)


class TextbookWithDeletionVectors(Textbook):
    """The same into a table with deletion vectors."""

    name = "textbook + DV"

    @property
    def origin(self) -> Path:
        """The table with deletion vectors."""
        return self.task.base.with_vectors
