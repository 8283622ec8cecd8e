"""The native limit: a vectorised engine reads the bytes, parses once, collapses, reads the table's keys, writes only changed rows."""

from __future__ import annotations

from benchmarks.contestants import duck
from benchmarks.contestants.floor import Floor, joined_changes
from benchmarks.delta_files import live_files
from benchmarks.shapes import KEY


class NativeLimit(Floor):
    """DuckDB, in one statement; no commit, no order of effects, no counts."""

    name = "native limit"

    def merge(self) -> None:
        """Do the least that a merge has to."""
        self.changes.mkdir()
        read = f"read_parquet({live_files(self.table)}, filename = true, file_row_number = true)"
        keys = f"SELECT {KEY}, filename AS file, file_row_number AS place FROM {read}"
        query = f"WITH s AS ({duck.latest(self.task)}), t AS ({keys}) {joined_changes(self.task.names)}"
        duck.connect().execute(f"COPY ({query}) TO '{self.changes / 'changes.parquet'}' (FORMAT parquet, COMPRESSION zstd)")
