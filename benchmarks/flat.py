"""Flat: one table, microbatch after microbatch, maintained every ten; the last must cost what the tenth did."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.model.maintenance import MaintenanceSettings
from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.archive_run import ArchiveRun
from airflow_cdc.pipeline.maintain import MaintenanceRun, maintain
from benchmarks.measure import Result, Taken, measure
from benchmarks.small_events import Source, differs

EVERY, MOST_RATIO, NEIGHBOURS = 10, 1.2, 5
FIRST = "batches 6 to 10"


@dataclass(frozen=True)
class _Size:
    rows: int
    events: int
    batches: int


def run(spark: SparkSession, folder: Path, *, full: bool = False) -> Result:
    """Merge batch after batch; of the figures those of five batches up to the tenth and up to the last are held against each other.

    Both fives stand right before a clean-up, so that they meet equally many small files.
    """
    size = _Size(1_000_000, 20_000, 100) if full else _Size(100_000, 5_000, 20)
    last = f"batches {size.batches - NEIGHBOURS + 1} to {size.batches}"
    told = f"{size.batches} microbatches of {size.events:,} events into {size.rows:,} rows, maintained every {EVERY}"
    source = Source(seed=1)
    batches, maintained, files = _work(spark, folder, source, size)
    result = Result(
        "flat", told, FIRST, {FIRST: batches[EVERY - NEIGHBOURS : EVERY], last: batches[-NEIGHBOURS:], "maintenance": maintained}
    )
    lake = folder / "lake"
    table = (lake / source.topic).absolute()
    result.void = differs(spark, table, source.write_rows(folder / "rows.jsonl"))
    on_disk = _on_disk(lake)
    maintain(MaintenanceRun(spark, str(lake), settings=MaintenanceSettings(vacuum_after=timedelta(0), allow_short_retention=True)))
    ratio, most = result.ratio(last, "cpu"), max(files)
    tens = [batches[start : start + EVERY] for start in range(0, size.batches, EVERY)]
    result.facts = {
        "budget": f"CPU of {last} at most {MOST_RATIO} of {FIRST}, files bounded",
        "met": ratio <= MOST_RATIO and most <= files[0] + EVERY,
        "ratio": round(ratio, 3),
        "CPU s a batch, median of each ten": [round(statistics.median(item.cpu for item in ten), 2) for ten in tens],
        "live files before each clean-up": files,
        "files on disk": on_disk,
        "files on disk after a clean-up without retention": _on_disk(lake),
    }
    return result


def _work(spark: SparkSession, folder: Path, source: Source, size: _Size) -> tuple[list[Taken], list[Taken], list[int]]:
    """Return what the batches took, what maintenance took, and how many live files each of its runs found."""
    archive, lake = folder / "archive", folder / "lake"
    run = ArchiveRun(spark, str(archive), str(lake))
    source.read(archive / "0000.jsonl", range(size.rows))
    apply_archive(run)
    batches, maintained, files = list[Taken](), list[Taken](), list[int]()
    for number in range(1, size.batches + 1):
        source.change(archive / f"{number:04d}.jsonl", size.events, range(size.rows))
        batches.append(measure(lambda: apply_archive(run)))
        if number % EVERY == 0:
            table = (lake / source.topic).absolute()
            files.append(int(spark.sql(f"DESCRIBE DETAIL delta.`{table}`").collect()[0]["numFiles"]))
            maintained.append(measure(lambda: maintain(MaintenanceRun(spark, str(lake)))))
    return batches, maintained, files


def _on_disk(lake: Path) -> dict[str, int]:
    files = [path.relative_to(lake) for path in lake.rglob("*") if path.is_file() and not path.name.endswith(".crc")]
    kinds = {
        "data": [path for path in files if path.suffix == ".parquet" and "_delta_log" not in path.parts],
        "logs": [path for path in files if "_delta_log" in path.parts],
        "state": [path for path in files if path.suffix == ".json" and path.parts[0] == "_cdc" and "_delta_log" not in path.parts],
    }
    return {kind: len(found) for kind, found in kinds.items()}
