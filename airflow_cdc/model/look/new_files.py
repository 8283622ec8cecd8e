"""Find the new files of an archive without listing known ones: the cost of a look depends on what changed, not on the archive's size
(ADR 0016).

Where folders have modification times (local disks, HDFS), unchanged ones are not listed. Every hour a look lists everything anyway: a clock
or a mount with wrong times makes a file late, never lost.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, ArchiveListing, classify_infos, companions, list_archive, missing_archive
from airflow_cdc.model.archive.looked import FolderLook, Looked
from airflow_cdc.model.archive.set_aside import SetAsideFile, look_again
from airflow_cdc.model.files import FileSystem, is_local
from airflow_cdc.model.look.list_after import list_after
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger

WHOLE_LOOK_SECONDS = 3600
"""Most seconds between two full listings."""
SETTLED_SECONDS = 60
"""A folder that changed less than this many seconds before it was listed is listed again: times are coarse, and clocks differ."""
_TIMES = ("mtime", "created")


class TooManyFilesError(Exception):
    """Raised where only a listing of a whole archive would do, and that is not wanted."""


@dataclass(frozen=True)
class _Look:
    """Where to look, and what is known."""

    fs: FileSystem
    root: str
    state: ArchiveState
    ledger: Ledger
    known: Looked
    now: float
    is_poke: bool
    is_small: bool


@dataclass(frozen=True)
class NewFiles:
    """What one look found."""

    files: tuple[ArchivedFile, ...]
    """Data files that no survey holds, ordered by path."""
    ignored: tuple[str, ...] = ()
    """Paths that are neither data nor a companion."""
    looked: Looked = field(default_factory=Looked)
    """To be recorded once ``files`` are surveyed."""
    set_aside: tuple[SetAsideFile, ...] = ()
    """Files that could not be read and have not changed since."""


def find_new_files(
    fs: FileSystem,
    root: str,
    state: ArchiveState,
    ledger: Ledger,
    *,
    is_poke: bool = False,
    now: float | None = None,
    looked: Looked | None = None,
    is_small: bool = True,
) -> NewFiles:
    """Return the unsurveyed files of an archive; files that are set aside only if they were replaced.

    :param root: the archive's root as the file system names it.
    :param is_poke: whether a file may be found up to an hour late, where the store has no folder times but can list after a name (S3).
    :param now: seconds since 1970.
    :param looked: an earlier look; None: the one that the lake records.
    :param is_small: whether the archive may be listed whole. Else a file that the cheap ways do not show is not found.
    :raises ArchiveNotFoundError: when the archive's root does not exist.
    :raises TooManyFilesError: where there is no cheap way.
    """
    known = state.looked() if looked is None else looked
    at = time.time() if now is None else now
    found = _find(_Look(fs, root.rstrip("/") or "/", state, ledger, known, now=at, is_poke=is_poke, is_small=is_small))
    return with_replaced(fs, root, state, found)


def with_replaced(fs: FileSystem, root: str, state: ArchiveState, found: NewFiles) -> NewFiles:
    """Return a look's result without unchanged set-aside files, and with those that were replaced since."""
    aside = state.set_aside()
    if not aside:
        return found
    known, again = {file.path for file in aside}, look_again(fs, root, aside)
    new = tuple(sorted([*(file for file in found.files if file.path not in known), *again.changed]))
    return replace(found, files=new, set_aside=again.unchanged)


def _find(look: _Look) -> NewFiles:
    fs, root, ledger, known, now = look.fs, look.root, look.ledger, look.known, look.now
    # Several file systems answer from old cached listings in a long-lived process such as the triggerer.
    fs.invalidate_cache()
    is_whole = not 0 <= now - known.whole_at < WHOLE_LOOK_SECONDS and (look.is_small or not known.whole_at)
    changed = _changed(_info(fs, root))
    if changed is not None:
        walk = _Walk(fs, root, ledger, Looked(now) if is_whole else known, now)
        walk.visit("", changed)
        return walk.found(look.state, known)
    if look.is_poke and not is_whole and (listed := list_after(fs, root, ledger)) is not None:
        behind, others = listed
        return NewFiles(tuple(sorted([*behind, *look.state.unsurveyed(others, ledger)])), looked=known)
    if not look.is_small:
        raise TooManyFilesError(f"{root} holds too many files to be listed whole here")
    listing = list_archive(fs, root)
    fs.invalidate_cache()
    return NewFiles(tuple(look.state.unsurveyed(listing.files, ledger)), listing.ignored, Looked(now))


def poke(fs: FileSystem, root: str, state: ArchiveState, ledger: Ledger, *, now: float | None = None) -> tuple[ArchivedFile, ...]:
    """Return the unsurveyed files for a sensor, and record a full listing for the next look."""
    known = state.looked()
    found = find_new_files(fs, root, state, ledger, is_poke=True, now=now)
    if found.looked.whole_at != known.whole_at and ledger.surveyed_through:
        # Only surveyed files may be skipped. Where the lake is not writable, the next look lists everything again. The folder of a changed
        # file is never skipped, because the folder's own time is unchanged.
        changed = {_folder(file.path) for file in found.files if ledger.may_know(file.path)}
        past = Looked(known.whole_at, {folder: look for folder, look in known.folders.items() if folder not in changed})
        with contextlib.suppress(OSError):
            state.write_looked(found.looked.without({_folder(file.path) for file in found.files}, past))
    return found.files


@dataclass
class _Walk:
    """One walk through the folders of a file system that has folder times."""

    fs: FileSystem
    root: str
    ledger: Ledger
    known: Looked
    now: float
    folders: dict[str, FolderLook] = field(default_factory=dict)
    behind: list[ArchivedFile] = field(default_factory=list)
    """New by name: they sort after all that is known of their folder."""
    whole: list[ArchivedFile] = field(default_factory=list)
    """All files of folders with any other change."""

    def visit(self, folder: str, changed: float | None) -> None:
        seen = self.known.folders.get(folder)
        if seen and seen.changed is not None and seen.changed == changed:
            self.folders[folder] = seen
        else:
            self._list(folder, changed, seen)
        for name in self.folders[folder].folders:
            child = f"{folder}/{name}" if folder else name
            # The folder may be removed since its parent was listed.
            with contextlib.suppress(FileNotFoundError):
                self.visit(child, _changed(self.fs.info(self._path(child))))

    def found(self, state: ArchiveState, known: Looked) -> NewFiles:
        ignored = tuple(sorted(f"{folder}/{name}".lstrip("/") for folder, look in self.folders.items() for name in look.ignored))
        new = sorted([*self.behind, *state.unsurveyed(self.whole, self.ledger)])
        looked = Looked(self.known.whole_at, self.folders)
        return NewFiles(tuple(new), ignored, known if looked == known else looked)

    def _list(self, folder: str, changed: float | None, seen: FolderLook | None) -> None:
        folders, names = self._entries(folder)
        settled = changed if changed is not None and self.now - changed >= SETTLED_SECONDS else None
        behind = {name for name in names if seen and name > seen.through}
        digest = _digest(names)
        listing = None
        if seen and (len(names) - len(behind), digest - _digest(behind)) == (seen.names, seen.digest):
            listing = self._classified(folder, {*behind, *_companions(behind, names)})
            listing = _only(listing, folder, behind)
            # Surveyed by a run that ended before it recorded its look.
            past = self.ledger.folders.get(folder)
            if past and any(file.path.rpartition("/")[2] <= past.through for file in listing.files):
                listing = None
        if listing is not None and seen:
            self.behind += listing.files
            ignored = (*seen.ignored, *_names(listing.ignored))
        else:
            listing = self._classified(folder, names)
            self.whole += listing.files
            ignored = _names(listing.ignored)
        self.folders[folder] = FolderLook(settled, max(names, default=""), len(names), digest, tuple(sorted(folders)), ignored)

    def _entries(self, folder: str) -> tuple[set[str], set[str]]:
        """Return the names of a folder's subfolders, and of everything else in it."""
        path = self._path(folder)
        if is_local(self.fs):
            # fsspec reads every file's status; a hundred thousand take seconds.
            with os.scandir(path) as entries:
                kinds = {entry.name: entry.is_dir(follow_symlinks=False) for entry in entries}
        else:
            listed: list[dict[str, Any]] = self.fs.ls(path, detail=True)
            kinds = {str(info["name"]).rstrip("/").rpartition("/")[2]: info["type"] == "directory" for info in listed}
        return {name for name, is_folder in kinds.items() if is_folder}, {name for name, is_folder in kinds.items() if not is_folder}

    def _classified(self, folder: str, names: Iterable[str]) -> ArchiveListing:
        paths = [f"{folder}/{name}" if folder else name for name in names]
        return classify_infos((path, info) for path in paths if (info := self._info(path)) is not None)

    def _info(self, path: str) -> Mapping[str, Any] | None:
        try:
            return self.fs.info(self._path(path))
        except FileNotFoundError:
            return None

    def _path(self, path: str) -> str:
        return f"{self.root.rstrip('/')}/{path}" if path else self.root


def _digest(names: Iterable[str]) -> int:
    return sum(zlib.crc32(os.fsencode(name)) for name in names)


def _companions(new: Iterable[str], names: set[str]) -> set[str]:
    """Return the known files that belong to a new one: a value's keys, a key's values."""
    return {other for name in new for other in companions(name) if other in names}


def _only(listing: ArchiveListing, folder: str, names: Iterable[str]) -> ArchiveListing:
    paths = {f"{folder}/{name}" if folder else name for name in names}
    files = tuple(file for file in listing.files if file.path in paths)
    return ArchiveListing(files, tuple(path for path in listing.ignored if path in paths))


def _names(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(path.rpartition("/")[2] for path in paths)


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


def _info(fs: FileSystem, root: str) -> Mapping[str, Any]:
    try:
        info: Mapping[str, Any] = fs.info(root)
    except FileNotFoundError as error:
        raise missing_archive(root) from error
    return info


def _changed(info: Mapping[str, Any]) -> float | None:
    """Return when a folder changed, in seconds since 1970; None for a file, or where the file system has no folder times."""
    if info["type"] != "directory":
        return None
    # Copies that keep times (`cp -a`, rsync) set a folder's `mtime` back. On local disks nobody sets ctime, fsspec's `created`.
    times = [value.timestamp() if isinstance(value, datetime) else float(value) for name in _TIMES if (value := info.get(name))]
    return max(times, default=None) if info.get("mtime") else None
