"""The archived events of one key, read from the files that a flow's microbatches own, the newest first, within bounds.

A survey does not record which keys a file holds, so each file is read, and lines without the key's text are passed over before they are
parsed. Only records in Debezium's envelope and in files of lines are read here; whatever is left out is named.
"""

from __future__ import annotations

import bz2
import gzip
import json
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.position.lives import lane_of
from airflow_cdc.model.state.microbatch import Microbatch

_OLD_KEY, _NEW_KEY = "__debezium.oldkey", "__debezium.newkey"
Key = Mapping[str, str]
"""A key's values as text, by column."""


@dataclass(frozen=True)
class Bounds:
    """How much of an archive one answer reads."""

    bytes: int = 64 * 1024**2
    """Bytes in the archive, compressed or not."""
    files: int = 400
    events: int = 500
    seconds: float = 8.0


@dataclass(frozen=True)
class ArchivedEvent:
    """One archived record of the key."""

    microbatch: int | None
    """None where no microbatch owns the file yet."""
    file: str
    line: int
    """From 1."""
    partition: int | None
    """Lane, see :mod:`airflow_cdc.model.position.lives`; None where the archive does not record it."""
    offset: int | None
    op: str | None
    """Operation code; None for a tombstone."""
    source: Mapping[str, Any]
    before: Any
    after: Any
    transaction: Any
    sent_ms: int | None
    """When the connector processed the event, in milliseconds since 1970."""
    moved_from: Any = None
    """The key that the row had before, where the event's headers name it."""
    moved_to: Any = None


@dataclass
class Reading:
    """What was read for one answer, and what was not."""

    bounds: Bounds = field(default_factory=Bounds)
    events: list[ArchivedEvent] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    left_out: dict[str, int] = field(default_factory=dict)
    """By reason: number of files that were not read."""
    begun: float = field(default_factory=time.monotonic)

    @property
    def is_full(self) -> bool:
        """Whether a bound is reached."""
        bounds = self.bounds
        return (
            self.bytes >= bounds.bytes
            or self.files >= bounds.files
            or len(self.events) >= bounds.events
            or time.monotonic() - self.begun > bounds.seconds
        )

    def leave_out(self, reason: str) -> None:
        """Count a file that is not read."""
        self.left_out[reason] = self.left_out.get(reason, 0) + 1


def read_microbatch(fs: FileSystem, root: str, microbatch: Microbatch, key: Key, reading: Reading) -> bool:
    """Add a microbatch's events of a key to a reading; False where a bound stopped it before the microbatch's end.

    :param root: of the archive, as its file system names it.
    """
    for file in reversed(microbatch.files):
        if reading.is_full:
            return False
        reading.events += _events(fs, root, file, (key, microbatch), reading)
    return True


def read_pending(where: tuple[FileSystem, str], files: Iterable[ArchivedFile], flow: str, key: Key, reading: Reading) -> bool:
    """Add the events of a key in files that no microbatch owns; False where a bound stopped it.

    :param where: the archive's file system, and its root there.
    """
    for file in files:
        if reading.is_full:
            return False
        reading.events += _events(*where, file, (key, flow), reading)
    return True


def _events(fs: FileSystem, root: str, file: ArchivedFile, of: tuple[Key, Microbatch | str], reading: Reading) -> list[ArchivedEvent]:
    key, owner = of
    if reason := _why_not_read(file):
        reading.leave_out(reason)
        return []
    try:
        lines = list(_lines(fs, root, file))
    except (OSError, EOFError, ValueError) as error:
        reading.leave_out(f"cannot be read ({type(error).__name__})")
        return []
    reading.files, reading.bytes = reading.files + 1, reading.bytes + file.size
    needles = _needles(key)
    found = []
    for number, (raw, raw_key) in enumerate(lines, 1):
        if all(needle in raw or needle in raw_key for needle in needles):
            event = _event(raw, raw_key, file, number, owner)
            if event and _has_key(event[1], event[0], key):
                found.append(event[0])
    return found


def _why_not_read(file: ArchivedFile) -> str | None:
    if file.format in (FileFormat.AVRO, FileFormat.PARQUET):
        return f"are {file.format.value.capitalize()}"
    if file.format is FileFormat.ARRAY:
        return "are JSON arrays"
    return "hold records in another shape than Debezium's envelope" if file.respelled else None


def _lines(fs: FileSystem, root: str, file: ArchivedFile) -> Iterator[tuple[bytes, bytes]]:
    """Yield each line of a file with the line of its companion."""
    values = _content(fs, f"{root.rstrip('/')}/{file.path}").splitlines()
    keys = _content(fs, f"{root.rstrip('/')}/{file.keys_path}").splitlines() if file.keys_path else []
    for place, line in enumerate(values):
        yield line, keys[place] if place < len(keys) else b""


def _content(fs: FileSystem, path: str) -> bytes:
    content = fs.cat_file(path)
    if path.endswith(".gz"):
        return gzip.decompress(content)
    if path.endswith(".bz2"):
        return bz2.decompress(content)
    if path.endswith((".zst", ".zstd")):
        import pyarrow

        with pyarrow.CompressedInputStream(pyarrow.BufferReader(content), "zstd") as stream:
            return bytes(stream.read())
    return content


def _needles(key: Key) -> list[bytes]:
    """Return texts without which a line surely does not hold the key: JSON spells these in one way only."""
    return [value.encode() for value in key.values() if value and value.isascii() and value.isalnum() and "e" not in value.lower()]


def _event(raw: bytes, raw_key: bytes, file: ArchivedFile, line: int, owner: Microbatch | str) -> tuple[ArchivedEvent, Any] | None:
    """Return a line's event and its key; None where it is not an event of the flow."""
    try:
        record = json.loads(raw)
        outer_key = json.loads(raw_key) if raw_key.strip() else None
    except ValueError:
        # The quarantine has it.
        return None
    flow = owner if isinstance(owner, str) else owner.flow
    is_whole = isinstance(record, dict) and "value" in record and ("topic" in record or "offset" in record)
    if is_whole and record.get("topic") not in (None, flow):
        return None
    value = _payload(record.get("value") if is_whole else record)
    if not isinstance(value, dict) and value is not None:
        return None
    key = _payload(record.get("key") if is_whole else outer_key)
    partition = record.get("partition") if is_whole else file.partition
    offset = record.get("offset") if is_whole else None
    headers = _headers(record.get("headers")) if is_whole else {}
    value = value or {}
    event = ArchivedEvent(
        microbatch=None if isinstance(owner, str) else owner.number,
        file=file.path,
        line=line,
        partition=_lane(owner, file.path, line, partition),
        offset=offset if isinstance(offset, int) else None,
        op=value.get("op"),
        source=value.get("source") or {},
        before=_image(value.get("before")),
        after=_image(value.get("after")),
        transaction=(value.get("transaction") or {}).get("id") if isinstance(value.get("transaction"), dict) else None,
        sent_ms=value.get("ts_ms"),
        moved_from=headers.get(_OLD_KEY),
        moved_to=headers.get(_NEW_KEY),
    )
    return event, key


def _payload(value: Any) -> Any:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return value
    return value["payload"] if isinstance(value, dict) and "payload" in value and "schema" in value else value


def _image(value: Any) -> Any:
    """Return an image; a document's JSON text as the document."""
    return _payload(value) if isinstance(value, str) else value


def _headers(headers: Any) -> dict[str, Any]:
    """Return headers by name, as the sinks write them: a list of pairs or of objects, or one object."""
    if isinstance(headers, dict):
        return {str(name): _payload(value) for name, value in headers.items()}
    pairs = ((item.get("key"), item.get("value")) for item in headers or () if isinstance(item, dict))
    return {str(name): _payload(value) for name, value in pairs}


def _lane(owner: Microbatch | str, path: str, line: int, partition: Any) -> int | None:
    if not isinstance(partition, int):
        return None
    spans = () if isinstance(owner, str) else owner.lives.get(path, ())
    lives = [span.life for span in spans if span.partition == partition and span.first_line <= line]
    return lane_of(partition, lives[-1]) if lives else partition


def _has_key(record_key: Any, event: ArchivedEvent, key: Key) -> bool:
    """Return whether an event is of a key: by the record's key, else by either image."""
    if isinstance(record_key, dict) and key.keys() <= record_key.keys():
        return _equals(record_key, key)
    return any(isinstance(image, dict) and _equals(image, key) for image in (event.after, event.before))


def _equals(members: Mapping[str, Any], key: Key) -> bool:
    return all(name in members and spelled(members[name]) == value for name, value in key.items())


def spelled(value: Any) -> str:
    """Return a JSON value as the text by which people ask for it."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
