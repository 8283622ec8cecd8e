"""Retyping: changes of a table's columns, rows and rejects when it is rebuilt from the archive with the types that are known now.

<lake>/_cdc/retypes/<flow>/           a lake in which the microbatches are applied again; removed when the table is replaced
<lake>/_cdc/retypes/<flow>.json       the settings in use, and whether the table's replacement has begun
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote

from airflow_cdc.model.errors import RetypeUnfinishedError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.report.flows_report import FlowsReport
from airflow_cdc.model.state_kind import RETYPE_NOTE


@dataclass(frozen=True)
class Retyped(JsonObject):
    """The differences, and whether they were applied."""

    flow: str
    columns: Mapping[str, tuple[str | None, str | None]] = field(default_factory=dict)
    """By column with a changed type: the type before and now; None where the table has no such column."""
    rows: tuple[int, int] = (0, 0)
    """Rows of the table, before and now."""
    rejects: tuple[int, int] = (0, 0)
    """Records in the quarantine, before and now."""
    is_done: bool = False
    """Whether the table was replaced."""

    def lines(self) -> list[str]:
        """Return the differences as lines for people."""
        columns = [f"column {name}: {before or 'none'} -> {now or 'none'}" for name, (before, now) in self.columns.items()]
        counts = [f"{name}: {before:,} -> {now:,}" for name, (before, now) in (("rows", self.rows), ("rejected records", self.rejects))]
        return [*(columns or ["no column has another type"]), *counts]

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON."""
        columns = {name: {"before": before, "now": now} for name, (before, now) in self.columns.items()}
        counts = {name: {"before": before, "now": now} for name, (before, now) in (("rows", self.rows), ("rejects", self.rejects))}
        return {"flow": self.flow, "done": self.is_done, "columns": columns, **counts}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Retyped:
        """Read what :meth:`to_json` wrote."""
        columns = {name: (types["before"], types["now"]) for name, types in document["columns"].items()}
        rows, rejects = ((counts["before"], counts["now"]) for counts in (document["rows"], document["rejects"]))
        return cls(document["flow"], columns, rows, rejects, document["done"])


@dataclass(frozen=True)
class FlowRetype(JsonObject):
    """Outcome of one flow's retyping."""

    flow: str
    retyped: Retyped | None = None
    """None where it failed."""
    error: dict[str, Any] | None = None
    """Why it failed (:meth:`airflow_cdc.model.errors.CdcError.to_json`); the other flows are not affected."""

    def lines(self) -> Iterator[str]:
        """Yield lines for people on the flow."""
        if self.retyped:
            ending = "the table was replaced" if self.retyped.is_done else "nothing was changed"
            yield from (f"{self.flow}: {line}" for line in (*self.retyped.lines(), ending))
        if self.error:
            yield f"{self.flow}: failed: {self.error['type']}: {self.error['message']}"

    def summary(self) -> dict[str, Any]:
        """Return it as a small JSON object."""
        return {name: part for name, part in (self.retyped or Retyped(self.flow)).to_json().items() if name != "flow"}


@dataclass(frozen=True)
class RetypeReport(FlowsReport):
    """Outcome of the retyping of a lake's flows."""

    archive: str
    lake: str
    dry_run: bool = False
    flows: tuple[FlowRetype, ...] = field(default=())
    error: dict[str, Any] | None = None
    """Set when the run stopped before it reached any flow."""


@dataclass(frozen=True)
class _Note(JsonObject):
    settings: str
    replaces: bool = False


class RetypeNote:
    """The note of a flow's retyping, from which an interrupted retyping resumes."""

    def __init__(self, fs: FileSystem, lake_root: str, folder: str) -> None:
        self._fs, self._flow = fs, unquote(folder)
        self._path = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/retypes/{folder}.json"

    @property
    def settings(self) -> str | None:
        """Digest of the settings with which microbatches were applied again; None where none was."""
        note = self._read()
        return note.settings if note else None

    @property
    def replaces(self) -> bool:
        """Whether the replacement of the table has begun: then it and the flow's own tables may be of two states."""
        note = self._read()
        return note is not None and note.replaces

    def write(self, settings: str, *, replaces: bool = False) -> None:
        """Write the note."""
        RETYPE_NOTE.replace(self._fs, self._path, _Note(settings, replaces).to_json())

    def _read(self) -> _Note | None:
        return RETYPE_NOTE.read(self._fs, self._path, _Note.from_json, owner=f"flow {self._flow}")

    def remove(self) -> None:
        """Remove the note: nothing is left to do."""
        if self._fs.exists(self._path):
            self._fs.rm(self._path)

    def refuse_unfinished(self, flow: str) -> None:
        """Refuse a flow whose table's replacement was interrupted.

        :raises RetypeUnfinishedError: naming the command that finishes it.
        """
        if self.replaces:
            raise RetypeUnfinishedError(
                f"Flow {flow}: airflow-cdc retype was cut off while it replaced the table; the table and what the flow knows of it may be"
                " of two states. Nothing was planned.",
                next_step=f"Run airflow-cdc retype {flow} again; it goes on where it stood.",
            )
