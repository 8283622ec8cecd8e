"""What DuckDB accepts and JSON does not have: commas behind a last member (``{"a":1,}``), and ``NaN`` and infinities as numbers.

DuckDB offers no strict reader. NumPy looks at about a quarter of the cost of DuckDB's regular expressions (docs/adr/measurements.md).
"""

from __future__ import annotations

import re
from typing import IO, Any

from airflow_cdc.pipeline.native.fetched_files import FetchedFiles

_BLOCK = 256 * 1024
"""Bytes looked at together: they stay in the processor's cache."""
_TRAILING = re.compile(rb",\s*[}\]]")
_COMMA, _SPACE = ord(","), ord(" ")
_CLOSING, _CASE = ord("]"), 0xDF
"""``]`` and ``}`` differ in one bit, which the mask takes away, and so do small letters and large ones."""
_NO_NUMBER = re.compile(rb"[:,\[\s-](?:nan|inf(?:inity)?)(?=[\s,}\]])", re.IGNORECASE)
_LONGEST = len("-infinity,")
_I, _N = b"IN"
_AN, _NF = (int.from_bytes(pair, "little") for pair in (b"AN", b"NF"))
_BOTH_CASES = _CASE * 0x101


def with_loose_json(files: FetchedFiles) -> set[str]:
    """Return the names in DuckDB of the files that hold a comma and a closing bracket behind it, or a number that is none, or that cannot
    be read.

    Either may stand inside a text, and be JSON.
    """
    return {uri for number, uri in enumerate(files.uris) if _may_be_loose(files, number)}


def _may_be_loose(files: FetchedFiles, number: int) -> bool:
    try:
        with files.open_text(number) as text:
            return is_loose(text)
    except OSError:
        return True


def is_loose(text: IO[bytes]) -> bool:
    """Return whether a text has a comma with a closing bracket behind it, and nothing but white space between them; or a number that is
    none, between what may stand around a value.

    :raises OSError: when it cannot be read.
    """
    rest = b""
    while read := text.read(_BLOCK):
        block = rest + read
        if any(_TRAILING.match(block, at) for at in _commas(block)) or any(_NO_NUMBER.match(block, at) for at in _no_numbers(block)):
            return True
        known = len(block.rstrip())
        begins = known - 1 if block[known - 1 : known] == b"," else len(block)
        rest = block[max(min(begins, len(block) - _LONGEST), 0) :]
    return any(pattern.search(rest) for pattern in (_TRAILING, _NO_NUMBER))


def _commas(block: bytes) -> list[int]:
    """Return the places of commas that may be such ones, without the last two bytes.

    Behind them is a closing bracket, or white space with a bracket or more white space behind.
    """
    import numpy as np

    each = np.frombuffer(block, np.uint8)
    behind = each[1:-1]
    near = (behind & _CASE) == _CLOSING
    near |= behind <= _SPACE
    near &= each[:-2] == _COMMA
    if not near.any():
        return []
    places = np.flatnonzero(near)
    then = each[places + 2]
    is_sure = each[places + 1] > _SPACE
    return [int(place) for place in places[is_sure | (then <= _SPACE) | ((then & _CASE) == _CLOSING)]]


def _no_numbers(block: bytes) -> list[int]:
    """Return the places of the bytes before what may be such numbers, without the last ones of the block."""
    import numpy as np

    each = np.frombuffer(block, np.uint8)
    found: list[int] = []
    # Pairs of bytes: half as many to look at, twice.
    for first in (1, 2):
        pairs: Any = each[first : first + (len(each) - 1 - first) // 2 * 2].view("<u2") & _BOTH_CASES
        near = pairs == _AN
        near |= pairs == _NF
        if near.any():
            places = np.flatnonzero(near) * 2 + first
            before = each[places - 1] & _CASE
            found += [int(place) - 2 for place in places[(before == _I) | (before == _N)] if place > 1]
    return found
