"""Looked: a record of earlier looks at an archive's folders, so that the next one need not list them again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from airflow_cdc.model.plain_json import JsonArray, JsonObject


@dataclass(frozen=True)
class FolderLook(JsonArray):
    """State of one folder at a look; all its data files were surveyed then."""

    changed: float | None
    """Its modification time in seconds since 1970; None where it changed right before the look, so that the time proves nothing."""
    through: str
    """The greatest name of a file."""
    names: int
    """Number of files of any kind."""
    digest: int
    """Sum of their names' checksums: with ``names`` it shows whether one went and another came below ``through``."""
    folders: tuple[str, ...] = ()
    """Names of the folders in it."""
    ignored: tuple[str, ...] = ()
    """Names of the files that are neither data nor a companion."""


@dataclass(frozen=True)
class Looked(JsonObject, required=("whole_at", "folders")):
    """Result of the last looks."""

    whole_at: float = 0.0
    """When a look last listed everything, in seconds since 1970."""
    folders: Mapping[str, FolderLook] = field(default_factory=dict)
    """By path below the archive's root; none where the file system has no folder times."""

    def without(self, folders: Collection[str], known: Looked) -> Looked:
        """Return this record, with the earlier state of some folders."""
        kept = {path: look for path, look in self.folders.items() if path not in folders}
        return Looked(self.whole_at, {**kept, **{path: known.folders[path] for path in folders if path in known.folders}})
