"""A run that succeeds and did not do well says so: in its report, in the lake's metrics, in the page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.metrics import ATTENTION
from airflow_cdc.pipeline.look.flow_metrics import samples_of_lake
from airflow_cdc.pipeline.run.apply_archive import ArchiveRun, apply_archive
from tests.support.events import TOPIC, numbered, sqlserver, write_records


class Lake:
    """A lake into which files are applied by the settings of a flows file."""

    def __init__(self, spark: SparkSession, folder: Path, **settings: Any) -> None:
        self.spark, self.folder, self.flow = spark, folder, CdcFlow.from_mapping({"topic": TOPIC, **settings})

    def apply(self, first: int, keys: range, *, bad: int = 0) -> list[str]:
        """Apply a file with a create of each key and with bad lines; return what of the flow needs a look."""
        events = [sqlserver("c", commit=first + key, after={"id": key, "name": ""}) for key in keys]
        path = self.folder / "archive" / f"{first:04d}.jsonl"
        path.parent.mkdir(exist_ok=True)
        write_records(path, numbered(events, first=first))
        with path.open("a", encoding="utf-8") as file:
            file.writelines(f'{{"topic": "{TOPIC}", "value": {{"op": "c", \n' for _ in range(bad))
        run = ArchiveRun(self.spark, str(path.parent), str(self.folder / "lake"), {TOPIC: self.flow})
        (outcome,) = apply_archive(run).flows
        assert outcome.error is None
        (sample,) = [each for each in samples_of_lake(str(self.folder / "lake")) if each.metric is ATTENTION]
        assert sample.value == len(outcome.attention)
        return list(outcome.attention)


def test_a_run_that_rejected_most_of_its_records_needs_a_look_also_after_a_good_one(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    assert lake.apply(0, range(1)) == []
    found = ["Rejected records, now in the quarantine: 30 of 32 records (30 malformed_json)"]
    assert lake.apply(1, range(1, 2), bad=30) == found
    assert lake.apply(2, range(2, 3)) == ["Rejected records, now in the quarantine: 30 of 33 records (30 malformed_json)"]


def test_the_flows_file_says_how_much_is_too_much(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path, warn_above={"rejected": 0.5, "missing_offsets": 10})
    assert lake.apply(0, range(4)) == []
    assert lake.apply(14, range(4, 5)) == []
    missing = "Kafka offsets that are missing from the archive: 15 offsets"
    # Ten offsets were missing before it; five more are.
    assert lake.apply(20, range(5, 6)) == [missing]
    assert lake.apply(21, range(6, 9), bad=3) == [missing]
    assert lake.apply(24, range(9, 10), bad=2) == ["Rejected records, now in the quarantine: 2 of 3 records (2 malformed_json)", missing]
