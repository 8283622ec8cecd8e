"""TableMode: what a target table keeps of its source's history."""

from __future__ import annotations

from enum import Enum


class TableMode(str, Enum):
    """What a target table keeps; fixed at its creation, as a table property."""

    CURRENT = "scd1"
    """One row per key, as it is now; deleted rows are removed."""
    MULTISET = "scd1-multiset"
    """The rows as they are now, without a key: equal rows as often as the source has them."""
    FLAGGED = "scd1-flagged"
    """One row per key; a deleted row stays, with its last values and a flag."""
    VERSIONS = "scd2"
    """Every version that a row had at a commit, with its validity interval."""
    CHANGE_LOG = "append"
    """Every event, once."""
