"""Text forms: how a column that is kept as text spells values that are no texts themselves.

Equal values have equal texts in one form only: ``01:00:00.000`` and ``01:00:00.000000`` are one time, and two keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_INTEGERS = ("TINYINT", "SMALLINT", "INT", "BIGINT")
_NOTATION = re.compile(r"(\w+)(?:\((\d+)\))?")
_SECONDS = len("2018-07-13 11:30:30")


@dataclass(frozen=True)
class TextForm:
    """The form of the texts of one kind of value."""

    kind: str
    """Of the values: a Spark SQL type without its parameters, or one of the kinds below."""
    digits: int = 0
    """Digits behind the point. A timestamp with 0 has as many as it needs."""

    def __str__(self) -> str:
        return f"{self.kind}({self.digits})" if self.digits else self.kind

    @classmethod
    def parse(cls, notation: str) -> TextForm:
        """Return the form of a notation, which ``str`` makes."""
        found = _NOTATION.fullmatch(notation)
        if found is None:
            raise ValueError(f"{notation!r} is no form of a text")
        return cls(found[1], int(found[2] or 0))

    @property
    def is_plain(self) -> bool:
        """Whether texts and whole numbers, which every source spells alike, have this form."""
        return self in (TEXT, WHOLE)

    def zeros_after(self, coarser: TextForm) -> str | None:
        """Return what makes a text of the same kind and of fewer digits one of this form; None where nothing does."""
        more = self.digits - coarser.digits
        return None if more < 0 else ("" if coarser.digits or not more else ".") + "0" * more


TEXT = TextForm("TEXT")
"""Of archived texts: what they say is known to the source alone."""
WHOLE = TextForm("DECIMAL")
TIME = "TIME"
"""Times of day and durations."""
OWN_SCALE = TextForm("NUMERIC")
"""Of decimals that each carry their own scale."""


def form_of_type(sql_type: str) -> TextForm:
    """Return the form of the values of a Spark SQL type, where they are cast to text."""
    if sql_type in _INTEGERS:
        return WHOLE
    if sql_type.startswith("DECIMAL("):
        return TextForm("DECIMAL", int(sql_type.rstrip(")").rpartition(",")[2]))
    return TEXT if sql_type.startswith("ARRAY<") or sql_type in ("STRING", "BINARY", "VARIANT") else TextForm(sql_type)


def common_form(forms: Iterable[TextForm]) -> TextForm | None:
    """Return the form in which the values of all forms have one text each; None if there is none."""
    found = set(forms)
    if all(form.is_plain for form in found):
        return TEXT if TEXT in found else WHOLE
    if len({form.kind for form in found}) > 1:
        return None
    return max(found, key=lambda form: form.digits)


def respelled(value: str, own: TextForm, form: TextForm) -> str:
    """Return the Spark SQL of a text in another form of its kind, NULL where that would cut it.

    :param value: SQL of the text, in the form ``own``.
    """
    zeros = form.zeros_after(own)
    if zeros is None:
        return "CAST(NULL AS STRING)"
    if own.digits == 0 and own.kind.startswith("TIMESTAMP") and zeros:
        # A cast to text leaves out the zeros that end a fraction.
        return f"rpad(concat({value}, if(contains({value}, '.'), '', '.')), {_SECONDS + 1 + form.digits}, '0')"
    return f"concat({value}, '{zeros}')" if zeros else value


def respelled_natively(value: str, own: TextForm, form: TextForm) -> str:
    """Return the same in DuckDB's SQL, for a form of which all texts have as many digits."""
    zeros = form.zeros_after(own)
    return "CAST(NULL AS VARCHAR)" if zeros is None else f"({value} || '{zeros}')"
