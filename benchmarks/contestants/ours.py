"""Ours: the archive is applied in this process, with the settings that a user gets who sets none."""

from __future__ import annotations

from pathlib import Path

from benchmarks.base import apply
from benchmarks.contestants.contestant import Contestant
from benchmarks.shapes import TOPIC


class Ours(Contestant):
    """Survey, plan, decode, reconcile, merge, record: all of it is measured."""

    name = "ours"

    @property
    def table(self) -> Path:
        """The flow's target."""
        return self.folder / "lake" / TOPIC

    def prepare(self) -> None:
        """Copy the lake, state and all, and have the archive that it knows hold the events."""
        self.task.base.offer(self.task.files)
        self.copy(self.task.base.lake)

    def merge(self) -> None:
        """Apply the archive."""
        base = self.task.base
        apply(base.spark, base.archive, self.folder / "lake", base.flow)
