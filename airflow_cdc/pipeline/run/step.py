"""Steps of a run, for those who watch it."""

from __future__ import annotations

from dataclasses import dataclass

BEGUN, DONE, ENDED, FAILED = "begun", "done", "ended", "failed"
"""Stages of a flow besides the names of a microbatch's effects: a microbatch was planned; it was committed; the flow has no more; the flow
stopped."""


@dataclass(frozen=True)
class Step:
    """Something that a run has just done for a flow."""

    flow: str
    stage: str
    microbatch: int = 0
    files: int = 0
    """Of the microbatch."""
    bytes: int = 0
    """Of the microbatch, in the archive, compressed or not."""
    records: int = 0
    """Of the microbatch, as surveyed."""
    pending_bytes: int = 0
    """Of the flow's files that no committed microbatch owned wholly when the microbatch began, with those of the microbatch."""
