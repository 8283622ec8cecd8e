"""The SQL by which a database spells its rows as text and hashes them, so that two databases find equal rows to be equal.

A cell is its length in characters, a colon and its text. Of texts and bytes it is their MD5, because servers refuse to join long ones.
NULL is ``-``. A row's hash is the first 60 bits of the MD5 of its cells, which each database computes where the rows are. The source's
dialects stand in its entry (:mod:`airflow_cdc.model.connectors`).
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
    """Their MD5, in UTF-8."""
    BOOLEAN = "boolean"
    """1 or 0."""
    BYTES = "bytes"
    """Their MD5."""
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
    digits_of_bytes: str
    """As above, of bytes."""
    number: str
    """SQL of the number that the hexadecimal digits ``{d}`` spell."""
    session: tuple[str, ...] = ()
    """Statements before each other one: settings of a server or a user must not change what is read."""
    before_name: str = ""
    """Statement, with the schema and the table as parameters: what stands before the relation's name."""
    clock: str = ""
    """Statement: milliseconds since 1970, as ``source.ts_ms`` of the events has them."""

    def text_of(self, name: str, form: CellForm) -> str:
        """Return the SQL of a column's text."""
        return self.forms[form].format(c=self.quote(name))

    def hash_of(self, columns: Mapping[str, CellForm]) -> str:
        """Return the SQL of the hash of some columns of a row.

        :param columns: at least one, in an order that both sides share.
        """
        cells = [self._cell(name, form) for name, form in columns.items()]
        return self.hash_of_text(self.join(cells))

    def hash_of_text(self, text: str) -> str:
        """Return the SQL of the hash of a text, which is given as SQL."""
        return self.number.format(d=f"SUBSTR({self.digits.format(t=text)}, 1, {_HEXADECIMAL_DIGITS})")

    def _cell(self, name: str, form: CellForm) -> str:
        text, colon = self.text_of(name, form), "':'"
        digits = {CellForm.TEXT: self.digits, CellForm.BYTES: self.digits_of_bytes}.get(form)
        if digits is None:
            # Also for a value that is none, such as MySQL's 0000-00-00.
            return f"COALESCE({self.join([f'{self.length}({text})', colon, text])}, '-')"
        # No COALESCE: what a limit of the server makes NULL must not count as the column's NULL.
        return f"CASE WHEN {self.quote(name)} IS NULL THEN '-' ELSE {digits.format(t=text)} END"


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
