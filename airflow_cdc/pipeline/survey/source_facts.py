"""Source facts: knowledge of a source's tables from outside a microbatch's events."""

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
    """Sources of facts about a topic's table; each is used only for what the events do not carry themselves."""

    changes: ChangesOf = no_changes
    """Changes in the schema-change topics."""
    archived: Callable[[str], ArchivedFields] = _no_fields
    """Fields in the schemas inside other events of the topic."""
    handed_over: Callable[[str], SourceSchema | None] = _no_schema
    """An imported schema (``airflow-cdc schema import``)."""


NOTHING_KNOWN = SourceFacts()


def facts_of(spark: SparkSession, archive: ArchiveState, ledger: Ledger, lake: str) -> SourceFacts:
    """Return the facts that an archive and a lake hold about the sources' tables. Each is read on first use.

    :param lake: URI of the lake's root.
    """
    fs, root = file_system(lake)
    schemas = SourceSchemas(fs, root)
    return SourceFacts(
        SchemaChanges(spark, archive, ledger).of,
        ArchivedSchemas(archive, ledger).of,
        lambda topic: schemas.of(FlowState(fs, root, topic).folder),
    )
