"""Commas behind a last member (``{"a":1,}``): DuckDB accepts them, Spark does not, and they are no JSON.

DuckDB offers no strict reader. NumPy looks at about a quarter of the cost of DuckDB's regular expressions (docs/adr/measurements.md).
"""

from __future__ import annotations

import re
from typing import IO

from airflow_cdc.pipeline.native.fetched_files import FetchedFiles

_BLOCK = 256 * 1024
"""Bytes looked at together: they stay in the processor's cache."""
_TRAILING = re.compile(rb",\s*[}\]]")
_COMMA, _SPACE = ord(","), ord(" ")
_CLOSING, _CASE = ord("]"), 0xDF
"""``]`` and ``}`` differ in one bit, which the mask takes away."""


def with_trailing_commas(files: FetchedFiles) -> set[str]:
    """Return the names in DuckDB of the files that hold a comma and a closing bracket behind it, or that cannot be read.

    The comma may stand inside a text, and be JSON.
    """
    return {uri for number, uri in enumerate(files.uris) if _may_trail(files, number)}


def _may_trail(files: FetchedFiles, number: int) -> bool:
    try:
        with files.open_text(number) as text:
            return has_trailing_comma(text)
    except OSError:
        return True


def has_trailing_comma(text: IO[bytes]) -> bool:
    """Return whether a text has a comma with a closing bracket behind it, and nothing but white space between them.

    :raises OSError: when it cannot be read.
    """
    rest = b""
    while read := text.read(_BLOCK):
        block = rest + read
        if any(_TRAILING.match(block, at) for at in _commas(block)):
            return True
        known = len(block.rstrip())
        rest = block[min(known - 1, len(block) - 2) :] if block[known - 1 : known] == b"," else block[-2:]
    return _TRAILING.search(rest) is not None


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
