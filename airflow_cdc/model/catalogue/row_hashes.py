"""The SQL by which a database spells its rows as text and hashes them, so that two databases find equal rows to be equal.

A cell is its length in characters, a colon and its text; NULL is ``-``. A row's hash is the first 60 bits of the MD5 of its cells, which
each database computes where the rows are. The source's dialects stand in its entry (:mod:`airflow_cdc.model.connectors`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

_HEXADECIMAL_DIGITS = 15
"""60 bits: their sums over some hundred million rows fit each database's numbers, and one hash each database's BIGINT."""


class CellForm(Enum):
    """How the values of a column are written as text."""

    WHOLE = "whole"
    """An integer's digits."""
    DECIMAL = "decimal"
    """Digits with the column's scale."""
    TEXT = "text"
    BOOLEAN = "boolean"
    """1 or 0."""
    BYTES = "bytes"
    """Hexadecimal digits."""
    DAY = "day"
    """Days since 1970."""
    MICROSECONDS = "microseconds"
    """Since 1970, of a time without a zone, or with one in UTC."""
    INSTANT = "instant"
    """As above, of a type with a zone at the source."""


@dataclass(frozen=True)
class Dialect:
    """One database's SQL."""

    quote: Callable[[str], str]
    """Quotes an identifier."""
    forms: Mapping[CellForm, str]
    """By form, the SQL of a column's text; ``{c}`` stands for the column."""
    join: Callable[[Sequence[str]], str]
    """Returns the SQL of texts one after the other."""
    length: str
    """Function: characters of a text."""
    digits: str
    """SQL of the MD5 of the text ``{t}``, as hexadecimal digits."""
    number: str
    """SQL of the number that the hexadecimal digits ``{d}`` spell."""
    clock: str = ""
    """Statement: milliseconds since 1970, as ``source.ts_ms`` of the events has them."""

    def text_of(self, name: str, form: CellForm) -> str:
        """Return the SQL of a column's text."""
        return self.forms[form].format(c=self.quote(name))

    def hash_of(self, columns: Mapping[str, CellForm]) -> str:
        """Return the SQL of the hash of some columns of a row.

        :param columns: at least one, in an order that both sides share.
        """
        texts = [self.text_of(name, form) for name, form in columns.items()]
        colon = "':'"
        cells = [f"COALESCE({self.join([f'{self.length}({text})', colon, text])}, '-')" for text in texts]
        digits = self.digits.format(t=self.join(cells))
        return self.number.format(d=f"SUBSTR({digits}, 1, {_HEXADECIMAL_DIGITS})")


def double_quoted(name: str) -> str:
    """Quote an identifier as SQL's standard has it."""
    return '"' + name.replace('"', '""') + '"'


def bars(texts: Sequence[str]) -> str:
    """Return the SQL of texts one after the other, by the operator."""
    # A function takes a hundred arguments at most; the operator any number.
    return " || ".join(texts)


def concatenated(texts: Sequence[str]) -> str:
    """Return the same by the function, for a database whose operator means another thing."""
    return f"CONCAT({', '.join(texts)})"
