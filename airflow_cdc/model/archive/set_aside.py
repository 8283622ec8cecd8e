"""Set-aside files: unreadable archived files that no survey holds until they are replaced.

A set-aside file is not read again before its size or modification time changes, so it costs a look one call and no Spark job.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from airflow_cdc.model.archive.archived_files import ArchivedFile, classify_infos, companions, modified_at
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import UnreadableFileError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.plain_json import JsonObject

UNREADABLE = "unreadable_file"
"""Reason: Spark cannot read the file to its end."""
CHANGED = "changed_file"
"""Reason: a survey holds the file as it was before it changed; the next look surveys it again."""
_NAMED_FILES = 5

Seen = tuple[str, int, float | None]
"""Path, size and modification time of a file."""


@dataclass(frozen=True)
class SetAsideFile(JsonObject):
    """A file that is left out of the surveys, and its size and time then."""

    path: str
    """Path below the archive's root."""
    topic: str
    """Topic by the file's name or folder."""
    reason: str
    detail: str
    """The error of reading it."""
    since: str
    """When it was set aside, in ISO 8601."""
    seen: tuple[Seen, ...] = ()
    """The file and its companion at that time; empty: it is read again in any case."""

    @property
    def size(self) -> int:
        """Bytes of the file when it was set aside; 0 where that is not known."""
        return self.seen[0][1] if self.seen else 0

    def __str__(self) -> str:
        return printable(f"{self.path} ({self.detail})")


@dataclass(frozen=True)
class SetAsideFiles(JsonObject):
    """The set-aside files of one archive, as a state document."""

    archive: str
    """URI of the archive's root."""
    files: tuple[SetAsideFile, ...] = ()


def set_aside(fs: FileSystem, root: str, file: ArchivedFile, *, reason: str, detail: str, since: str) -> SetAsideFile:
    """Return the entry that sets a file aside now."""
    seen = _seen(fs, root, [file.path, *([file.keys_path] if file.keys_path else [])])
    # Replaced since it was listed: its present content is unread.
    is_same = bool(seen) and seen[0][:2] == (file.path, file.size)
    return SetAsideFile(file.path, file.topic, reason, detail, since, seen if is_same else ())


@dataclass(frozen=True)
class LookedAgain:
    """State of the set-aside files."""

    changed: tuple[ArchivedFile, ...] = ()
    """Files to survey again."""
    unchanged: tuple[SetAsideFile, ...] = ()


def look_again(fs: FileSystem, root: str, files: Iterable[SetAsideFile]) -> LookedAgain:
    """Return the set-aside files that still exist, unchanged or replaced. Queries each by its name.

    The folder's modification time shows nothing: writing into a file does not change it.
    """
    changed: list[ArchivedFile] = []
    unchanged: list[SetAsideFile] = []
    for file in files:
        paths = [file.path, *(path for path, _, _ in file.seen if path != file.path)]
        now = _seen(fs, root, paths)
        if file.path not in {path for path, _, _ in now}:
            continue
        if now == file.seen:
            unchanged.append(file)
        else:
            changed += _described(fs, root, file.path)
    return LookedAgain(tuple(changed), tuple(unchanged))


def unreadable_error(flow: str, files: Iterable[SetAsideFile]) -> UnreadableFileError:
    """Return the error of a flow that has set-aside files."""
    found = list(files)
    named = "; ".join(str(file) for file in found[:_NAMED_FILES])
    more = f"; and {len(found) - _NAMED_FILES} more" if len(found) > _NAMED_FILES else ""
    return UnreadableFileError(
        f"Flow {printable(flow)}: {len(found)} archived files cannot be read and are set aside: {named}{more}."
        " Nothing of the flow was applied.",
        next_step="Replace each by a whole copy under the same name, or by one that is compressed as its name shows (.gz, .bz2, .zst), or"
        " move it out of the archive; then run again."
        " `airflow-cdc files --lake …` lists them.",
        files=[file.path for file in found],
    )


def _described(fs: FileSystem, root: str, path: str) -> tuple[ArchivedFile, ...]:
    # Its companion may have come or gone since.
    folder, slash, name = path.rpartition("/")
    infos = []
    for each in (path, *(f"{folder}{slash}{other}" for other in companions(name))):
        with contextlib.suppress(FileNotFoundError):
            infos.append((each, fs.info(f"{root.rstrip('/')}/{each}")))
    return tuple(file for file in classify_infos(infos).files if file.path == path)


def _seen(fs: FileSystem, root: str, paths: Iterable[str]) -> tuple[Seen, ...]:
    found: list[Seen] = []
    for path in paths:
        try:
            info = fs.info(f"{root.rstrip('/')}/{path}")
        except FileNotFoundError:
            continue
        found.append((path, int(info["size"] or 0), modified_at(info)))
    return tuple(found)
