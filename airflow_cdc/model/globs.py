"""Globs of flow names."""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable

_GLOB = frozenset("*?[")


def matches_any(name: str, globs: Iterable[str]) -> bool:
    """Return whether a flow's name matches one of the globs, or there are none; never one that a glob behind a ``!`` matches."""
    patterns = tuple(globs)
    wanted = [pattern for pattern in patterns if not pattern.startswith("!")]
    refused = (pattern[1:] for pattern in patterns if pattern.startswith("!"))
    return (not wanted or any(_matches(name, pattern) for pattern in wanted)) and not any(_matches(name, pattern) for pattern in refused)


def _matches(name: str, pattern: str) -> bool:
    # Before Python 3.12 fnmatch forgets its expressions where there are more than 256: a few hundred plain names would cost seconds.
    return fnmatch.fnmatchcase(name, pattern) if is_glob(pattern) else name == pattern


def is_glob(pattern: str) -> bool:
    """Return whether a pattern is more than the name of one flow."""
    return bool(_GLOB & set(pattern))
