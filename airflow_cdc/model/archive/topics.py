"""Topics: which names are one, and how a name is printed that may be anything."""

from __future__ import annotations

import re
import unicodedata

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
NO_TOPIC = ""
"""Stands in surveys for the topic of lines that name none, in files that hold several."""


def is_legal_topic(name: str) -> bool:
    """Return whether Kafka would take a name for a topic's (``org.apache.kafka.common.internals.Topic.validate``)."""
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}


def printable(text: str) -> str:
    """Return a text on one line: what ends a line, moves a cursor or cannot be seen is escaped as Python does it."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    # Cc and Cf: control and format characters, such as those that turn the direction of writing; Zl, Zp: ends of lines beside \n.
    is_hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return character.encode("unicode_escape").decode("ascii") if is_hidden else character
