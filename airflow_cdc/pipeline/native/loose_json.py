"""What DuckDB accepts and JSON does not have: commas behind a last member (``{"a":1,}``), and ``NaN`` and infinities as numbers.
And what it does not tell: whether a member is null, or absent.

DuckDB offers no strict reader. NumPy looks at about a quarter of the cost of DuckDB's regular expressions (docs/adr/measurements.md).
"""

from __future__ import annotations

import re
from typing import IO, Any

from airflow_cdc.pipeline.native.fetched_files import FetchedFiles

_BLOCK = 256 * 1024
"""Bytes looked at together: they stay in the processor's cache."""
_LOOSE = re.compile(rb",\s*[}\]]|[:,\[\s-](?:nan|inf(?:inity)?)(?=[\s,}\]])", re.IGNORECASE)
_COMMA, _SPACE = ord(","), ord(" ")
_CLOSING, _CASE = ord("]"), 0xDF
"""``]`` and ``}`` differ in one bit, which the mask takes away, and so do small letters and large ones."""
_A, _F, _I, _N = b"AFIN"
_NULL_VALUE = b'"value":null}\n'
"""Stands in no text, whose quotes are escaped, and nowhere but at the end of a document: of its own member then."""
_KEPT = len(_NULL_VALUE) - 1
"""Bytes of a block that are looked at again with the next: as many as what is looked for may lack, so that it is found once."""


def with_loose_json(files: FetchedFiles) -> set[str]:
    """Return the names in DuckDB of the files that hold a comma and a closing bracket behind it, or a number that is none, or that cannot
    be read.

    Either may stand inside a text, and be JSON.
    """
    return set(files.uris) - null_values(files).keys()


def null_values(files: FetchedFiles) -> dict[str, int]:
    """Return how many documents end with the null member ``value``, by the names in DuckDB of the other files."""
    counts = {uri: _null_values(files, number) for number, uri in enumerate(files.uris)}
    return {uri: count for uri, count in counts.items() if count is not None}


def _null_values(files: FetchedFiles, number: int) -> int | None:
    try:
        with files.open_text(number) as text:
            return count_null_values(text)
    except OSError:
        return None


def count_null_values(text: IO[bytes]) -> int | None:
    """Return how many lines of a text end with the null member ``value``, spelled as Kafka Connect does. None if the text has a comma with
    a closing bracket behind it, and nothing but white space between them; or a number that is none, between what may stand around a value.

    :raises OSError: when it cannot be read.
    """
    places, rest, count = _Places(), b"", 0
    while read := text.read(_BLOCK):
        block = rest + read
        if any(_LOOSE.match(block, at) for at in places.of(block)):
            return None
        count += block.count(_NULL_VALUE)
        known = len(block.rstrip())
        begins = known - 1 if block[known - 1 : known] == b"," else len(block)
        rest = block[max(min(begins, len(block) - _KEPT), 0) :]
    return None if _LOOSE.search(rest) else count


class _Places:
    """Where a block may have what :data:`_LOOSE` finds. Holds room for one block: arrays made anew for each take as long as the look."""

    def __init__(self) -> None:
        self._room: list[Any] = []

    def of(self, block: bytes) -> list[int]:
        """Return the places of commas, without the last two bytes, and of the bytes before ``nan`` and ``inf``."""
        import numpy as np

        each = np.frombuffer(block, np.uint8)
        if not self._room or len(self._room[0]) < len(each):
            self._room = [np.empty(len(each), kind) for kind in (np.uint8, np.bool_, np.bool_, np.bool_)]
        letters, found, other, is_n = (part[: len(each)] for part in self._room)
        np.bitwise_and(each, _CASE, out=letters)
        np.equal(letters, _CLOSING, out=found)
        found |= np.less_equal(each, _SPACE, out=other)
        near = found[1:-1]
        near &= np.equal(each, _COMMA, out=other)[:-2]
        places = _before_closing(each, np.flatnonzero(near)) if near.any() else []
        # The byte before, and three letters.
        near, of_n = found[:-3], np.equal(letters, _N, out=is_n)
        np.logical_and(of_n[1:-2], of_n[3:], out=near)
        near &= np.equal(letters, _A, out=other)[2:-1]
        places += np.flatnonzero(near).tolist() if near.any() else []
        np.logical_and(of_n[2:-1], np.equal(letters, _I, out=other)[1:-2], out=near)
        near &= np.equal(letters, _F, out=other)[3:]
        return places + np.flatnonzero(near).tolist() if near.any() else places


def _before_closing(each: Any, places: Any) -> list[int]:
    """Return the places of commas with a closing bracket behind, or white space and then a bracket or more white space."""
    then = each[places + 2]
    is_sure = each[places + 1] > _SPACE
    return [int(place) for place in places[is_sure | (then <= _SPACE) | ((then & _CASE) == _CLOSING)]]
