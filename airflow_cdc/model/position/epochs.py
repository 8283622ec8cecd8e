"""Epochs of a source's log: positions restart lower after a restore, RESET MASTER, RESETLOGS, or a failover without GTID.

A position compares only with positions of the same epoch. An event of a later epoch follows everything of earlier ones. So its commit is
recorded with :data:`~airflow_cdc.model.position.position.EPOCH` added for each earlier epoch, and every comparison of positions is right as
it stands. An epoch begins at an offset of a lane (:mod:`airflow_cdc.model.position.lives`), where the archive proves that the log went
back.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_cdc.model.plain_json import JsonObject
from airflow_cdc.model.position.lives import LifeSpan, Lives


@dataclass(frozen=True)
class Epochs(JsonObject):
    """Where the epochs of a flow's source begin; empty while its log has never gone back."""

    begins: Mapping[str, tuple[tuple[int, int], ...]] = field(default_factory=dict)
    """By lane: (first offset, number of the epoch from there on), ascending. Before its first entry a lane is in epoch 0."""

    since_ms: Mapping[int, int] = field(default_factory=dict)
    """By epoch: when the connector processed its first event, in milliseconds since 1970 by the connector's clock. Epochs without known
    times are left out."""

    @property
    def newest(self) -> int:
        """Number of the newest epoch; 0 is the first."""
        return max((epoch for places in self.begins.values() for _, epoch in places), default=0)

    def of(self, lane: str) -> int:
        """Return the newest epoch of a lane."""
        return max((epoch for _, epoch in self.begins.get(lane, ())), default=0)

    def at(self, sent_ms: int | None) -> int:
        """Return the epoch in which the connector processed an event; the newest where the time is not known."""
        if sent_ms is None:
            return self.newest
        return max((epoch for epoch in range(1, self.newest + 1) if self.since_ms.get(epoch, sent_ms) <= sent_ms), default=0)

    def beginning(self, lanes: Mapping[str, int], sent_ms: Mapping[str, int | None] | None = None) -> Epochs:
        """Return the epochs after the log went back in some lanes, at an offset of each.

        A lane that lags behind the newest epoch joins the latest one that had begun by then: its log went back together with the others'.
        Lanes in the newest epoch enter a new one together.

        :param sent_ms: when the connector processed the event at that offset, where known.
        """
        sent = {lane: (sent_ms or {}).get(lane) for lane in lanes}
        since, last = dict(self.since_ms), self.newest
        ahead = [lane for lane in lanes if self.of(lane) == last]
        if ahead:
            last += 1
            since.update({last: min(times)} if (times := [time for lane in ahead if (time := sent[lane]) is not None]) else {})
        places = {}
        for lane, offset in lanes.items():
            time, next_one = sent[lane], self.of(lane) + 1
            begun = [epoch for epoch in range(next_one, last + 1) if time is None or since.get(epoch, time) <= time]
            epoch = max(begun, default=next_one)
            places[lane] = (offset, epoch)
            if time is not None:
                since[epoch] = min(time, since.get(epoch, time))
        return replace(self.joined(places), since_ms=since)

    def joined(self, places: Mapping[str, tuple[int, int]]) -> Epochs:
        """Return the epochs with lanes added: (first offset, number) by lane."""
        begins = dict(self.begins)
        for lane, place in places.items():
            begins[lane] = tuple(sorted({*begins.get(lane, ()), place}))
        return replace(self, begins=begins)

    def with_new_lanes(self, lanes: Iterable[str]) -> Epochs:
        """Return the epochs with lanes that were never seen before; they begin in the newest epoch."""
        return self.joined({lane: (0, self.newest) for lane in lanes if lane not in self.begins}) if self.newest else self

    def to_json(self) -> dict[str, Any]:
        """Return the epochs as plain JSON values; nothing while the log has never gone back."""
        return super().to_json() if self.begins else {}


FIRST_EPOCH = Epochs()
"""Epochs of a log that never went back."""


@dataclass(frozen=True, order=True)
class FileEpochs(JsonObject, required=("begins", "lives")):
    """The data from which the epoch of each record of one file follows; empty where the log has never gone back."""

    begins: tuple[tuple[str, int, int], ...] = ()
    """Lane, first offset, number of the epoch from there on."""
    lives: tuple[LifeSpan, ...] = ()
    """Lives of the topic in the file: an epoch begins at an offset of a lane."""

    @property
    def epochs(self) -> Epochs:
        """As :class:`Epochs`."""
        lanes = sorted({lane for lane, _, _ in self.begins})
        return Epochs({name: tuple((offset, epoch) for lane, offset, epoch in self.begins if lane == name) for name in lanes})


@dataclass(frozen=True)
class ArchivedEpochs:
    """The epochs of the records of a flow's archived files."""

    epochs: Epochs = FIRST_EPOCH
    lives: Lives = field(default_factory=dict)
    """Lives of the topic in the files."""
    files: frozenset[str] | None = None
    """Paths of the files with known epochs; None: all."""

    def of_file(self, path: str) -> FileEpochs:
        """Return the epochs of one file."""
        places = sorted((lane, *place) for lane, begins in self.epochs.begins.items() for place in begins)
        return FileEpochs(tuple(places), self.lives.get(path, ())) if places else FileEpochs()


NO_EPOCHS = ArchivedEpochs()
"""For files whose records are all of the first epoch."""
