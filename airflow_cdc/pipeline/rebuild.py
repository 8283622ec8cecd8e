"""Rebuild a flow from its archive, wholly or as of a moment, in a lake of its own: the live table and its state are not touched."""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone

from pyspark.sql import SparkSession

from airflow_cdc.model.as_of import AsOf
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow import CdcFlow
from airflow_cdc.model.lake import ArchiveState, Ledger, flows_in
from airflow_cdc.model.outcome import ApplyReport
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.pipeline.apply_archive import apply_archive
from airflow_cdc.pipeline.archive import spark_uri
from airflow_cdc.pipeline.archive_run import ArchiveRun
from airflow_cdc.pipeline.file_parts import FlowEnd
from airflow_cdc.pipeline.find_end import find_end
from airflow_cdc.pipeline.merge import read_target
from airflow_cdc.pipeline.storage import file_system


@dataclass(frozen=True)
class Rebuild:
    """What to rebuild, from what, and into what."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the root of the lake in which the flow lives: what its runs know of the archive is taken from there."""
    flow: str
    """Name of the flow."""
    as_of: AsOf | None = None
    """The last moment to apply; None: everything."""
    into: str | None = None
    """URI of the new lake's root; None: a folder named after the current time below the live lake's state."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as the flow's runs have them; where the flow's table lies and what it is called does not count."""
    progress: Callable[[str], None] = lambda line: None
    """Told what happens, a line at a time."""


def rebuild(order: Rebuild) -> ApplyReport:
    """Apply a flow's archived files to a new lake, up to and including the transaction at a moment.

    :return: the report of the new lake's run; its ``lake`` is where the table lies, as ``<lake>/<flow>``.
    :raises ConfigurationError: when the new lake knows the flow already, or the archive does not.
    :raises CdcError: when the archive or the lake's state cannot be read at all.
    """
    archive, into = absolute_uri(order.archive), absolute_uri(order.into or _new_folder(absolute_uri(order.lake)))
    _refuse_if_taken(order, into)
    state = _copy_surveys(archive, absolute_uri(order.lake), into)
    order.progress(f"{order.flow}: rebuilding into {into}")
    report = apply_archive(
        ArchiveRun(
            order.spark,
            archive,
            into,
            # A table of its own place or name is the live one.
            {order.flow: replace(order.flows.get(order.flow, CdcFlow(order.flow)), table=None, catalog_table=())},
            (glob.escape(order.flow),),
            order.progress,
            end_of=_end_as_of(order.spark, order.as_of) if order.as_of else None,
        )
    )
    if not report.flows:
        raise ConfigurationError(
            f"Archive {archive} holds no flow {order.flow}; its flows are {state.ledger().tables()}.",
            next_step="Correct the flow's name or the archive's root.",
        )
    return report


def _new_folder(lake: str) -> str:
    moment = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/rebuilds/{moment}"


def _refuse_if_taken(order: Rebuild, into: str) -> None:
    fs, root = file_system(into)
    table = CdcFlow(order.flow).table_path(into)
    if order.flow in flows_in(fs, root) or read_target(order.spark, spark_uri(table)) is not None:
        raise ConfigurationError(
            f"{into} holds a table or the state of flow {order.flow} already; a rebuild begins with nothing.",
            next_step="Name another folder with --into, or leave it out.",
        )


def _copy_surveys(archive: str, lake: str, into: str) -> ArchiveState:
    """Give the new lake what the live one knows of the archive, so that nothing is looked into twice."""
    live, new = (ArchiveState(fs, root, archive) for fs, root in map(file_system, (lake, into)))
    # Beside surveys of its own the copies would hold files twice.
    if not new.ledger().surveyed_through:
        for survey in live.surveys(1, live.ledger().surveyed_through):
            new.add(survey)
    return new


def _end_as_of(spark: SparkSession, as_of: AsOf) -> Callable[[ArchiveState, Ledger, str], FlowEnd]:
    return lambda state, ledger, flow: find_end(spark, state, ledger, flow, as_of)
