"""Lag: how far a lake's tables are behind the archive."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.look.new_files import poke
from airflow_cdc.model.look.pending import surveyed_pending
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState

MOST_FLOWS = 20
"""Most flows named in an answer; the sums count all."""


@dataclass(frozen=True)
class Lag:
    """What waits to be applied, and the table's age."""

    files: int = 0
    bytes: int = 0
    """Bytes in the archive, compressed or not."""
    seconds: float | None = 0.0
    """Seconds since the source committed the last applied event, while anything waits. None where that time is not known: then it
    exceeds any bound."""

    def __add__(self, other: Lag) -> Lag:
        ages = (self.seconds, other.seconds)
        seconds = None if None in ages else max(age for age in ages if age is not None)
        return Lag(self.files + other.files, self.bytes + other.bytes, seconds)

    def is_within(self, *, max_files: int | None, max_bytes: int | None, max_seconds: float | None) -> bool:
        """Return whether no given bound is exceeded."""
        return (
            (max_files is None or self.files <= max_files)
            and (max_bytes is None or self.bytes <= max_bytes)
            and (max_seconds is None or (self.seconds is not None and self.seconds <= max_seconds))
        )


def find_lag(
    *, archive_fs: FileSystem, archive_root: str, archive: str, lake_fs: FileSystem, lake_root: str, tables: Iterable[str], now: float
) -> tuple[Lag, dict[str, Lag]]:
    """Return the total lag of all flows whose names match ``tables`` (globs; none: every flow), and the lag of each flow that is behind.

    The total is the sum of what waits, and the greatest age. An unsurveyed file counts for the flow that its name shows, or for all flows
    where it shows none. Files that wait for a transaction or for missing offsets count too, and so do unreadable files: the table lacks
    them.

    :param now: seconds since 1970.
    :raises ArchiveNotFoundError: when the archive's root does not exist.
    """
    globs = tuple(tables)
    state = ArchiveState(lake_fs, lake_root, archive)
    ledger = state.ledger()
    control = set(ledger.control_topics())
    new = [file for file in poke(archive_fs, archive_root, state, ledger) if file.topic not in control]
    named = [file for file in new if file.start_offset is not None]
    nameless = [file for file in new if file.start_offset is None]
    again = {file.path for file in new}
    aside = [file for file in state.set_aside() if file.topic not in control and file.path not in again]
    counts, sizes = Counter[str](), Counter[str]()
    for topic, bytes_ in [*((file.topic, file.size) for file in named), *((file.topic, file.size) for file in aside)]:
        counts[topic] += 1
        sizes[topic] += bytes_
    size = sum(file.size for file in nameless)
    found: dict[str, Lag] = {}
    for flow in sorted({*state.flows(ledger), *counts}):
        if matches_any(flow, globs):
            checkpoint = FlowState(lake_fs, lake_root, flow).checkpoint()
            files = surveyed_pending(state, ledger, flow, checkpoint)
            count = len(files) + counts[flow] + len(nameless)
            if count:
                found[flow] = Lag(count, sum(file.size for file in files.values()) + sizes[flow] + size, age_of(checkpoint, now))
    ages = [lag.seconds for lag in found.values()]
    # A file of unknown topic would count once per flow, and not at all where there is no flow yet.
    extra = len(nameless) * (1 - len(found)), size * (1 - len(found))
    together = Lag(
        sum(lag.files for lag in found.values()) + extra[0],
        sum(lag.bytes for lag in found.values()) + extra[1],
        None if None in ages or (nameless and not found) else max((age for age in ages if age is not None), default=0.0),
    )
    return together, found


def lag_summary(together: Lag, flows: dict[str, Lag]) -> dict[str, Any]:
    """Return a lag as a small JSON object; of many flows, those with the most files."""
    most = sorted(flows, key=lambda flow: (-flows[flow].files, flow))[:MOST_FLOWS]
    return {**vars(together), "behind": len(flows), "flows": {flow: dict(vars(flows[flow])) for flow in most}}


def age_of(checkpoint: FlowCheckpoint, now: float) -> float | None:
    """Return the seconds since the source committed the last applied event; None where that time is not known."""
    return None if checkpoint.committed_through is None else max(0.0, round(now - checkpoint.committed_through / 1000, 3))
