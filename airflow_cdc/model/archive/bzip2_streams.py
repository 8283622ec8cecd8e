"""Whether a bzip2 file is whole: Hadoop's reader looks for the next block, so it passes over a stream of which only the header is there.

A stream is a header of four bytes, blocks, and an end; both have magic numbers of 48 bits, not at whole bytes, and a checksum behind them.
The end's is made of the blocks', so it also shows whether a block is gone (docs/reference/archive-layouts.md#files-that-cannot-be-read).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import BinaryIO

_HEADER = re.compile(rb"BZh[1-9]")
_HEADER_BITS, _MAGIC_BITS, _CHECKSUM_BITS = 32, 48, 32
_BLOCK, _END = 0x314159265359, 0x177245385090
_AT_ONCE = 1024**2
_BEHIND = 11
"""Bytes that a magic number and its checksum lie in, wherever they begin in the first one."""


def ends_with_its_last_stream(file: BinaryIO, size: int) -> bool:
    """Return whether a file consists of whole bzip2 streams. Reads all of it, and decompresses nothing.

    :param file: at its beginning.
    :param size: bytes of the file.
    """
    end, blocks, is_inside = 0, 0, False
    for at, magic, checksum in _magics(file):
        if not is_inside and (at != end + _HEADER_BITS or not _HEADER.fullmatch(_at(file, end // 8, 4))):
            return False
        is_inside = magic == _BLOCK
        if is_inside:
            blocks = ((blocks << 1 | blocks >> 31) & 0xFFFFFFFF) ^ checksum
        elif checksum != blocks:
            return False
        else:
            end, blocks = -(-(at + _MAGIC_BITS + _CHECKSUM_BITS) // 8) * 8, 0
    return end == size * 8


def _magics(file: BinaryIO) -> Iterator[tuple[int, int, int]]:
    """Yield the place of each magic number, in bits from the file's beginning, the number, and the checksum behind it."""
    before, content = 0, b""
    while True:
        file.seek(before + len(content))
        read = file.read(_AT_ONCE)
        content += read
        whole = len(content) if not read else len(content) - _BEHIND + 1
        found = sorted((at, shift, magic) for shift, magic, inner in _INNER for at in _places(content, inner))
        for inner_at, shift, magic in found:
            first = inner_at - 1 if shift else inner_at
            if not 0 <= first < whole:
                continue
            bits = int.from_bytes(content[first : first + _BEHIND].ljust(_BEHIND, b"\0"), "big")
            left = _BEHIND * 8 - shift - _MAGIC_BITS
            if bits >> left & (1 << _MAGIC_BITS) - 1 == magic:
                yield (before + first) * 8 + shift, magic, bits >> left - _CHECKSUM_BITS & 0xFFFFFFFF
        if not read:
            return
        before, content = before + max(whole, 0), content[max(whole, 0) :]


def _places(content: bytes, part: bytes) -> Iterator[int]:
    at = content.find(part)
    while at >= 0:
        yield at
        at = content.find(part, at + 1)


def _inner(magic: int, shift: int) -> bytes:
    """Return the bytes that a magic number fills if it begins so many bits behind the first bit of a byte."""
    in_bytes = (magic << (8 - shift) % 8).to_bytes(7 if shift else 6, "big")
    return in_bytes[1:-1] if shift else in_bytes


_INNER = [(shift, magic, _inner(magic, shift)) for magic in (_BLOCK, _END) for shift in range(8)]


def _at(file: BinaryIO, place: int, size: int) -> bytes:
    file.seek(place)
    return file.read(size)
