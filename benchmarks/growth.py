"""Growth: the same batch into a table, and into one ten times as large."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from airflow_cdc.model.report.foreign_change import INTENDED
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from benchmarks import size, small_textbook
from benchmarks.measure import Budget, Result, Taken, measure
from benchmarks.small_events import Source, fingerprint

TIMES, HOT, MOST_RATIO = 10, 0.05, 1.3
_FILE = 0.625
"""Rows of a file, of those of the small table: at every size it has one file, and the large one sixteen."""
_ROW = (
    "id",
    "CAST(CAST(id % 1000000 AS DECIMAL(12,2)) AS STRING) AS amount",
    "concat('name ', id) AS name",
    "concat('city ', id % 500) AS city",
    "id % 1000 AS visits",
    "md5(CAST(id AS STRING)) AS note",
)


def run(spark: SparkSession, folder: Path) -> Result:
    """Merge batches on the newest keys, then batches all over the table, into the small table and the large one in turn."""
    small, rounds = size.of(tiny=(10_000, 1), quick=(50_000, 3), full=(1_000_000, 3))
    events = small // TIMES
    tables = [_Table(spark, folder / str(rows), rows, int(small * _FILE)) for rows in (small, small * TIMES)]
    for table in tables:
        table.fill()
    title = f"{events:,} events into {small:,} and {small * TIMES:,} rows, on the newest {HOT:.0%} of the keys and all over them"
    budgets = (Budget(_name("hot", tables[0]), MOST_RATIO, of=_name("hot", tables[1])),)
    result = Result("growth", title, _name("hot", tables[0]), budgets=budgets)
    for kind in ("hot", "spread"):
        for number in range(rounds + 1):
            for table in tables[:: -1 if number % 2 else 1]:
                taken = table.merge(kind, events)
                # The first round warms up.
                result.taken.setdefault(_name(kind, table), []).extend([taken] if number else [])
    result.void = "".join(table.differs() for table in tables)
    spread = [_name("spread", table) for table in tables]
    result.facts = {
        "spread: CPU into the large table, as a multiple": round(result.ratio(spread[1], "cpu", spread[0]), 3),
        "files": {f"{table.rows:,} rows": table.files for table in tables},
        "rows changed, the last batch of each": {f"{table.rows:,} rows": table.changed for table in tables},
    }
    return result


def _name(kind: str, table: _Table) -> str:
    return f"{kind}, {table.rows:,} rows"


@dataclass
class _Table:
    spark: SparkSession
    folder: Path
    rows: int
    rows_a_file: int
    changed: dict[str, int] = field(default_factory=dict)
    """By kind of batch: rows that its last one inserted, updated or deleted."""

    def __post_init__(self) -> None:
        self.source = Source(seed=self.rows, others=range(1, self.rows))
        self.batches = 0
        self.target = (self.folder / "lake" / self.source.topic).absolute()

    def fill(self) -> None:
        """Let a run make the table of one row, and put the others beside it as if it had merged them too."""
        self.source.read(self._file(), [0])
        self._apply()
        made = self._table()
        own = made.select(*[name for name in made.columns if name.startswith("__cdc_")])
        # As a table by keys is laid out: each file holds a range of them.
        others = self.spark.range(1, self.rows, 1, max(1, self.rows // self.rows_a_file)).selectExpr(*_ROW)
        # The flow would stop at rows that it has not merged.
        vouched_for = others.crossJoin(F.broadcast(own)).select(*made.columns).write.option("userMetadata", INTENDED)
        vouched_for.format("delta").mode("append").save(str(self.target))

    def merge(self, kind: str, events: int) -> Taken:
        keys = range(int(self.rows * (1 - HOT)), self.rows) if kind == "hot" else range(self.rows)
        self.batches += 1
        self.source.change(self._file(), events, keys)
        taken = measure(self._apply)
        self.changed[kind] = self._changed
        return taken

    def differs(self) -> str:
        """Return in words how the table differs from what it should be; empty where it does not."""
        touched = self.spark.createDataFrame([(key,) for key in {*self.source.rows, *self.source.gone}], "id BIGINT")
        others = self.spark.range(1, self.rows).selectExpr(*_ROW).join(touched, "id", "left_anti")
        rows = self.source.write_rows(self.folder / "rows.jsonl")
        parts = [fingerprint(others), fingerprint(self.spark.read.schema(small_textbook.COLUMNS).json(str(rows)))]
        expected = (sum(part[0] for part in parts), sum(part[1] for part in parts))
        found = fingerprint(self._table())
        return "" if found == expected else f"the table of {self.rows:,} rows is {found}, expected {expected}. "

    @property
    def files(self) -> int:
        """How many data files the table has now."""
        return int(self.spark.sql(f"DESCRIBE DETAIL delta.`{self.target}`").collect()[0]["numFiles"])

    def _apply(self) -> None:
        report = apply_archive(ArchiveRun(self.spark, str(self.folder / "archive"), str(self.folder / "lake")))
        counts = report.flows[0].batches[-1].rows
        self._changed = counts.inserted + counts.updated + counts.deleted

    def _file(self) -> Path:
        return self.folder / "archive" / f"{self.batches:03d}.jsonl"

    def _table(self) -> DataFrame:
        return self.spark.read.format("delta").load(str(self.target))
