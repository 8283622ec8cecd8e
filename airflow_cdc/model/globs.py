"""Globs of flow names."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

_GLOB = frozenset("*?[")


def matches_any(name: str, globs: Iterable[str]) -> bool:
    """Return whether a flow's name matches one of the globs, or there are none; never if it matches a glob behind a ``!``."""
    patterns = tuple(globs)
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    refused = (pattern[1:] for pattern in patterns if pattern.startswith("!"))
    return (not wanted or any(_matches(name, pattern) for pattern in wanted)) and not any(_matches(name, pattern) for pattern in refused)


def _matches(name: str, pattern: str) -> bool:
    # Before Python 3.12 fnmatch drops its cache at more than 256 patterns: a few hundred plain names would cost seconds.
    return fnmatch.fnmatchcase(name, pattern) if is_glob(pattern) else name == pattern


def is_glob(pattern: str) -> bool:
    """Return whether a pattern can match more than one name."""
    return bool(_GLOB & set(pattern))
