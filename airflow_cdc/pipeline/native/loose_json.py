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
_A, _I, _N = b"AIN"
_OPENING, _QUOTE = ord("["), ord('"')
_MAY_BEGIN = _CASE << 8 | 0xC0
"""Of two bytes: leaves nothing of a first one below ``@``, as all are that may stand before a value, but for ``[``."""


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

    each = np.frombuffer(block, np.uint8)[:-1]
    found = [np.flatnonzero(each[:-1] == _OPENING)]
    # Pairs of a byte that may stand before a value and a letter: half as many to look at, twice.
    for first in (0, 1):
        pairs: Any = each[first : first + (len(each) - first) // 2 * 2].view("<u2") & _MAY_BEGIN
        near = pairs == _N << 8
        near |= pairs == _I << 8
        if near.any():
            found.append(np.flatnonzero(near) * 2 + first)
    places = np.concatenate(found)
    places = places[each[places] != _QUOTE]
    letter, then = (np.frombuffer(block, np.uint8)[places + behind] & _CASE for behind in (1, 2))
    return [int(place) for place in places[((letter == _N) & (then == _A)) | ((letter == _I) & (then == _N))]]
