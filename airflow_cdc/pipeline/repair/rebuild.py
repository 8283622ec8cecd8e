"""Rebuild flows from their archive, whole or as of a moment, in a separate lake: the live tables and their state are not touched.

<into>/_cdc/rebuilt/<flow>.json    the source of a rebuilt flow, by which an interrupted rebuild goes on
"""

from __future__ import annotations

import glob
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archive_shape import ArchiveShape
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.files import absolute_uri
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.routes import settings_of
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.position.as_of import AsOf
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.state.lake import ArchiveState, FlowState, flows_in
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.rebuild_note import RebuildNote
from airflow_cdc.pipeline.locate.file_parts import FlowEnd
from airflow_cdc.pipeline.locate.find_end import find_end
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.run.select_flows import select_flows
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.spark.uris import spark_uri
from airflow_cdc.pipeline.target.target_table import read_target


@dataclass(frozen=True)
class Rebuild:
    """What to rebuild, from what, and into what."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the root of the flows' live lake; its surveys of the archive are copied."""
    names: tuple[str, ...]
    """Names of the flows."""
    as_of: AsOf | None = None
    """The last moment to apply; None: everything."""
    into: str | None = None
    """URI of the new lake's root; None: a folder named after the current time below the live lake's state."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic, as in the flows' runs; table locations and catalog names are ignored."""
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Receives the name of each effect once it is done; tests crash there."""
    expected: ArchiveShape = field(default_factory=ArchiveShape)
    """Declared shape of the archive; a file that does not match stops the run."""


def rebuild(order: Rebuild) -> ApplyReport:
    """Apply flows' archived files to a new lake, up to and including the transaction at a moment.

    A rebuild that was interrupted, or in which flows failed, goes on where it stopped when it is called again with the same arguments.

    :return: the report of the new lake's run; the tables are in its ``lake``, as ``<lake>/<flow>``.
    :raises ConfigurationError: when the new lake is the live one or already knows a flow, or the archive does not hold one.
    :raises CdcError: when the archive or the lake's state cannot be read at all.
    """
    archive, lake = absolute_uri(order.archive), absolute_uri(order.lake)
    into = absolute_uri(order.into or _new_folder(lake))
    notes = [_Note(into, name, {"archive": archive, "lake": lake, "as_of": order.as_of and order.as_of.text}) for name in order.names]
    for note in notes:
        _refuse_if_taken(order, lake, note)
    state = _copy_surveys(archive, lake, into)
    for note in notes:
        note.begin()
        order.progress(f"{note.flow}: rebuilding into {into}")
    report = apply_archive(
        ArchiveRun(
            order.spark,
            archive,
            into,
            # A flow's own table location or name is the live table's.
            {name: replace(settings_of(order.flows, name), table=None, catalog_table=()) for name in order.names},
            tuple(map(glob.escape, order.names)),
            order.progress,
            order.after_effect,
            expected=order.expected,
            end_of=_end_as_of(order.spark, order.as_of) if order.as_of else None,
        )
    )
    if missing := {*order.names} - {flow.flow for flow in report.flows}:
        raise ConfigurationError(
            f"Archive {archive} holds no flow {', '.join(sorted(missing))}; its flows are {state.ledger().tables()}.",
            next_step="Correct the flow's name or the archive's root.",
        )
    for note in notes:
        note.write_where_it_stands()
    return report


def rebuild_matching(order: Rebuild) -> ApplyReport:
    """Rebuild the flows of the live lake whose names match the globs in ``names``; empty: all.

    :raises ConfigurationError: when a glob matches none, and as :func:`rebuild`.
    """
    lake = absolute_uri(order.lake)
    state = ArchiveState(*file_system(lake), absolute_uri(order.archive))
    return rebuild(replace(order, names=tuple(select_flows(state, lake, order.names))))


def _new_folder(lake: str) -> str:
    moment = datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S%fZ")
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/rebuilds/{moment}"


@dataclass(frozen=True)
class _Note:
    """A new lake's note about the rebuild of one flow."""

    into: str
    flow: str
    of: Mapping[str, Any]
    """The arguments of the rebuild."""

    @property
    def number(self) -> int:
        """Number of the flow's last microbatch."""
        return FlowState(*file_system(self.into), self.flow).checkpoint().number

    def goes_on(self) -> bool:
        """Return whether the flow belongs to this rebuild, and no run of another kind has written it since."""
        found = RebuildNote.read(*file_system(self.into), self.flow)
        return found is not None and found.of == self.of and found.through in {None, self.number}

    def begin(self) -> None:
        RebuildNote(self.of).write(*file_system(self.into), self.flow)

    def write_where_it_stands(self) -> None:
        RebuildNote(self.of, self.number).write(*file_system(self.into), self.flow)


def _refuse_if_taken(order: Rebuild, lake: str, note: _Note) -> None:
    if note.into.rstrip("/") == lake.rstrip("/"):
        raise ConfigurationError(
            f"{note.into} is the live lake; a rebuild leaves it alone.", next_step="Name another folder or lake, or none."
        )
    fs, root = file_system(note.into)
    table = CdcFlow(note.flow).table_path(note.into)
    is_taken = note.flow in flows_in(fs, root) or read_target(order.spark, spark_uri(table)) is not None
    if is_taken and not note.goes_on():
        raise ConfigurationError(
            f"{note.into} holds a table or the state of flow {note.flow} already; a rebuild begins with nothing, or goes on with one "
            "of the same archive, lake and moment.",
            next_step="Name another folder with --into, another lake connection, or none of them.",
        )


def _copy_surveys(archive: str, lake: str, into: str) -> ArchiveState:
    """Copy the live lake's surveys of the archive to the new lake, so that no file is surveyed twice."""
    live, new = (ArchiveState(fs, root, archive) for fs, root in map(file_system, (lake, into)))
    there, through = new.ledger().surveyed_through, live.ledger().surveyed_through
    # Next to surveys of its own, the copies would hold files twice; after an interrupted copy they are correct.
    copied = list(new.surveys(1, there))
    if copied == list(live.surveys(1, min(there, through))):
        for survey in live.surveys(there + 1, through):
            new.add(survey)
    return new


def _end_as_of(spark: SparkSession, as_of: AsOf) -> Callable[[ArchiveState, Ledger, str, Lives], FlowEnd]:
    return lambda state, ledger, flow, lives: find_end(spark, state, ledger, flow, as_of, lives=lives)
