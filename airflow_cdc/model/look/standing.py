"""Standing: in one word and one sentence, how a flow's table stands to its archive. Reads state documents only, and writes nothing."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.look.unsurveyed import NOT_LISTED, Landed, Unsurveyed
from airflow_cdc.model.report.findings import Finding
from airflow_cdc.model.report.retyping import RetypeNote
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.lease import SECONDS, LeaseFile, leases_folder, newest_token
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import pending_in
from airflow_cdc.model.state_kind import LEASE

_CLOCKS_DIFFER = 30.0
"""Seconds by which the clocks of the store and of the reader may differ."""


class Standing(str, Enum):
    """How a flow's table stands to its archive, as people call it."""

    UP_TO_DATE = "up to date"
    """Everything that is archived is applied."""
    ATTENTION = "needs a look"
    """Everything that is archived is applied, and not all of it well: rejects, gaps and the like."""
    UNKNOWN = "unknown"
    """Everything surveyed is applied; what else is archived could not be listed, or its names do not show whose it is."""
    CATCHING_UP = "catching up"
    """A run is writing the table now."""
    BEHIND = "behind"
    """Files wait for the next run."""
    WAITING = "waiting"
    """All that waits needs something that is not archived yet."""
    STOPPED = "stopped"
    """No run goes on before somebody acts."""


@dataclass(frozen=True)
class Waiting:
    """What a flow has not applied yet."""

    files: int = 0
    bytes: int = 0
    """Bytes in the archive, compressed or not; a file of several topics counts whole for each."""
    events: int = 0
    """Records of the flow in those that a run surveyed."""
    for_transactions: int = 0
    """Files among them that wait for the rest of a transaction."""
    for_offsets: int = 0
    """Files among them that earlier microbatches passed over for another reason: offsets that are missing."""
    unsurveyed: int = 0
    """Files among them that no run has looked at."""

    def __add__(self, other: Waiting) -> Waiting:
        return Waiting(*(getattr(self, name) + getattr(other, name) for name in vars(self)))


@dataclass(frozen=True)
class ArchiveLook:
    """An archive's state, read once for all flows."""

    state: ArchiveState
    ledger: Ledger
    for_transactions: Mapping[str, Sequence[str]]
    """By flow: paths of files that wait for transactions."""
    set_aside: tuple[SetAsideFile, ...]
    unsurveyed: Unsurveyed = NOT_LISTED


def look_at(state: ArchiveState, unsurveyed: Unsurveyed = NOT_LISTED) -> ArchiveLook:
    """Return an archive's state as of now.

    :param unsurveyed: what its last listing found.
    """
    ledger = state.ledger(write=False)
    return ArchiveLook(state, ledger, state.waiting(ledger).flows, state.set_aside(), unsurveyed)


def waiting_of(archives: Iterable[ArchiveLook], flow: str, checkpoint: FlowCheckpoint) -> Waiting:
    """Return what waits for a flow in all archives of its lake."""
    total = Waiting()
    for archive in archives:
        if flow in archive.ledger.topics:
            total += _surveyed(archive, flow, checkpoint)
        landed = archive.unsurveyed.by_topic.get(flow, Landed())
        total += Waiting(landed.files, landed.bytes, unsurveyed=landed.files)
    return total


def _surveyed(archive: ArchiveLook, flow: str, checkpoint: FlowCheckpoint) -> Waiting:
    plan = checkpoint.plan(archive.state.archive)
    held = {item.path for item in plan[1]}
    awaited = set(archive.for_transactions.get(flow, ()))
    files: dict[str, ArchivedFile] = {}
    records = 0
    for survey in archive.state.pending_surveys(checkpoint, archive.ledger):
        pending = {file.path: file for file in pending_in(survey, flow, *plan)}
        records += sum(shape.records for shape in survey.shapes if shape.topic == flow and shape.file in pending)
        files.update(pending)
    size = sum(file.size for file in files.values())
    return Waiting(len(files), size, records, len(files.keys() & awaited), len(files.keys() & held - awaited))


def standing_of(
    fs: FileSystem,
    lake_root: str,
    flow: FlowState,
    *,
    waiting: Waiting,
    archives: Sequence[ArchiveLook],
    findings: Sequence[Finding] = (),
) -> tuple[Standing, str]:
    """Return how a flow stands, and the reason as a sentence; empty where the word suffices.

    What its last run failed with is not recorded in a lake: only Airflow knows it.

    :param findings: what the flow's last microbatches did that needs a look.
    """
    if stop := stop_of(fs, lake_root, flow, archives):
        return Standing.STOPPED, stop
    if not waiting.files:
        unclear = _unclear(archive.unsurveyed for archive in archives if flow.flow in archive.ledger.topics)
        return unclear or ((Standing.ATTENTION if findings else Standing.UP_TO_DATE), "")
    if holder := held_by(fs, lake_root, flow):
        return Standing.CATCHING_UP, f"Written by {holder}."
    return _standing_without_run(waiting)


def stop_of(fs: FileSystem, lake_root: str, flow: FlowState, archives: Iterable[ArchiveLook]) -> str:
    """Return why no run goes on with a flow before somebody acts, as a sentence; empty where the lake shows no such reason."""
    if RetypeNote(fs, lake_root, flow.folder).replaces:
        return f"A retype was interrupted while it replaced the table: run airflow-cdc retype {flow.flow} again."
    aside = [file for archive in archives for file in archive.set_aside if file.reason == UNREADABLE and file.topic == flow.flow]
    return f"{_files(len(aside))} cannot be read: {aside[0]}." if aside else ""


def _unclear(listings: Iterable[Unsurveyed]) -> tuple[Standing, str] | None:
    for found in listings:
        if found.failure:
            return Standing.UNKNOWN, f"The archive cannot be listed from here, so newer files are not seen: {found.failure}."
        if not found.at:
            return Standing.UNKNOWN, "The archive is being listed."
        if files := found.others.files:
            them = "it" if files == 1 else "them"
            return Standing.UNKNOWN, f"{_waits(files)} for a run to look at {them}; names show no flow."
    return None


def _standing_without_run(waiting: Waiting) -> tuple[Standing, str]:
    if waiting.for_transactions == waiting.files:
        return Standing.WAITING, f"{_waits(waiting.files)} for the rest of a transaction."
    if waiting.for_transactions + waiting.for_offsets == waiting.files:
        return Standing.WAITING, f"{_waits(waiting.files)} for offsets that are missing in the archive."
    unseen = f"; no run has looked at {waiting.unsurveyed:,} of them" if waiting.unsurveyed else ""
    return Standing.BEHIND, f"{_waits(waiting.files)} for the next run{unseen}."


def _files(count: int) -> str:
    return "1 archived file" if count == 1 else f"{count:,} archived files"


def _waits(count: int) -> str:
    return f"{_files(count)} {'waits' if count == 1 else 'wait'}"


def held_by(fs: FileSystem, lake_root: str, flow: FlowState) -> str | None:
    """Return the run that holds a flow's lease; None where nobody does, as far as the lease's file shows."""
    folder = leases_folder(lake_root, flow.folder)
    newest = newest_token(fs, folder)
    if not newest:
        return None
    path = f"{folder}/{newest:08d}.json"
    # A holder rewrites its file, and the next one removes it.
    with suppress(StateUnreadableError, FileNotFoundError):
        lease = LEASE.read(fs, path, LeaseFile.from_json, owner=f"flow {flow.flow}")
        if lease is None or lease.released or lease.holder.is_gone:
            return None
        age = time.time() - fs.modified(path).timestamp()
        if age < (lease.seconds or SECONDS) + _CLOCKS_DIFFER:
            return lease.holder.run or str(lease.holder)
    return None
