"""Looked: what earlier looks at an archive saw of its folders, so that the next one need not list them again."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class FolderLook:
    """What was seen in one folder; all data files of it were surveyed then."""

    changed: float | None
    """Its modification time in seconds since 1970; None where it changed right before the look, so that the time proves nothing."""
    through: str
    """The greatest name of a file."""
    names: int
    """How many files, of whatever kind."""
    digest: int
    """Sum of their names' checksums: with ``names`` it shows whether one went and another came below ``through``."""
    folders: tuple[str, ...] = ()
    """Names of the folders in it."""
    ignored: tuple[str, ...] = ()
    """Names of the files that are neither data nor a companion."""

    def to_json(self) -> list[Any]:
        """Return the look as plain JSON values."""
        return [self.changed, self.through, self.names, self.digest, list(self.folders), list(self.ignored)]

    @classmethod
    def from_json(cls, values: list[Any]) -> FolderLook:
        """Read what :meth:`to_json` wrote."""
        changed, through, names, digest, folders, ignored = values
        return cls(changed, through, names, digest, tuple(folders), tuple(ignored))


@dataclass(frozen=True)
class Looked:
    """What the last looks saw."""

    whole_at: float = 0.0
    """When a look last listed everything, in seconds since 1970."""
    folders: Mapping[str, FolderLook] = field(default_factory=dict)
    """By path below the archive's root; none where the file system does not tell when folders changed."""

    def without(self, folders: Collection[str], known: Looked) -> Looked:
        """Return the same, with what was known before of some folders."""
        kept = {path: look for path, look in self.folders.items() if path not in folders}
        return Looked(self.whole_at, {**kept, **{path: known.folders[path] for path in folders if path in known.folders}})

    def to_json(self) -> dict[str, Any]:
        """Return it as plain JSON values."""
        return {"whole_at": self.whole_at, "folders": {path: look.to_json() for path, look in self.folders.items()}}

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Looked:
        """Read what :meth:`to_json` wrote."""
        return cls(document["whole_at"], {path: FolderLook.from_json(values) for path, values in document["folders"].items()})
