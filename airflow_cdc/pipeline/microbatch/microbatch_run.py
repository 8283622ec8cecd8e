"""One attempt at one microbatch: inputs for its steps, and where they store intermediate results."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from airflow_cdc.model.archive.completeness import OffsetGap
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.operation import ROW_OPERATIONS
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
from airflow_cdc.pipeline.decode.renamed_columns import under_new_names
from airflow_cdc.pipeline.decode.schema_types import read_across
from airflow_cdc.pipeline.locate.file_parts import read_microbatch
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.connect import computed
from airflow_cdc.pipeline.spark.session import compile_for_table, noted, transaction
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.survey.source_facts import NOTHING_KNOWN, SourceFacts
from airflow_cdc.pipeline.target.flag_deletes import IS_LIVE
from airflow_cdc.pipeline.target.key_range import KeyRange
from airflow_cdc.pipeline.target.merge_plan import detailed_plan
from airflow_cdc.pipeline.target.target_table import TargetTable

_STAGED = {"parquet.enable.dictionary": "false", "compression": "lz4_raw"}
"""Staged files are read twice and then removed: dictionaries and better compression would cost more than they save."""


def decoder_across(decoder: Decoder, flow: CdcFlow, earlier: Sequence[Microbatch]) -> Decoder:
    """Return the decoder that reads the events of earlier microbatches too, each event by its own schema."""
    rows = {operation.value for operation in ROW_OPERATIONS}
    theirs = [shape for each in earlier for shape in each.shapes if shape.topic == flow.topic]
    shapes = [
        under_new_names(shape, decoder.columns.renames)
        for shape in (*decoder.shapes, *theirs)
        if shape.kind in rows and not decoder.foreign.holds(shape)
    ]
    return replace(decoder, columns=read_across(decoder.columns, shapes, flow))


def decoder_for(decoder: Decoder, microbatch: Microbatch) -> Decoder:
    """Return the decoder for an earlier microbatch: current types and epochs, with the lives of the topic in that microbatch's files."""
    return replace(decoder, files=microbatch.files, shapes=microbatch.shapes, lives=microbatch.lives)


def _as_staged(rows: DataFrame) -> DataFrame:
    """Return rows with the types that they would have from a file: what is in arrays and structs may be NULL."""
    return rows.select(*[F.col(sql.name(field.name)).cast(field.dataType.simpleString()).alias(field.name) for field in rows.schema.fields])


@dataclass(frozen=True, kw_only=True)
class MicrobatchRun:
    """One attempt at one microbatch."""

    spark: SparkSession
    """A session for this attempt only: the transaction identifier is a session setting."""
    lake: str
    flow: CdcFlow
    application: str
    """Delta application identifier of the commits: flow and incarnation; microbatch numbers rise by one within it."""
    checkpoint: FlowCheckpoint
    """The flow's checkpoint before this microbatch."""
    microbatch: Microbatch
    past: FlowState
    """The flow's earlier intents and reports."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Receives the name of each effect once it is done; tests crash there."""
    is_retry: bool = True
    """Whether an earlier run planned it, and so may have merged it."""
    facts: SourceFacts = NOTHING_KNOWN
    """Facts about the source's table from outside the events."""
    found_epochs: Epochs | None = None
    """Where epochs of the source's log begin, as found by this attempt; None: as in the checkpoint."""
    is_dry: bool = False
    """Whether nothing may be written: the report then counts what would happen to the rows."""
    note: Callable[[str], None] = lambda line: None
    """Receives lines about the run's progress."""
    keeps_columns: Callable[[Mapping[str, str]], None] = lambda columns: None
    """Receives the target's columns (Spark SQL types by name), where the microbatch leaves them as they are."""
    awaits: Callable[[Sequence[OffsetGap]], bool] = lambda gaps: False
    """Whether missing offsets may still come, so that what depends on them waits."""
    engine_reason: str = ""
    """Why the native engine did not take the microbatch, where the flow allows it."""
    seen_through: int | None = None
    """Table version up to which foreign changes were looked for; None where they were not."""

    @property
    def table(self) -> str:
        """URI of the target table."""
        return spark_uri(self.flow.table_path(self.lake))

    @property
    def epochs(self) -> Epochs:
        """Where epochs of the source's log begin; a new lane begins in the newest epoch."""
        if self.found_epochs is not None:
            return self.found_epochs
        return self.checkpoint.epochs.with_new_lanes(self.new_lanes)

    @property
    def new_lanes(self) -> frozenset[str]:
        """Lanes that no earlier microbatch held."""
        return self.lanes - self.checkpoint.reach.partitions

    @property
    def tables(self) -> frozenset[str]:
        """Names of the source's tables with events in the flow so far, including the microbatch's."""
        return self.checkpoint.tables | tables_of(self.microbatch)

    @property
    def lanes(self) -> frozenset[str]:
        """All lanes that the flow has seen (:mod:`airflow_cdc.model.position.lives`), including the microbatch's."""
        return self.checkpoint.reach.partitions | {str(item.partition) for item in self.microbatch.offsets}

    @property
    def name(self) -> str:
        """What an error calls the run."""
        return f"Flow {self.flow.name}, microbatch {self.microbatch.number}"

    @property
    def may_read_log(self) -> bool:
        """Whether the target's log can be read without Spark."""
        # fsspec has credentials only for the lake's store.
        return store_of(self.table) == store_of(spark_uri(self.lake))

    def state(self, uri_of: Callable[[str, str], str]) -> str:
        """Return the URI of one of the flow's own tables or folders, as Spark spells it."""
        return uri_of(spark_uri(self.lake), self.past.folder)

    def lines(self, *, numbered: bool = False) -> DataFrame:
        """Return the archived lines that the microbatch owns (:func:`airflow_cdc.pipeline.read.read_lines.read_lines`)."""
        return read_microbatch(self.spark, self.microbatch, numbered=numbered)

    def rows_of(self, target: TargetTable) -> DataFrame:
        """Return the target's live rows; flagged deletes are excluded."""
        rows = self.spark.sql(f"SELECT * FROM {sql.delta(target.uri)}")
        return rows.filter(IS_LIVE) if target.flags_deletes else rows

    def committing(self, report: BatchReport, **more: Any) -> AbstractContextManager[None]:
        """Attach the microbatch's identifier, its report and ``more`` to the Delta commit made inside."""
        metadata = self.commit_metadata(report, **more)
        return transaction(self.spark, application=self.application, version=self.microbatch.number, metadata=metadata)

    def commit_metadata(self, report: BatchReport, **more: Any) -> str:
        """Return the user metadata of the microbatch's commit: its identifier, its report and ``more``."""
        ours = {APPLICATION: self.application, INTENT: self.microbatch.digest, SEEN_THROUGH: self.seen_through}
        return metadata_text({**ours, "microbatch": self.microbatch.number, "report": report.to_json(), **more})

    def tending(self) -> AbstractContextManager[None]:
        """Attach the flow's identifier to a Delta commit that merges nothing: an UPDATE has no other mark of its writer."""
        return noted(self.spark, metadata_text({UPKEEP: self.application}))

    def merging(
        self, target: TargetTable, report: BatchReport, *, within: Sequence[KeyRange] = (), **more: Any
    ) -> AbstractContextManager[None]:
        """Prepare a MERGE into the target, and its commit as :meth:`committing` does, with the table's number of files.

        :param within: the key ranges in the MERGE condition.
        :param more: further metadata of the commit.
        """
        compile_for_table(self.spark, table_bytes=target.size)
        plan = detailed_plan(report.merge_plan, deletion_vectors=target.deletion_vectors, within=within)
        return self.committing(replace(report, merge_plan=plan), files=target.files, **more)

    def write_down(self, rows: DataFrame, name: str) -> DataFrame:
        """Write rows to the staging folder and return them from there, so that they are computed once.

        A dry run keeps them in Spark.
        """
        if self.is_dry:
            # A checkpoint keeps constraints on columns that it no longer has, and Spark fails at the next union.
            self.spark.conf.set("spark.sql.constraintPropagation.enabled", "false")
            return computed(_as_staged(rows))
        folder = self.new_staging_folder(name)
        rows.write.options(**_STAGED).parquet(f"{self.state(staging_uri)}/{folder}")
        return self.read_staged([folder], rows.schema)

    def new_staging_folder(self, name: str) -> str:
        """Return the name of a new folder below the flow's staging folder."""
        return f"{self.microbatch.number:08d}-{name}-{uuid.uuid4().hex[:8]}"

    def staged_at(self, folder: str) -> str:
        """Return the URI of a folder below the flow's staging folder, as the job's own calls spell it."""
        return f"{staging_uri(self.lake, self.past.folder)}/{folder}"

    def read_staged(self, places: Sequence[str], schema: StructType) -> DataFrame:
        """Return the rows that were staged into folders or files below the flow's staging folder."""
        self.after_effect("stage")
        return self.spark.read.schema(schema).parquet(*(f"{self.state(staging_uri)}/{place}" for place in places))
