"""Snapshot: a connector's read of the whole table, which says of every row that was there before whether it still is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.position import Position


@dataclass(frozen=True)
class Snapshot:
    """The newest full snapshot that a flow has seen reads of."""

    position: Position
    """All its reads share it."""
    is_first: bool
    """Whether nothing of the flow stands before it; then nothing can have vanished in it."""
    is_complete: bool = False
    """Whether its last read was seen."""
    cut: Position | None = None
    """Rows and events before it, unless archived after the reads, are void: the snapshot did not find them."""
    last_offsets: Mapping[str, int] | None = None
    """By Kafka partition: offset of its last read."""

    def to_json(self) -> dict[str, Any]:
        """Return the snapshot as plain JSON values."""
        return {
            "position": self.position.to_json(),
            "is_first": self.is_first,
            "is_complete": self.is_complete,
            "cut": self.cut and self.cut.to_json(),
            "last_offsets": dict(self.last_offsets or {}),
        }

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Snapshot:
        """Read what :meth:`to_json` wrote."""
        cut = document["cut"]
        return cls(
            Position.from_json(document["position"]),
            document["is_first"],
            document["is_complete"],
            Position.from_json(cut) if cut else None,
            document["last_offsets"],
        )
