"""Source facts: what is known of a source's tables beside the events of a microbatch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.source_schema import SourceSchema, SourceSchemas
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.archived_schemas import ArchivedFields, ArchivedSchemas
from airflow_cdc.pipeline.survey.schema_changes import ChangesOf, SchemaChanges, no_changes


def _no_fields(_topic: str) -> ArchivedFields:
    return ArchivedFields()


def _no_schema(_topic: str) -> SourceSchema | None:
    return None


@dataclass(frozen=True)
class SourceFacts:
    """Who can be asked about a topic's table; each is asked only where the events do not say it themselves."""

    changes: ChangesOf = no_changes
    """What the schema-change topics say."""
    archived: Callable[[str], ArchivedFields] = _no_fields
    """What the schemas inside other events of the topic say."""
    handed_over: Callable[[str], SourceSchema | None] = _no_schema
    """What was imported (``airflow-cdc schema import``)."""


NOTHING_KNOWN = SourceFacts()


def facts_of(spark: SparkSession, archive: ArchiveState, ledger: Ledger, lake: str) -> SourceFacts:
    """Return what an archive and a lake know of the sources' tables; nothing is read before it is asked for.

    :param lake: URI of the lake's root.
    """
    fs, root = file_system(lake)
    schemas = SourceSchemas(fs, root)
    return SourceFacts(
        SchemaChanges(spark, archive, ledger).of,
        ArchivedSchemas(archive, ledger).of,
        lambda topic: schemas.of(FlowState(fs, root, topic).folder),
    )
