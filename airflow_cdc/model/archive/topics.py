"""Topics: legal names, and how to print a name that may be anything."""

from __future__ import annotations

import re
import unicodedata

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
NO_TOPIC = ""
"""In surveys: the topic of lines that name none, in files that hold several."""


def is_legal_topic(name: str) -> bool:
    """Return whether a topic name is legal in Kafka (``org.apache.kafka.common.internals.Topic.validate``)."""
    return _LEGAL.fullmatch(name) is not None and name not in {".", ".."}


def printable(text: str) -> str:
    """Return a text on one line: line ends, cursor movements and invisible characters are escaped as in Python."""
    return "".join(_escaped(character) for character in text)


def _escaped(character: str) -> str:
    # Cc and Cf: control and format characters, such as those that change the writing direction; Zl, Zp: line ends besides \n.
    is_hidden = unicodedata.category(character) in {"Cc", "Cf", "Cs", "Zl", "Zp"}
    return character.encode("unicode_escape").decode("ascii") if is_hidden else character
