"""Lives of a topic: offsets start again at 0 when a topic is deleted and recreated, or when Kafka moves to a new cluster.

An offset compares only with offsets of the same life of the same partition: the same *lane*. As a number, a lane is the partition plus
:data:`LANES` for each earlier life. State that is kept by partition is kept by lane, so that lives never mix. A life begins where the
archive proves it: an offset repeats with another record. Equal records are a redelivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_cdc.model.plain_json import JsonArray

LANES = 65_536
"""Factor between lives, above any topic's number of partitions."""


def lane_of(partition: int, life: int) -> int:
    """Return the lane of a partition's life; life 0 is the first one found in the archive."""
    return partition + life * LANES


def partition_of_lane(lane: int) -> int:
    """Return a lane's Kafka partition."""
    return lane % LANES


def life_of_lane(lane: int) -> int:
    """Return a lane's life; negative for a life that was found later and is older than the first found."""
    return lane // LANES


def is_of_life(lane: str, life: int) -> bool:
    """Return whether a lane, by its name in reports, belongs to a given life."""
    return lane.lstrip("-").isdigit() and life_of_lane(int(lane)) == life


def is_earlier(lane: str, other: str) -> bool:
    """Return whether a lane is an earlier life of another lane's partition, both by their names in reports."""
    names = (lane, other)
    if not all(name.lstrip("-").isdigit() for name in names):
        return False
    return partition_of_lane(int(lane)) == partition_of_lane(int(other)) and int(lane) < int(other)


def lane_text(lane: int) -> str:
    """Return the lane's name for messages."""
    life = life_of_lane(lane)
    return f"partition {partition_of_lane(lane)}" + (f" (life {life + 1} of the topic)" if life else "")


@dataclass(frozen=True, order=True)
class LifeSpan(JsonArray):
    """Lines of one file and partition that belong to another life than the first: from a line up to the next span of the partition."""

    partition: int
    first_line: int
    """From 1."""
    life: int
    first: int
    """Lowest offset of these lines."""
    last: int
    """Highest."""


Lives = Mapping[str, tuple[LifeSpan, ...]]
"""Spans by file path. Files that lie wholly in the first life are left out."""


def needs_lines(lives: Lives) -> bool:
    """Return whether lines must be numbered to know their lives: some file holds two lives of a partition."""
    return any(len({span.partition for span in spans}) < len(spans) for spans in lives.values())


@dataclass(frozen=True, order=True)
class Stretch:
    """Lines of one file and partition that may belong to one life: their offsets rise in file order, or no offset has two records."""

    file: str
    partition: int
    first_line: int
    first: int
    """Lowest offset."""
    last: int
    """Highest offset."""
    since_ms: int | None = None
    """When the connector processed the first of them (``ts_ms`` of the envelope, milliseconds since 1970); None where no record carries
    it."""
    through_ms: int | None = None
    """As above, for the last."""

    @property
    def name(self) -> tuple[str, int, int]:
        """Identity of the stretch: file, partition, first line."""
        return self.file, self.partition, self.first_line


@dataclass(frozen=True)
class Meeting:
    """Two stretches with common offsets."""

    left: tuple[str, int, int]
    right: tuple[str, int, int]
    same: int
    """Offsets at which both hold the same record."""
    other: int
    """Offsets at which they hold different records."""


@dataclass(frozen=True)
class Assigned:
    """The life of each stretch."""

    lives: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    unproven: tuple[tuple[Stretch, Stretch], ...] = ()
    """Pairs of an earlier stretch of the newest life and one that holds other records, where nothing shows which came first."""


def assign_lives(
    stretches: Sequence[Stretch],
    meetings: Iterable[Meeting],
    known: Mapping[tuple[str, int, int], int],
    ends: Mapping[int, Mapping[int, int]],
    *,
    unproven_life: Callable[[int], int] | None = None,
) -> Assigned:
    """Return the life of each stretch.

    A stretch that only repeats records belongs to the life that it repeats. A stretch with another record at an offset belongs to another
    life: to the newest one if nothing there contradicts it, else to a new one. The order of lines in one file shows which of two lives came
    first; between files, the connector's own times show it where those of the lives do not overlap.

    :param stretches: in the archive's order; those in ``known`` are not assigned again.
    :param known: lives of stretches of earlier microbatches.
    :param ends: by partition and life: its last offset so far.
    :param unproven_life: the flow's decision for a stretch of unproven order: from the newest life to the stretch's life; None: such
        stretches are reported in :attr:`Assigned.unproven`. Later stretches are compared with it, so that several new lives stay distinct.
    """
    by_name = {stretch.name: stretch for stretch in stretches}
    beside: dict[tuple[str, int, int], list[tuple[tuple[str, int, int], Meeting]]] = {}
    for meeting in meetings:
        beside.setdefault(meeting.left, []).append((meeting.right, meeting))
        beside.setdefault(meeting.right, []).append((meeting.left, meeting))
    lives = dict(known)
    reached = {partition: dict(each) for partition, each in ends.items()}
    unproven: list[tuple[Stretch, Stretch]] = []
    for stretch in stretches:
        if stretch.name in lives:
            continue
        here = reached.setdefault(stretch.partition, {})
        current = max(here, default=0)
        met = [(lives[name], by_name[name], meeting) for name, meeting in beside.get(stretch.name, ()) if name in lives]
        refuted = {life for life, _, meeting in met if meeting.other}
        repeats = {life for life, _, meeting in met if meeting.same} - refuted
        if repeats:
            life = max(repeats)
        elif (following := following_life(here, stretch.first)) is not None and following not in refuted:
            life = following
        elif current not in refuted:
            life = current
        else:
            others = [other for life, other, meeting in met if life == current and meeting.other]
            oldest = min(refuted)
            if all(_came_before(other, stretch) for other in others):
                life = current + 1
            elif all(_came_before(stretch, other) for life, other, _ in met if life == oldest):
                life = oldest - 1
            elif unproven_life:
                life = unproven_life(current)
            else:
                unproven.append((others[0], stretch))
                continue
        lives[stretch.name] = life
        here[life] = max(stretch.last, here.get(life, stretch.last))
    return Assigned({name: life for name, life in lives.items() if name not in known}, tuple(unproven))


def following_life(ends: Mapping[int, int], first: int) -> int | None:
    """Return the newest life that an offset continues without a gap; None where there is none.

    :param ends: last offset by life.
    """
    return max((life for life, last in ends.items() if last == first - 1), default=None)


def _came_before(earlier: Stretch, later: Stretch) -> bool:
    if earlier.file == later.file:
        return earlier.first_line < later.first_line
    if earlier.through_ms is None or later.since_ms is None:
        return False
    return earlier.through_ms < later.since_ms
