"""FlowComparison: what the last comparison of a flow's table with its source found, as a document in the lake.

<lake>/_cdc/compared/<flow's folder>.json
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.pull.compared_rows import OpenRow
from airflow_cdc.model.report.findings import Finding, FindingKind
from airflow_cdc.model.state_kind import COMPARISON


@dataclass(frozen=True)
class FlowComparison(JsonObject, omits_defaults=True):
    """One flow's last comparison. Times are the source's clock, in milliseconds since 1970."""

    flow: str
    run: str = ""
    """The task's run that made it, with its try."""
    at: int = 0
    """When it began; 0 where the flow could not be compared."""
    source_rows: int = 0
    table_rows: int = 0
    left_out: tuple[str, ...] = ()
    """Columns that it did not compare, each with the reason."""
    open: tuple[OpenRow, ...] = ()
    """Rows that differed, and that the next look decides about."""
    is_cut: bool = False
    """Whether more rows differed than it looked at again."""
    different: int = 0
    """Rows that differ although the table must show what the source held."""
    sample: tuple[Mapping[str, str], ...] = ()
    """Keys of some of these, as text, each with ``side``: ``missing``, ``extra`` or ``different``."""
    verified_through: int = 0
    """When the last comparison began that found both sides alike; 0 where none did."""
    skipped: str = ""
    """Why the flow is none that can be compared."""
    error: str = ""
    """Why it was not compared although it can be: what the database refused."""

    @property
    def is_equal(self) -> bool:
        """Whether it found both sides alike, in the columns that it compared."""
        return bool(self.at) and not (self.open or self.is_cut or self.different or self.skipped or self.error)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What of it needs a person's look; without keys, which are values of rows."""
        if not self.different:
            return ()
        text = f"{self.different:,}{' or more' if self.is_cut else ''} rows. Next step: the task that compared them names some keys"
        return (Finding(FindingKind.DIFFERENT, self.flow, text, self.different),)


class FlowComparisons:
    """The last comparisons of a lake's flows."""

    def __init__(self, fs: FileSystem, lake_root: str) -> None:
        self._fs = fs
        self._folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/compared"

    def of(self, flow: str, folder: str) -> FlowComparison:
        """Return a flow's last comparison, an empty one where there was none.

        :param folder: the flow's (:attr:`airflow_cdc.model.state.lake.FlowState.folder`).
        :raises StateTooNewError, StateUnreadableError: as :meth:`airflow_cdc.model.state_kind.StateKind.read`.
        """
        found = COMPARISON.read(self._fs, self._path(folder), FlowComparison.from_json, owner=f"flow {flow}")
        return found or FlowComparison(flow)

    def folders(self) -> dict[str, object]:
        """Return the folders of the flows that were compared, each with what changes when its document does."""
        if not self._fs.exists(self._folder):
            return {}
        self._fs.invalidate_cache()
        found = {str(each["name"]).rsplit("/", 1)[-1]: each for each in self._fs.ls(self._folder, detail=True)}
        return {name.removesuffix(".json"): _version(info) for name, info in found.items() if name.endswith(".json")}

    def put(self, folder: str, found: FlowComparison) -> None:
        """Write a flow's last comparison."""
        COMPARISON.replace(self._fs, self._path(folder), found.to_json())

    def _path(self, folder: str) -> str:
        return f"{self._folder}/{folder}.json"


def _version(info: Mapping[str, object]) -> object:
    return tuple(info.get(name) for name in ("size", "mtime", "LastModified", "last_modified", "ETag", "etag"))
