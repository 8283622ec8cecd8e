"""Retype flows one after another in one Spark application."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.retyping import FlowRetype, RetypeReport
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.lease import WAIT_SECONDS
from airflow_cdc.pipeline.repair.reprocess_flows import unexpected_error
from airflow_cdc.pipeline.repair.retype import Retyping, retype
from airflow_cdc.pipeline.run.select_flows import select_flows
from airflow_cdc.pipeline.spark.storage import file_system


@dataclass(frozen=True)
class FlowsRetyping:
    """Which flows to retype, and whether to change anything."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the lake's root."""
    tables: tuple[str, ...] = ()
    """Globs of flow names, each of which must match; empty: all."""
    dry_run: bool = False
    """Whether to report only what would change."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as in the flows' runs."""
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that writes a flow."""


def retype_flows(run: FlowsRetyping) -> RetypeReport:
    """Retype flows; a flow that fails does not stop the others. A repetition does what is left.

    :raises ConfigurationError: when a glob matches no flow.
    """
    archive, lake = absolute_uri(run.archive), absolute_uri(run.lake)
    names = select_flows(ArchiveState(*file_system(lake), archive), lake, run.tables)
    # A rebuilt table exists beside the live one; two retypes in parallel would need the space of four tables.
    return RetypeReport(archive, lake, run.dry_run, tuple(_one(run, archive, lake, name) for name in names))


def _one(run: FlowsRetyping, archive: str, lake: str, name: str) -> FlowRetype:
    order = Retyping(run.spark, archive, lake, name, run.dry_run, run.flows, run.progress, wait_seconds=run.wait_seconds)
    try:
        outcome = FlowRetype(name, retype(order))
    except CdcError as problem:
        outcome = FlowRetype(name, error=problem.to_json())
    except Exception as problem:  # noqa: BLE001 - one flow's trouble, whatever it is, must not stop the others.
        outcome = FlowRetype(name, error=unexpected_error(name, problem).to_json())
    for line in outcome.lines():
        run.progress(line)
    return outcome
