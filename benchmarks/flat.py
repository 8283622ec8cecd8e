"""Flat: one table, microbatch after microbatch, maintained now and then; the last must cost what an early one did."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.model.report.maintenance import MaintenanceSettings
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.upkeep.maintain import MaintenanceRun, maintain
from benchmarks import size
from benchmarks.measure import Bound, Budget, Result, Taken, measure
from benchmarks.small_events import Source, differs

MOST_RATIO = 1.2


@dataclass(frozen=True)
class _Size:
    rows: int
    events: int
    batches: int
    every: int
    """After so many of them comes maintenance."""
    held: int
    """So many before the first and before the last are held against each other."""

    def before(self, batch: int) -> str:
        """Name those that stand at the end of the first ``batch``."""
        return f"batches {batch - self.held + 1} to {batch}"


_TINY, _QUICK, _FULL = _Size(10_000, 500, 10, 5, 2), _Size(50_000, 2_000, 10, 5, 3), _Size(1_000_000, 20_000, 100, 10, 5)


def run(spark: SparkSession, folder: Path) -> Result:
    """Merge batch after batch; of the figures those of a few batches at the beginning and at the end are held against each other.

    Both few stand right before a clean-up, so that they meet equally many small files.
    """
    chosen = size.of(tiny=_TINY, quick=_QUICK, full=_FULL)
    first, last = chosen.before(chosen.every), chosen.before(chosen.batches)
    title = f"{chosen.batches} microbatches of {chosen.events:,} events into {chosen.rows:,} rows, maintained every {chosen.every}"
    source = Source(seed=1)
    batches, maintained, files = _work(spark, folder, source, chosen)
    held = {first: batches[chosen.every - chosen.held : chosen.every], last: batches[-chosen.held :], "maintenance": maintained}
    most = Bound("live files before a clean-up", max(files), files[0] + chosen.every)
    result = Result("flat", title, first, held, budgets=(Budget(first, MOST_RATIO, of=last),), bounds=(most,))
    lake = folder / "lake"
    table = (lake / source.topic).absolute()
    result.void = differs(spark, table, source.write_rows(folder / "rows.jsonl"))
    on_disk = _on_disk(lake)
    maintain(MaintenanceRun(spark, str(lake), settings=MaintenanceSettings(vacuum_after=timedelta(0), allow_short_retention=True)))
    between = [batches[start : start + chosen.every] for start in range(0, chosen.batches, chosen.every)]
    result.facts = {
        "CPU s a batch, medians between clean-ups": [round(statistics.median(item.cpu for item in some), 2) for some in between],
        "live files before each clean-up": files,
        "files on disk": on_disk,
        "files on disk after a clean-up without retention": _on_disk(lake),
    }
    return result


def _work(spark: SparkSession, folder: Path, source: Source, chosen: _Size) -> tuple[list[Taken], list[Taken], list[int]]:
    """Return what the batches took, what maintenance took, and how many live files each of its runs found."""
    archive, lake = folder / "archive", folder / "lake"
    run = ArchiveRun(spark, str(archive), str(lake))
    source.read(archive / "0000.jsonl", range(chosen.rows))
    apply_archive(run)
    batches, maintained, files = list[Taken](), list[Taken](), list[int]()
    for number in range(1, chosen.batches + 1):
        source.change(archive / f"{number:04d}.jsonl", chosen.events, range(chosen.rows))
        batches.append(measure(lambda: apply_archive(run)))
        if number % chosen.every == 0:
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
