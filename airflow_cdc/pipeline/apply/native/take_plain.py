"""Take a microbatch for the native engine where it is plain, or leave it to the mode's own way in Spark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from importlib.util import find_spec
from typing import Any

from airflow_cdc.model.errors import ConfigurationError, UnexpectedError, first_line
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import DEFAULT_ENGINE, Engine
from airflow_cdc.model.position.position import Position
from airflow_cdc.pipeline.apply.fit_table import Ways
from airflow_cdc.pipeline.apply.native.bounds import why_for_tasks, why_too_large
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver, why_not_decoded, why_not_merged, why_not_read
from airflow_cdc.pipeline.apply.settled import Settled, planned_decoder
from airflow_cdc.pipeline.decode.decode_events import Decoder
from airflow_cdc.pipeline.evidence.snapshot_reads import SnapshotDoubts
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.native.connect_duckdb import threads_for
from airflow_cdc.pipeline.spark.exclusive_writes import excludes_writers
from airflow_cdc.pipeline.spark.late_session import started
from airflow_cdc.pipeline.spark.task_job import has_cluster
from airflow_cdc.pipeline.target.alter_natively import set_properties_natively, with_deletion_vectors_natively
from airflow_cdc.pipeline.target.create_natively import create_natively
from airflow_cdc.pipeline.target.target_table import TargetTable
from airflow_cdc.pipeline.target.writable import why_not_written

REPEATED = "some events may be copies of applied ones"
WENT_BACK = "the source's log may have gone back"
"""Reason why Spark takes a microbatch."""
WAYS = Ways(create=create_natively, with_deletion_vectors=with_deletion_vectors_natively, set_properties=set_properties_natively)
"""The native engine's ways to make and alter a table."""
Settle = Callable[[MicrobatchRun, TargetTable | None], Settled]


@dataclass(frozen=True, kw_only=True)
class Plain:
    """A microbatch that its plan and its survey show to be plain."""

    run: MicrobatchRun
    target: TargetTable | None
    """None where the table is to be created."""
    decoder: Decoder
    table: Any
    """delta-rs's table; None where it is to be created, or merged by Spark."""
    left_to_spark: str | None = None
    """Why Spark has to merge it; None where delta-rs may."""
    too_large: str | None = None
    """Why this process does not decode it: the tasks of a cluster do. None where it does."""

    @property
    def threads(self) -> int:
        """Number of threads that DuckDB may use."""
        return threads_for(self.run.microbatch.text_size)


def natively(settle: Settle, by_native: Callable[[Plain], Settled]) -> Settle:
    """Return the first step of a mode: the native engine's for a plain microbatch, else the mode's own.

    :param by_native: raises :class:`~airflow_cdc.pipeline.apply.native.handed_over.HandedOver` where the events are not plain.
    """

    def choose(run: MicrobatchRun, target: TargetTable | None) -> Settled:
        if (run.flow.engine or DEFAULT_ENGINE) is Engine.SPARK:
            return settle(run, target)
        _check_packages(run.flow)
        try:
            return by_native(_take(run, target))
        except HandedOver as reason:
            run.note(f"{run.flow.name}: Spark applies microbatch {run.microbatch.number}: {reason}")
            return settle(replace(run, engine_reason=str(reason)), target)

    return choose


def _check_packages(flow: CdcFlow) -> None:
    """Stop a flow that asks for the native engine alone where its packages are missing.

    :raises ConfigurationError: with the packages.
    """
    if flow.engine is Engine.NATIVE and (missing := _missing_packages()):
        raise ConfigurationError(
            f"Flow {flow.name}: engine is native, and the driver's Python ({sys.executable}) lacks {', '.join(missing)}.",
            next_step="Install them where the driver runs, or set the flow's engine to auto.",
        )


def _missing_packages() -> list[str]:
    return [name for name in ("duckdb", "deltalake", "numpy", "pyarrow", "pyroaring") if find_spec(name) is None]


def _take(run: MicrobatchRun, target: TargetTable | None) -> Plain:
    if missing := _missing_packages():
        raise HandedOver(f"the driver's Python lacks {', '.join(missing)}")
    if reason := why_not_read(run, target):
        raise HandedOver(reason)
    large = _why_large(run)
    decoder = planned_decoder(run, target)
    if reason := why_not_decoded(decoder, target):
        raise HandedOver(reason)
    if large:
        return Plain(run=run, target=target, decoder=decoder, table=None, left_to_spark=large, too_large=large)
    try:
        table = _open_for_merge(run, target)
    except HandedOver as reason:
        return Plain(run=run, target=target, decoder=decoder, table=None, left_to_spark=str(reason))
    return Plain(run=run, target=target, decoder=decoder, table=table)


def _why_large(run: MicrobatchRun) -> str | None:
    """Return why the tasks of a cluster decode a microbatch, and not this process; None where it does.

    :raises HandedOver: where nobody does.
    """
    large = why_too_large(run.microbatch)
    why = large or why_for_tasks(run.microbatch)
    # What is too large starts Spark in any case.
    if why and has_cluster(started(run.spark) if large else run.spark):
        return why
    if large:
        raise HandedOver(large)
    return None


def _open_for_merge(run: MicrobatchRun, target: TargetTable | None) -> Any:
    """Return the table, opened by delta-rs; None where it is to be created.

    :raises HandedOver: where Spark has to merge.
    """
    if reason := why_not_merged(run):
        raise HandedOver(reason)
    table = _open(target) if target else None
    if not excludes_writers(run.lake):
        raise HandedOver("the lake's store does not refuse to replace an object (If-None-Match)")
    return table


def _open(target: TargetTable) -> Any:
    """Return the table, if its microbatches may be merged without Spark.

    :raises HandedOver: where they may not.
    """
    table = target.opened
    if table is None:
        raise HandedOver("delta-rs cannot read the table")
    if reason := why_not_written(table):
        raise HandedOver(reason)
    return table


class NoDoubts(SnapshotDoubts):
    """Stands for :class:`~airflow_cdc.pipeline.evidence.doubt_snapshot.Doubts`, which only a later snapshot asks."""

    def of(self, position: Position, *, stays: str, has_other_lanes: bool) -> str | None:
        """Hand the microbatch over."""
        raise HandedOver(f"another snapshot than the table's first, at position {position}")


@contextmanager
def named_failure(run: MicrobatchRun, failure: str) -> Iterator[None]:
    """Name the way out where delta-rs or DuckDB fails: what Spark would do then is no longer the same microbatch.

    :raises UnexpectedError: where one of them fails.
    """
    import duckdb
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, duckdb.Error) as error:
        raise UnexpectedError(
            f"Flow {run.flow.name}, microbatch {run.microbatch.number}, table {run.table}: {failure} ({first_line(error)}).",
            next_step="Nothing is lost; run again. Where it fails again, set the flow's engine to spark.",
        ) from error
