"""Whether the initial snapshots of a lake's flows are applied, from their checkpoints alone."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.globs import is_glob, matches_any
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.state.lake import ArchiveState, FlowState, flows_in


@dataclass(frozen=True)
class SnapshotState(JsonObject):
    """The flows with and without a complete snapshot in their table."""

    complete: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    """Flows without any read or without the last one, and unknown names that were asked for."""

    @property
    def is_complete(self) -> bool:
        """Whether there is at least one flow and none lacks its snapshot."""
        return bool(self.complete) and not self.missing


def snapshot_state(*, archive: str, lake_fs: FileSystem, lake_root: str, tables: Iterable[str]) -> SnapshotState:
    """Return whether the flows whose names match ``tables`` (globs; none: every flow) have applied a snapshot to its end.

    A microbatch with the read that its connector marks as the last makes the snapshot complete. For a topic of several partitions, reads of
    another partition may still come.
    """
    globs = tuple(tables)
    state = ArchiveState(lake_fs, lake_root, archive)
    known = {*state.flows(state.ledger()), *flows_in(lake_fs, lake_root)}
    chosen = {flow for flow in known if matches_any(flow, globs)} | {name for name in globs if _is_wanted_name(name, globs)}
    done = {flow for flow in chosen if flow in known and _is_complete(FlowState(lake_fs, lake_root, flow))}
    return SnapshotState(tuple(sorted(done)), tuple(sorted(chosen - done)))


def _is_wanted_name(glob: str, globs: tuple[str, ...]) -> bool:
    return not glob.startswith("!") and not is_glob(glob) and matches_any(glob, globs)


def _is_complete(flow: FlowState) -> bool:
    snapshot = flow.checkpoint().snapshot
    return snapshot is not None and snapshot.is_complete
