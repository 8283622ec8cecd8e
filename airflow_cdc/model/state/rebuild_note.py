"""Rebuild note: the source of a rebuilt flow and its progress, so that an interrupted rebuild can resume.

<lake>/_cdc/rebuilt/<flow>.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state_kind import REBUILD_NOTE


@dataclass(frozen=True)
class RebuildNote(JsonObject, required=("through",)):
    """The rebuild's order and its progress."""

    of: Mapping[str, Any]
    """``archive``, ``lake`` and ``as_of`` of the order."""
    through: int | None = None
    """Number of the flow's last microbatch when the rebuild ended; None while it is in progress."""

    @classmethod
    def read(cls, fs: FileSystem, lake_root: str, flow: str) -> RebuildNote | None:
        """Return the note of a flow; None where it was not rebuilt into the lake."""
        return REBUILD_NOTE.read(fs, _path(fs, lake_root, flow), cls.from_json, owner=f"flow {flow}")

    def write(self, fs: FileSystem, lake_root: str, flow: str) -> None:
        """Write the note of a flow, replacing the earlier one."""
        REBUILD_NOTE.replace(fs, _path(fs, lake_root, flow), self.to_json())


def _path(fs: FileSystem, lake_root: str, flow: str) -> str:
    return f"{lake_root.rstrip('/')}/{STATE_FOLDER}/rebuilt/{FlowState(fs, lake_root, flow).folder}.json"
