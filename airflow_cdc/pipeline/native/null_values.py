"""Count the records that say that they have no value: DuckDB reads an absent member as null."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import IO

_BLOCK = 256 * 1024
_NULL = (b'"value":null', b'"value": null')
_LAST = tuple(null + b"}" for null in _NULL)
_ENDINGS = tuple(last + b"\n" for last in _LAST)
_OBJECT = (b'"value":{', b'"value": {')


def count_last_nulls(text: IO[bytes]) -> int:
    """Return how many lines, each a JSON object, surely end with such a member: many lines at little cost.

    :raises OSError: when the text cannot be read.
    """
    return sum(block.count(ending) for block in _whole_lines(text) for ending in _ENDINGS)


def count_null_values(text: IO[bytes]) -> int:
    """Return how many lines are a JSON object with a member ``value`` that is null, in either of the usual spellings.

    :raises OSError: when the text cannot be read.
    :raises ValueError: when such a line is no JSON.
    """
    return sum(_has_null(line) for block in _whole_lines(text) for line in _candidates(block))


def _whole_lines(text: IO[bytes]) -> Iterator[bytes]:
    """Yield the text in blocks that end with a line."""
    rest = b""
    while read := text.read(_BLOCK):
        lines, end, rest = (rest + read).rpartition(b"\n")
        yield lines + end
    yield rest


def _candidates(block: bytes) -> Iterator[bytes]:
    """Yield each line with such a text once, but for lines that hold an object under the name: those are parsed as records."""
    lines: dict[int, int] = {}
    for null in _NULL:
        at = block.find(null)
        while at >= 0:
            begins, ends = block.rfind(b"\n", 0, at) + 1, block.find(b"\n", at)
            lines[begins] = ends if ends >= 0 else len(block)
            at = block.find(null, lines[begins])
    for begins, ends in lines.items():
        line = block[begins:ends]
        if not any(text in line for text in _OBJECT):
            yield line


def _has_null(line: bytes) -> bool:
    # The bracket that ends a document closes its outermost object, so the member before it is its own.
    if line.rstrip().endswith(_LAST):
        return True
    document = json.loads(line)
    return isinstance(document, dict) and "value" in document and document["value"] is None
