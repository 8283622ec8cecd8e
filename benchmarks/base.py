"""Tables of millions of rows, made once and kept: each contestant merges into a copy of the one that it would have made itself."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.columns import TARGET_COLUMNS
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.foreign_change import INTENDED
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.target.alter_table import DELETION_VECTORS_FROM_BYTES
from benchmarks.archives import write_snapshot
from benchmarks.delta_files import link_tree, live_files
from benchmarks.shapes import TOPIC, Shape

_FILES = 16
_VERSION = 3
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

    @property
    def folder(self) -> Path:
        """Where all of it lies. Each part is made at its first call."""
        return (self.cache / f"base-{self.shape.name}-{self.rows}-{_VERSION}").absolute()

    @property
    def plain(self) -> Path:
        """The table without more."""
        return self._part("plain", lambda folder: self._rows().write.format("delta").save(str(folder)))

    @property
    def with_vectors(self) -> Path:
        """The table with deletion vectors allowed."""
        return self._part("with_vectors", self._make_with_vectors)

    @property
    def autocdc(self) -> Path:
        """The table with the column that AUTO CDC keeps, deletion vectors allowed."""
        return self._part("autocdc", self._make_autocdc)

    @property
    def lake(self) -> Path:
        """A lake of ours that has the table for its target."""
        return self._part("lake", self._make_lake)

    @property
    def archive(self) -> Path:
        """The archive that the lake knows."""
        return self.lake.with_name("archive")

    @property
    def flow(self) -> CdcFlow:
        """The flow of the table: its settings declare the types that bare JSON lacks."""
        return CdcFlow(TOPIC, columns=self.shape.declared)

    def offer(self, files: Sequence[Path]) -> None:
        """Have the archive hold these files behind the snapshot, and no others."""
        self._begin(self.archive)
        for file in files:
            place = self.archive / TOPIC / file.parent.name / file.name
            place.parent.mkdir(parents=True, exist_ok=True)
            os.link(file, place)

    def _part(self, name: str, make: Callable[[Path], object]) -> Path:
        folder, done = self.folder / name, self.folder / f"{name}.done"
        if not done.exists():
            shutil.rmtree(folder, ignore_errors=True)
            make(folder)
            done.touch()
        return folder

    def _make_with_vectors(self, folder: Path) -> None:
        link_tree(self.plain, folder)
        self._allow_deletion_vectors(folder)

    def _make_autocdc(self, folder: Path) -> None:
        nothing = f"CAST(NULL AS {AUTOCDC_SEQUENCE})"
        first = f"CAST(named_struct('commit', '', 'change', '', 'serial', 0L) AS {AUTOCDC_SEQUENCE})"
        kept = f"named_struct('deleteSequence', {nothing}, 'upsertSequence', {first}) AS {AUTOCDC_METADATA}"
        self._rows().selectExpr("*", kept).write.format("delta").save(str(folder))
        self._allow_deletion_vectors(folder)

    def _make_lake(self, lake: Path) -> None:
        archive, target = lake.with_name("archive"), lake / TOPIC
        self._begin(archive)
        apply(self.spark, archive, lake, self.flow)
        of_a_row = self.spark.read.format("delta").load(str(target)).select(*TARGET_COLUMNS).limit(1)
        # The flow would stop at rows that it has not merged.
        vouched_for = self._rows().crossJoin(of_a_row).write.option("userMetadata", INTENDED)
        vouched_for.format("delta").mode("overwrite").save(str(target))
        if sum(Path(file).stat().st_size for file in live_files(target)) >= DELETION_VECTORS_FROM_BYTES:
            # As its next merge would; it would do so once in the table's life.
            self._allow_deletion_vectors(target)

    def _begin(self, archive: Path) -> None:
        """Have an archive hold the snapshot alone."""
        shutil.rmtree(archive, ignore_errors=True)
        link_tree(self._part("snapshot", lambda folder: write_snapshot(folder, self.shape)), archive)

    def _allow_deletion_vectors(self, table: Path) -> None:
        self.spark.sql(f"ALTER TABLE delta.`{table}` SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')")

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
