"""One attempt at one microbatch: what its steps need to know, and where they write down what they have."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.places import staging_uri
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.foreign_change import APPLICATION, INTENT, SEEN_THROUGH, UPKEEP
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.commit_metadata import metadata_text
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.model.storage import store_of
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.decode.physical_tables import tables_of
from airflow_cdc.pipeline.locate.file_parts import read_microbatch
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.session import compile_for_table, noted, transaction
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.survey.source_facts import NOTHING_KNOWN, SourceFacts
from airflow_cdc.pipeline.target.flag_deletes import IS_LIVE
from airflow_cdc.pipeline.target.key_range import KeyRange
from airflow_cdc.pipeline.target.merge_plan import told_plan
from airflow_cdc.pipeline.target.target_table import TargetTable

_STAGED = {"parquet.enable.dictionary": "false", "compression": "lz4_raw"}
"""Read twice and thrown away: to look for repeated values and to compress well would cost more than it saves."""


def decoder_for(decoder: Decoder, microbatch: Microbatch) -> Decoder:
    """Return the decoder as it reads an earlier microbatch: types and epochs of today, the lives of the topic in that one's files."""
    return replace(decoder, files=microbatch.files, shapes=microbatch.shapes, lives=microbatch.lives)


@dataclass(frozen=True, kw_only=True)
class MicrobatchRun:
    """One attempt at one microbatch."""

    spark: SparkSession
    """A session of its own: the transaction identifier is a setting of it."""
    lake: str
    flow: CdcFlow
    application: str
    """Who commits: flow and incarnation; microbatches rise by one in it."""
    checkpoint: FlowCheckpoint
    """Where the flow stood before this microbatch."""
    microbatch: Microbatch
    past: FlowState
    """The flow's earlier intents and reports."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Told the name of each effect when it is done; tests crash there."""
    is_retry: bool = True
    """Whether an earlier run planned it, and so may have merged it."""
    facts: SourceFacts = NOTHING_KNOWN
    """What is known of the source's table beside the events."""
    found_epochs: Epochs | None = None
    """Where epochs of the source's log begin, as this attempt found out; None: as the checkpoint knows."""
    is_dry: bool = False
    """Whether nothing may be written: the report then says what would become of the rows."""
    seen_through: int | None = None
    """Version of the table up to which it was looked for foreign changes; None where none was asked for."""

    @property
    def table(self) -> str:
        """URI of the target table."""
        return spark_uri(self.flow.table_path(self.lake))

    @property
    def epochs(self) -> Epochs:
        """Where epochs of the source's log begin; a lane that was never seen begins in the newest."""
        if self.found_epochs is not None:
            return self.found_epochs
        return self.checkpoint.epochs.with_new_lanes(self.new_lanes)

    @property
    def new_lanes(self) -> frozenset[str]:
        """Lanes that no earlier microbatch held."""
        return self.lanes - self.checkpoint.reach.partitions

    @property
    def tables(self) -> frozenset[str]:
        """Names of the source's tables whose events the flow has seen, those of the microbatch among them."""
        return self.checkpoint.tables | tables_of(self.microbatch)

    @property
    def lanes(self) -> frozenset[str]:
        """All lanes that the flow has seen (:mod:`airflow_cdc.model.position.lives`), those of the microbatch among them."""
        return self.checkpoint.reach.partitions | {str(item.partition) for item in self.microbatch.offsets}

    @property
    def may_read_log(self) -> bool:
        """Whether the target's log can be read without Spark."""
        # Where the state lies, fsspec reads; what it needs for another store nobody may have told it.
        return store_of(self.table) == store_of(spark_uri(self.lake))

    def state(self, uri_of: Callable[[str, str], str]) -> str:
        """Return the URI of one of the flow's own tables or folders, as Spark spells it."""
        return uri_of(spark_uri(self.lake), self.past.folder)

    def lines(self, *, numbered: bool = False) -> DataFrame:
        """Return the archived lines that the microbatch owns (:func:`airflow_cdc.pipeline.read.read_lines.read_lines`)."""
        return read_microbatch(self.spark, self.microbatch, numbered=numbered)

    def rows_of(self, target: TargetTable) -> DataFrame:
        """Return the target's rows as they are; a row that is flagged as deleted is none."""
        rows = self.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}")
        return rows.filter(IS_LIVE) if target.flags_deletes else rows

    def committing(self, report: BatchReport, **more: Any) -> AbstractContextManager[None]:
        """Make the Delta commit inside carry the microbatch's identifier, its report, and ``more``."""
        ours = {APPLICATION: self.application, INTENT: self.microbatch.digest, SEEN_THROUGH: self.seen_through}
        metadata = {**ours, "microbatch": self.microbatch.number, "report": report.to_json(), **more}
        return transaction(self.spark, application=self.application, version=self.microbatch.number, metadata=metadata_text(metadata))

    def tending(self) -> AbstractContextManager[None]:
        """Make the Delta commit inside say whose it is, where it merges nothing: of an UPDATE nobody else could tell."""
        return noted(self.spark, metadata_text({UPKEEP: self.application}))

    def merging(self, target: TargetTable, report: BatchReport, *, within: Sequence[KeyRange] = ()) -> AbstractContextManager[None]:
        """Make ready for a MERGE into the target, and its commit as :meth:`committing` does, with the table's number of files.

        :param within: the ranges of keys that the MERGE names.
        """
        compile_for_table(self.spark, table_bytes=target.size)
        plan = told_plan(report.merge_plan, deletion_vectors=target.deletion_vectors, within=within)
        return self.committing(replace(report, merge_plan=plan), files=target.files)

    def write_down(self, rows: DataFrame, name: str) -> DataFrame:
        """Write rows to the staging folder and return them from there, so that nothing computes them again.

        A dry run keeps them in Spark.
        """
        if self.is_dry:
            return rows.localCheckpoint()
        folder = f"{self.state(staging_uri)}/{self.microbatch.number:08d}-{name}-{uuid.uuid4().hex[:8]}"
        rows.write.options(**_STAGED).parquet(folder)
        self.after_effect("stage")
        return self.spark.read.schema(rows.schema).parquet(folder)
