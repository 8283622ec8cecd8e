"""Whether a Zstandard file is whole: DuckDB, Spark and Arrow take a file whose last frame is cut off for one that ends before it.

A frame is a header, blocks with headers of three bytes, perhaps a checksum (docs/reference/archive-layouts.md#files-that-cannot-be-read).
"""

from __future__ import annotations

from typing import BinaryIO

_MAGIC = b"\x28\xb5\x2f\xfd"
_SKIPPABLE = b"\x2a\x4d\x18"
_DICTIONARY_BYTES, _SIZE_BYTES = (0, 1, 2, 4), (0, 2, 4, 8)
_RLE, _RESERVED = 1, 3


def ends_with_its_last_frame(file: BinaryIO, size: int) -> bool:
    """Return whether a file consists of whole frames. Reads their headers and those of their blocks alone.

    :param file: at its beginning.
    :param size: bytes of the file.
    """
    end = 0
    while end < size:
        found = _end_of_frame(file, end)
        if found is None or found > size:
            return False
        end = found
    return True


def _end_of_frame(file: BinaryIO, begin: int) -> int | None:
    """Return where a frame ends that begins there; None where none does, or its headers are cut off."""
    head = _at(file, begin, 8)
    if head[1:4] == _SKIPPABLE and head[0] >> 4 == 5 and len(head) == 8:
        return begin + 8 + int.from_bytes(head[4:], "little")
    if head[:4] != _MAGIC or len(head) < 5:
        return None
    descriptor = head[4]
    is_single, has_checksum = descriptor >> 5 & 1, descriptor >> 2 & 1
    sizes = _SIZE_BYTES[descriptor >> 6] or is_single
    at = begin + 5 + (1 - is_single) + _DICTIONARY_BYTES[descriptor & 3] + sizes
    while True:
        block = _at(file, at, 3)
        if len(block) < 3:
            return None
        header = int.from_bytes(block, "little")
        kind = header >> 1 & 3
        if kind == _RESERVED:
            return None
        at += 3 + (1 if kind == _RLE else header >> 3)
        if header & 1:
            return at + 4 * has_checksum


def _at(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    return file.read(size)
