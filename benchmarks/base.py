"""Tables of millions of rows, made once and kept: each contestant merges into a copy of the one that it would have made itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.columns import TARGET_COLUMNS
from airflow_cdc.model.flow import CdcFlow
from airflow_cdc.model.outcome import ApplyReport, FlowStatus
from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.archive_run import ArchiveRun
from airflow_cdc.pipeline.fit_table import DELETION_VECTORS_FROM_BYTES
from benchmarks.archives import write_snapshot
from benchmarks.delta_files import live_files
from benchmarks.shapes import TOPIC, Shape

_FILES = 16
_VERSION = 1
"""Of what is made here: another one, and tables that lie about are made anew."""
AUTOCDC_SEQUENCE = "STRUCT<commit: STRING, change: STRING, serial: BIGINT>"
AUTOCDC_METADATA = "__spark_autocdc_metadata"


@dataclass(frozen=True)
class Base:
    """A table of ``rows`` rows with the keys from 0 on, laid out by key in 16 files, as the contestants would have it."""

    spark: SparkSession
    cache: Path
    shape: Shape
    rows: int

    @cached_property
    def folder(self) -> Path:
        """Where all of it lies; made at the first call."""
        folder = (self.cache / f"base-{self.shape.name}-{self.rows}-{_VERSION}").absolute()
        if not (folder / "done").exists():
            shutil.rmtree(folder, ignore_errors=True)
            self._make(folder)
            (folder / "done").touch()
        return folder

    @property
    def plain(self) -> Path:
        """The table without more."""
        return self.folder / "plain"

    @property
    def autocdc(self) -> Path:
        """The table with the column that AUTO CDC keeps."""
        return self.folder / "autocdc"

    @property
    def lake(self) -> Path:
        """A lake of ours that has the table for its target."""
        return self.folder / "lake"

    @property
    def archive(self) -> Path:
        """The archive that the lake knows."""
        return self.folder / "archive"

    @property
    def flow(self) -> CdcFlow:
        """The flow of the table: its settings say what bare JSON does not."""
        return CdcFlow(TOPIC, columns=self.shape.declared)

    def offer(self, files: Sequence[Path]) -> None:
        """Have the archive hold these files behind the snapshot, and no others."""
        shutil.rmtree(self.archive, ignore_errors=True)
        write_snapshot(self.archive, self.shape)
        for file in files:
            place = self.archive / TOPIC / file.parent.name / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, place)

    def _make(self, folder: Path) -> None:
        rows = self._rows()
        rows.write.format("delta").save(str(folder / "plain"))
        nothing = f"CAST(NULL AS {AUTOCDC_SEQUENCE})"
        first = f"CAST(named_struct('commit', '', 'change', '', 'serial', 0L) AS {AUTOCDC_SEQUENCE})"
        kept = f"named_struct('deleteSequence', {nothing}, 'upsertSequence', {first}) AS {AUTOCDC_METADATA}"
        rows.selectExpr("*", kept).write.format("delta").save(str(folder / "autocdc"))
        archive, lake = folder / "archive", folder / "lake"
        write_snapshot(archive, self.shape)
        apply(self.spark, archive, lake, self.flow)
        target = lake / TOPIC
        of_a_row = self.spark.read.format("delta").load(str(target)).select(*TARGET_COLUMNS).limit(1)
        rows.crossJoin(of_a_row).write.format("delta").mode("overwrite").save(str(target))
        if sum(Path(file).stat().st_size for file in live_files(target)) >= DELETION_VECTORS_FROM_BYTES:
            # As its next merge would; it would do so once in the table's life.
            self.spark.sql(f"ALTER TABLE delta.`{target}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")

    def _rows(self) -> DataFrame:
        numbers = self.spark.range(0, self.rows, 1, _FILES).selectExpr("id", "shiftrightunsigned(xxhash64(id), 2) AS h")
        return numbers.selectExpr(*self.shape.spark_row())


def apply(spark: SparkSession, archive: Path, lake: Path, flow: CdcFlow) -> ApplyReport:
    """Apply an archive of one topic by ours; return the report."""
    report = apply_archive(ArchiveRun(spark, str(archive.absolute()), str(lake.absolute()), flows={flow.topic: flow}))
    failed = [outcome.error for outcome in report.flows if outcome.status is not FlowStatus.APPLIED]
    if failed or not report.flows:
        raise RuntimeError(f"The archive was not applied: {failed}")
    return report
