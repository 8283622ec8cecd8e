"""What this process and all below it use: CPU seconds, memory."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

_SECONDS_BETWEEN_SAMPLES = 0.1
_SAMPLES_BETWEEN_SEARCHES = 10
"""New processes are looked for that seldom: finding them costs more than asking the known ones."""
_PAGE = os.sysconf("SC_PAGE_SIZE")


def cpu_seconds() -> float:
    """Return the CPU seconds of this process and all below it, those among them that have ended included.

    A process that ended is counted with the one that waited for it (``children_user``), at any depth.
    """
    total = 0.0
    for process in tree():
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            total += times.user + times.system + times.children_user + times.children_system
    return total


def tree() -> list[psutil.Process]:
    """Return this process and all that live below it, but for those that are kept apart."""
    own = psutil.Process()
    below = own.children(recursive=True)
    if not _apart:
        return [own, *below]
    return [own, *(process for process in below if process.pid not in _apart and _parent(process) not in _apart)]


_apart: set[int] = set()


@contextlib.contextmanager
def apart(pid: int) -> Iterator[None]:
    """Count a child, and its children, not as this process's own until the block ends: it is measured by itself."""
    _apart.add(pid)
    try:
        yield
    finally:
        _apart.discard(pid)


def _parent(process: psutil.Process) -> int | None:
    try:
        return int(process.ppid())
    except psutil.NoSuchProcess:
        return None


class PeakMemory:
    """Samples what the process tree holds, in a thread of its own.

    A JVM gives nothing back: what an earlier contestant made it hold counts for those behind it in the same process too.
    """

    def __init__(self) -> None:
        self.bytes = 0
        """The most that was held at once, resident."""
        self.own_cpu = 0.0
        """CPU seconds that the sampling took."""
        self._stop = threading.Event()

    @contextlib.contextmanager
    def sampled(self) -> Iterator[PeakMemory]:
        """Sample until the block ends."""
        thread = threading.Thread(target=self._sample, daemon=True)
        thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            thread.join()

    def _sample(self) -> None:
        number, pids = 0, [os.getpid()]
        while True:
            if number % _SAMPLES_BETWEEN_SEARCHES == 0:
                pids = [process.pid for process in tree()]
            # Until a child of Java's becomes chmod, which Hadoop asks for each local file, its memory is Java's own: as large to the page.
            held = dict(map(_memory, pids))
            self.bytes = max(self.bytes, sum(held.values()))
            self.own_cpu = time.thread_time()
            number += 1
            if self._stop.wait(_SECONDS_BETWEEN_SAMPLES):
                return


def _memory(pid: int) -> tuple[int, int]:
    """Return how large a process's memory is (pages), and how much of it is resident (bytes)."""
    try:
        size, resident, *_ = Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()
    except (OSError, ValueError):
        # It has ended.
        return 0, 0
    return int(size), int(resident) * _PAGE
