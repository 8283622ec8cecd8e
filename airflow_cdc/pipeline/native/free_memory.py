"""How much memory this process may still take: the machine's, a container's (cgroups), or what YARN spares beside a JVM's heap."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

_OF_YARN = 384 * 1024**2
"""Spark's least memory overhead. YARN ends a container whose processes take more than heap and overhead, and shows neither of them."""
_CGROUPS = Path("/sys/fs/cgroup")
_V1, _V2 = (
    ("memory/memory.limit_in_bytes", "memory/memory.usage_in_bytes", "memory/memory.stat"),
    ("memory.max", "memory.current", "memory.stat"),
)


def free_memory(meminfo: Path = Path("/proc/meminfo"), cgroups: Path = _CGROUPS) -> int | None:
    """Return the bytes that this process may still take; None where the machine does not show it."""
    if "CONTAINER_ID" in os.environ:
        return _OF_YARN
    return min([*_of_machine(meminfo), *_of_container(cgroups)], default=None)


def _of_machine(meminfo: Path) -> Iterator[int]:
    for line in _read(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            yield int(line.split()[1]) * 1024


def _of_container(cgroups: Path) -> Iterator[int]:
    for limit, used, stat in (_V1, _V2):
        most, now = (_read(cgroups / name).strip() for name in (limit, used))
        # Without a limit: "max", or in the first version a number near 2^63, which is never the least.
        if most.isdigit() and now.isdigit():
            yield max(0, int(most) - int(now) + _cached(cgroups / stat))


def _cached(stat: Path) -> int:
    """Return the part of what a container uses that the kernel gives back: pages of files not used lately."""
    found = dict(line.split() for line in _read(stat).splitlines())
    return int(found.get("total_inactive_file", found.get("inactive_file", "0")))


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, ValueError):
        return ""
