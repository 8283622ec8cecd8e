"""Small batches whose keys lie all over a table: ours against the textbook's."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.archive_run import ArchiveRun
from benchmarks import textbook
from benchmarks.events import TOPIC, Change, spread, write_events
from benchmarks.measure import Result, measure

ROWS, EVENTS, ROUNDS, WARM_UPS = 200_000, 20_000, 3, 2


def run(spark: SparkSession, folder: Path) -> Result:
    """Merge a snapshot and then batches of updates and deletes; each batch by both, in turn.

    The table that both end with must be the same, else the result is void.
    """
    result = Result("spread", f"{EVENTS:,} events spread over {ROWS:,} rows", "textbook", {"ours": [], "textbook": []})
    theirs = (folder / "textbook").absolute()
    peer = spark.newSession()
    peer.conf.set("spark.sql.ansi.enabled", "false")
    peer.conf.set("spark.sql.shuffle.partitions", "2")
    for number in range(WARM_UPS + ROUNDS):
        file = folder / "archive" / f"{number:03d}.jsonl"
        first = number * 10_000_000
        snapshot = (Change("r", key, 0) for key in range(ROWS))
        changes = spread(EVENTS, ROWS, first_transaction=first, seed=number) if number else snapshot
        write_events(file, changes, first=first, seed=number)
        ours = ArchiveRun(spark, str(folder / "archive"), str(folder / "lake"))
        works = {"ours": lambda ours=ours: apply_archive(ours), "textbook": lambda file=file: textbook.merge(peer, file, theirs)}
        for name in sorted(works, reverse=bool(number % 2)):
            taken = measure(works[name])
            # The snapshot and the first batch warm up.
            result.taken[name] += [taken] if number >= WARM_UPS else []
    columns = "id, CAST(amount AS DECIMAL(12,2)) AS amount, name, city, visits, note"
    tables = [spark.sql(f"SELECT {columns} FROM delta.`{path}`") for path in ((folder / "lake" / TOPIC).absolute(), theirs)]
    differing = tables[0].exceptAll(tables[1]).count() + tables[1].exceptAll(tables[0]).count()
    result.facts = {"rows": tables[0].count(), "differing": differing}
    result.void = f"the tables differ in {differing} rows" if differing else ""
    return result
