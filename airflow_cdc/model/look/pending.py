"""Which archived files a flow has not applied yet: for sensor, trigger, CLI and page alike."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import dataclass

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.interval import Interval
from airflow_cdc.model.archive.set_aside import UNREADABLE
from airflow_cdc.model.archive.transactions import ends_transactions, prefix_of
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.look.new_files import poke
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import pending_in

ALWAYS = Interval()


@dataclass(frozen=True)
class PendingFiles:
    """Archived files that wait to be applied."""

    unsurveyed: tuple[ArchivedFile, ...] = ()
    """Files that no run has surveyed yet; their topics are those of name or folder."""
    planned: dict[str, int] | None = None
    """By flow: surveyed files that a run would apply: those that no committed microbatch owns, without those that wait for a
    transaction."""

    waiting: int = 0
    """Files that wait for a transaction, counted once per flow: no run takes them before more is archived."""
    planned_bytes: dict[str, int] | None = None
    """By flow: bytes of its ``planned`` files, compressed or not as in the archive; a file of several topics counts whole for each."""
    stopped: tuple[str, ...] = ()
    """Topics of set-aside files: not work, but a run that applies others must not ignore them."""
    outside: int = 0
    """Files that were archived outside of the requested interval, counted like the others."""

    @property
    def count(self) -> int:
        """Files that a run would survey or apply, counted once per flow that waits for them."""
        return len(self.unsurveyed) + sum((self.planned or {}).values())

    def __bool__(self) -> bool:
        return self.count > 0


def pending_files(
    *,
    archive_fs: FileSystem,
    archive_root: str,
    archive: str,
    lake_fs: FileSystem,
    lake_root: str,
    tables: Iterable[str] = (),
    interval: Interval = ALWAYS,
) -> PendingFiles:
    """Return the pending files of the flows whose names match ``tables`` (globs; none: every flow).

    :param archive_root: the archive's root as its file system names it.
    :param archive: the archive's URI as the runs get it; it identifies the archive's state in the lake.
    :param interval: when they were archived.
    :raises ArchiveNotFoundError: when the archive's root does not exist.
    """
    globs = tuple(tables)
    state = ArchiveState(lake_fs, lake_root, archive)
    ledger = state.ledger()
    new = _unsurveyed(archive_fs, archive_root, state, ledger, globs)
    unsurveyed = tuple(file for file in new if interval.holds(file))
    waiting = state.waiting(ledger).flows
    planned: dict[str, int] = {}
    sizes: dict[str, int] = {}
    held, outside = 0, len(new) - len(unsurveyed)
    for topic in state.flows(ledger):
        if matches_any(topic, globs):
            files = surveyed_pending(state, ledger, topic, FlowState(lake_fs, lake_root, topic).checkpoint())
            ready = files.keys() - set(waiting.get(topic, ()))
            held += len(files) - len(ready)
            work = [files[path].size for path in ready if interval.holds(files[path])]
            outside += len(ready) - len(work)
            if work:
                planned[topic] = len(work)
                sizes[topic] = sum(work)
    stopped = sorted({file.topic for file in state.set_aside() if file.reason == UNREADABLE and matches_any(file.topic, globs)})
    return PendingFiles(unsurveyed, planned, held, sizes, tuple(stopped), outside)


def unsurveyed_files(
    *, archive_fs: FileSystem, archive_root: str, archive: str, lake_fs: FileSystem, lake_root: str, tables: Iterable[str] = ()
) -> tuple[ArchivedFile, ...]:
    """Return the unsurveyed files among those of :func:`pending_files`, without reading the flows' state.

    :raises ArchiveNotFoundError: when the archive's root does not exist.
    """
    state = ArchiveState(lake_fs, lake_root, archive)
    return _unsurveyed(archive_fs, archive_root, state, state.ledger(), tuple(tables))


def _unsurveyed(fs: FileSystem, root: str, state: ArchiveState, ledger: Ledger, globs: Sequence[str]) -> tuple[ArchivedFile, ...]:
    control = set(ledger.control_topics())
    waiting = [flow for flow in state.waiting(ledger).flows if matches_any(flow, globs)]
    # A waiting file is work again when more is archived; the END that it waits for may be the only new record.
    awaited = {topic for topic in control for flow in waiting if flow.startswith(f"{prefix_of(topic)}.") and ends_transactions(topic)}
    new = poke(fs, root, state, ledger)
    return tuple(file for file in new if file.topic in awaited or _may_be_wanted(file, control, globs))


def _may_be_wanted(file: ArchivedFile, control: Container[str], globs: Sequence[str]) -> bool:
    # Only a sink's file name proves the topic; other new files may hold any topic.
    return file.topic not in control and (file.start_offset is None or matches_any(file.topic, globs))


def surveyed_files_pending(state: ArchiveState, ledger: Ledger, flow: FlowState) -> int:
    """Return the number of surveyed files of a flow that no committed microbatch owns wholly, whatever they wait for."""
    return len(surveyed_pending(state, ledger, flow.flow, flow.checkpoint()))


def surveyed_pending(state: ArchiveState, ledger: Ledger, flow: str, checkpoint: FlowCheckpoint) -> dict[str, ArchivedFile]:
    """Return these files by path."""
    plan = checkpoint.plan(state.archive)
    return {file.path: file for survey in state.pending_surveys(checkpoint, ledger) for file in pending_in(survey, flow, *plan)}
