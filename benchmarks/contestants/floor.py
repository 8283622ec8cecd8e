"""What both floors have in common: they write changed rows, and where the ones they replace lie, and no table."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks.contestants.contestant import Contestant
from benchmarks.delta_files import Written
from benchmarks.shapes import KEY

FILE, PLACE = "replaced_file", "replaced_row"
"""Of a written change: where the row lies that it replaces, NULL where it replaces none."""


class Floor(Contestant):
    """Writes ``changes``: each key's operation (``op``), its row, and :data:`FILE` and :data:`PLACE`."""

    @property
    def table(self) -> Path:
        """The plain table; it stays as it is."""
        return self.task.base.plain

    @property
    def changes(self) -> Path:
        """Where the changes are written to."""
        return self.folder / "changes"

    def prepare(self) -> None:
        """Begin with an empty folder."""
        self.folder.mkdir(parents=True, exist_ok=True)

    def written(self) -> Written:
        """Return the size of the changes."""
        return Written(sum(file.stat().st_size for file in self.changes.rglob("*.parquet")), 0)

    def rows(self, spark: SparkSession) -> DataFrame:
        """Return the table's rows with the changes in place of those that they replace."""
        changes = spark.read.parquet(str(self.changes))
        found = f"regexp_extract({FILE}, '[^/]+$', 0) AS file"
        gone = changes.filter(f"{FILE} IS NOT NULL").selectExpr(found, f"CAST({PLACE} AS BIGINT) AS place")
        held = spark.read.parquet(str(self.table)).selectExpr(
            *self.task.names, "_metadata.file_name AS file", "_metadata.row_index AS place"
        )
        left = held.join(gone, ["file", "place"], "left_anti").select(*self.task.names)
        return left.unionByName(changes.filter("op <> 'd'").select(*self.task.names))


def joined_changes(names: list[str]) -> str:
    """Return the SQL, Spark's and DuckDB's, of the changes: of ``s``, the last events, joined to ``t``, the table's keys and places."""
    return f"""
        SELECT {", ".join(f"s.{name}" for name in names)}, s.op, t.file AS {FILE}, t.place AS {PLACE}
        FROM s LEFT JOIN t ON s.{KEY} = t.{KEY} WHERE s.op <> 'd' OR t.file IS NOT NULL
    """
