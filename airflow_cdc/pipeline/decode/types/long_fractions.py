"""Long fractions: keep all digits of decimals that are JSON numbers (``decimal.format=NUMERIC``).

Spark's JSON reader converts a number with a point to a double, then to text: 17 digits remain. A VARIANT keeps 38, so members that may
hold such numbers are read as VARIANT. Numbers with an exponent, as Java spells small decimals, and longer ones are doubles there too: their
text is looked up in the line.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from airflow_cdc.pipeline.decode.renamed_columns import as_pattern, with_old_names
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.spark import sql

_NUMBER = r"(-?[0-9.]+([eE][+-]?[0-9]+)?)"
_SEVERAL = "a number whose digits are not certain"
"""Stands for the text of a number that the line does not show: no type reads it, so the record is rejected."""


def fractions_of(columns: SourceColumns) -> frozenset[str]:
    """Return the columns whose values may be such numbers, and their older names."""
    return frozenset(with_old_names((name for name, rule in columns.types.items() if rule.is_fraction), columns.formerly))


def members_of(names: Iterable[str], fractions: Iterable[str]) -> str:
    """Return the DDL of an image's members: STRING, except VARIANT for those of ``fractions``."""
    return ", ".join(f"{sql.name(name)} {'VARIANT' if name in fractions else 'STRING'}" for name in names)


def texts_of(image: str, names: Iterable[str], fractions: Iterable[str], *, lines: str) -> str:
    """Return the SQL of an image with all its members as text.

    :param fractions: members that are read as VARIANT.
    :param lines: SQL of the archived text that holds the image.
    """
    members = {name: f"{image}.{sql.name(name)}" for name in names}
    texts = {name: _text_of(member, name, lines) if name in fractions else member for name, member in members.items()}
    return sql.struct_unless_null(image, texts)


def _text_of(member: str, name: str, lines: str) -> str:
    return f"if(schema_of_variant({member}) = 'DOUBLE', {_archived(member, name, lines)}, CAST({member} AS STRING))"


def _archived(member: str, name: str, lines: str) -> str:
    """Return the SQL of the text that a line has of a member's number, which is parsed as a double.

    Both images and the key may have the member: of each text of another number the double is another one, or else it is not known which
    one is the member's.
    """
    spelled = "|".join(as_pattern(each) for each in dict.fromkeys((json.dumps(name, ensure_ascii=False), json.dumps(name))))
    pattern = rf"(?<!\\)(?:{spelled})\s*:\s*{_NUMBER}"
    all_texts = f"regexp_extract_all({lines}, {sql.text(pattern)}, 1)"
    texts = f"array_distinct(filter({all_texts}, text -> try_cast(text AS DOUBLE) = CAST({member} AS DOUBLE)))"
    return sql.let("texts", texts, f"if(size(texts) = 1, texts[0], {sql.text(_SEVERAL)})")
