"""Lease: at most one run at a time writes a flow, whatever Airflow's settings are. The job takes it, not the task.

    <lake>/_cdc/leases/<flow>/<n>.json    who may write; of several numbers the highest counts

A lease is taken by creating the file of the next number, in which exactly one of several runs succeeds. Its holder rewrites its own file
every few seconds and marks it as released at the end. A killed holder does neither. Its lease expires when its file has not changed for
:attr:`Lease.seconds`, by the clock of the waiting run, so machines' clocks need not agree; on the same machine, as soon as its process is
gone. A holder that could not rewrite its file for that long writes nothing more. The number is the fencing token: it only rises.

A lease cannot stop a commit that was sent before the lease was lost. Delta's commits refuse an existing version: on S3 too, where the store
honours ``If-None-Match`` and Hadoop is 3.4.2 or newer (docs/adr/0023-a-lease-on-each-flow.md).
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from airflow_cdc.model.errors import ConcurrentRunError, StateUnreadableError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state_kind import LEASE

SECONDS = 60.0
"""Seconds that a lease lasts without renewal."""
WAIT_SECONDS = 600.0
"""Seconds that a run waits for another one to finish with a flow."""
_RENEWALS = 6
"""Renewals within :data:`SECONDS`."""
_SURE = 0.75
"""Fraction of a lease's time after which a holder that has not renewed it treats it as lost: the last quarter allows for clock drift."""
_KEPT = 5
"""Newest files that are kept, for inspection."""


@dataclass(frozen=True)
class Holder(JsonObject):
    """A process that holds a lease."""

    host: str = ""
    process: int = 0
    started: str = ""
    """Start time, which distinguishes the process from another with its number; empty where the system does not report it."""
    space: str = ""
    """Scope in which process numbers are unique; empty where it is not known."""
    run: str = ""
    """The run's name for itself."""

    @property
    def is_gone(self) -> bool:
        """Whether the process has surely ended: it ran on this machine, and no longer does."""
        here = this_process()
        if not self.space or not self.started or (self.host, self.space) != (here.host, here.space):
            return False
        return _start_of(self.process) != self.started

    def __str__(self) -> str:
        return f"process {self.process} on {self.host}" + (f" ({self.run})" if self.run else "")


@dataclass(frozen=True)
class LeaseFile(JsonObject):
    """Content of a lease's file; all defaults for a file that is still being written."""

    flow: str = ""
    holder: Holder = Holder()
    taken_at: str | None = None
    """In ISO 8601, by the holder's clock."""
    seconds: float | None = None
    """Seconds that it lasts without renewal."""
    renewals: int | None = None
    released: bool = False
    """Whether its holder has given it back."""


_RELEASED = LeaseFile(released=True)
_NAMES: list[str] = []


def name_this_run(name: str) -> None:
    """Name the leases that this process takes, such as after the Dag run, for those who wait for it."""
    _NAMES[:] = [name]


def this_process() -> Holder:
    """Return this process as a holder."""
    space = ""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        # Containers may share their machine's name, and each numbers its own processes.
        space = f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    return Holder(socket.gethostname(), os.getpid(), _start_of(os.getpid()), space, *_NAMES)


def _start_of(process: int) -> str:
    """Return when a process started, in the system's ticks; empty where there is no such process."""
    try:
        text = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
    # The name, in parentheses, may hold anything.
    state, *rest = text.rpartition(")")[2].split()
    return "" if state in "ZX" else rest[18]


@dataclass
class Lease:
    """The right to write one flow."""

    fs: FileSystem
    path: str
    token: int
    """Number of the lease; every later one is higher."""
    flow: str
    held: LeaseFile
    seconds: float = SECONDS
    renewed: float = field(default_factory=time.monotonic)
    lost: str = ""
    """Why the lease is lost; empty while it is held."""

    def check(self) -> None:
        """Do nothing while the lease is held.

        :raises ConcurrentRunError: when another run has it now, or it could not be renewed for too long.
        """
        silent = time.monotonic() - self.renewed
        if not self.lost and silent > self.seconds * _SURE:
            self.lost = f"it could not be renewed for {silent:.0f} seconds"
        if self.lost:
            raise ConcurrentRunError(
                f"Flow {self.flow}: this run has lost its lease ({self.path}): {self.lost}; it writes nothing more.",
                next_step="Nothing is lost; the next run takes up what this one left.",
            )

    def guarding(self, after_effect: Callable[[str], None]) -> Callable[[str], None]:
        """Return a callback for after each effect that also checks the lease, so that no effect follows a lost one."""

        def done(effect: str) -> None:
            after_effect(effect)
            self.check()

        return done

    def renew(self) -> None:
        """Renew the lease, and detect whether another run has taken over."""
        begun = time.monotonic()
        newest = newest_token(self.fs, self.path.rsplit("/", 1)[0])
        if newest > self.token:
            self.lost = f"another run has taken lease {newest}"
            return
        self.held = replace(self.held, renewals=(self.held.renewals or 0) + 1)
        LEASE.replace(self.fs, self.path, self.held.to_json())
        self.renewed = begun

    def release(self) -> None:
        """Let others take the lease at once. A failure costs them only the rest of the lease's time."""
        with suppress(Exception):
            LEASE.replace(self.fs, self.path, replace(self.held, released=True).to_json())


def leases_folder(lake_root: str, folder: str) -> str:
    """Return the folder of a flow's leases, given the name of the flow's folder (:attr:`airflow_cdc.model.state.lake.FlowState.folder`)."""
    # Not in the flow's own folder: a flow that was refused before it had any state must stay unknown to the lake.
    return f"{lake_root.rstrip('/')}/{STATE_FOLDER}/leases/{folder}"


def newest_token(fs: FileSystem, folder: str) -> int:
    """Return the number of the newest lease in a folder, 0 where there is none."""
    return max(_tokens(fs, folder), default=0)


def _tokens(fs: FileSystem, folder: str) -> list[int]:
    try:
        names = [str(path).rsplit("/", 1)[-1] for path in fs.ls(folder, detail=False)]
    except FileNotFoundError:
        return []
    return [int(name.removesuffix(".json")) for name in names if name.endswith(".json") and name[:-5].isdigit()]


def current_lease(fs: FileSystem, lake_root: str, flow: str) -> LeaseFile | None:
    """Return the newest lease of a flow; None where there is none, or it was given back, or its process is gone.

    It may be over: whether its holder still renews it shows only in time.
    """
    folder = leases_folder(lake_root, FlowState(fs, lake_root, flow).folder)
    newest = newest_token(fs, folder)
    held = LEASE.read(fs, f"{folder}/{newest:08d}.json", LeaseFile.from_json, owner=f"flow {flow}") if newest else None
    return None if held is None or held.released or held.holder.is_gone else held


@dataclass(frozen=True)
class Leases:
    """Takes leases for one run."""

    fs: FileSystem
    lake_root: str
    wait_seconds: float = WAIT_SECONDS
    seconds: float = SECONDS
    progress: Callable[[str], None] = lambda line: None
    """Called once, with a line that names the holder that the run waits for."""

    @contextmanager
    def hold(self, flow: str) -> Iterator[Lease]:
        """Hold a flow's lease, waiting for it where another run has it.

        :raises ConcurrentRunError: when another run still has it after ``wait_seconds``.
        """
        lease = self.take(flow)
        stop = threading.Event()
        renewing = threading.Thread(target=_keep_renewed, args=(lease, stop), name=f"lease of {flow}", daemon=True)
        renewing.start()
        try:
            yield lease
        finally:
            stop.set()
            renewing.join()
            if not lease.lost:
                lease.release()

    def take(self, flow: str) -> Lease:
        """Take a flow's lease, without renewing it.

        :raises ConcurrentRunError: as :meth:`hold`.
        :raises StateTooNewError: when a newer version of airflow-cdc holds it.
        """
        folder, begun = leases_folder(self.lake_root, FlowState(self.fs, self.lake_root, flow).folder), time.monotonic()
        seen: tuple[int, Any] | None = None
        unchanged_since = begun
        is_reported = False
        while True:
            newest = newest_token(self.fs, folder)
            held = self._read(f"{folder}/{newest:08d}.json", flow) if newest else _RELEASED
            now = time.monotonic()
            if (newest, held.renewals) != seen:
                seen, unchanged_since = (newest, held.renewals), now
            holder, lasts = held.holder, self.seconds if held.seconds is None else held.seconds
            over = held.released or holder.is_gone or now - unchanged_since > lasts
            if over and (lease := self._create(folder, flow, newest + 1)):
                return lease
            if not over and now - begun >= self.wait_seconds:
                raise ConcurrentRunError(
                    f"Flow {flow}: {holder} has been writing it since {held.taken_at}, and this run has waited {now - begun:.0f}"
                    f" seconds ({folder}/{newest:08d}.json).",
                    next_step="Nothing is lost; run again when that run has ended.",
                )
            if not over:
                if not is_reported:
                    self.progress(f"{flow}: waits for {holder}, which has been writing it since {held.taken_at}")
                is_reported = True
                time.sleep(min(1.0, self.seconds / _RENEWALS))

    def _read(self, path: str, flow: str) -> LeaseFile:
        try:
            return LEASE.read(self.fs, path, LeaseFile.from_json, owner=f"flow {flow}") or _RELEASED
        except StateUnreadableError:
            # HDFS shows a file that is still being written: either its holder goes on to renew it, or it soon expires.
            return LeaseFile()

    def _create(self, folder: str, flow: str, token: int) -> Lease | None:
        path = f"{folder}/{token:08d}.json"
        taken_at = datetime.now(timezone.utc).isoformat(timespec="seconds")
        held = LeaseFile(flow, this_process(), taken_at, self.seconds, renewals=0)
        begun = time.monotonic()
        if not LEASE.create(self.fs, path, held.to_json()):
            return None
        tokens = _tokens(self.fs, folder)
        if max(tokens) > token:
            # Others took this number and released it, and the file was removed since this run looked: this lease would rank behind theirs.
            self.fs.rm(path)
            return None
        for old in sorted(tokens)[:-_KEPT]:
            with suppress(OSError):
                self.fs.rm(f"{folder}/{old:08d}.json")
        return Lease(self.fs, path, token, flow, held, self.seconds, renewed=begun)


def _keep_renewed(lease: Lease, stop: threading.Event) -> None:
    while not stop.wait(lease.seconds / _RENEWALS):
        # A store that does not answer for a while is asked again; the lease's own clock limits how long.
        with suppress(Exception):
            lease.renew()
        if lease.lost:
            return
