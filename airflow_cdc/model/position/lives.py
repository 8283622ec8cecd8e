"""Lives of a topic: offsets begin at 0 again when a topic is deleted and made anew, or when Kafka moves to a new cluster.

An offset compares only with offsets of the same life of the same partition: of the same *lane*. As a number a lane is the partition, and
:data:`LANES` more for each life before it; whatever is kept by partition is kept by lane, so that lives never meet. A life begins where the
archive proves it: an offset comes again with another record. Equal records are a redelivery.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from airflow_cdc.model.plain_json import JsonArray

LANES = 65_536
"""More partitions than a topic has."""


def lane_of(partition: int, life: int) -> int:
    """Return the lane of a partition's life; life 0 is the first that the archive held."""
    return partition + life * LANES


def partition_of_lane(lane: int) -> int:
    """Return the Kafka partition."""
    return lane % LANES


def life_of_lane(lane: int) -> int:
    """Return which life of the partition it is; negative for one that was found later and is older than the first found."""
    return lane // LANES


def is_of_life(lane: str, life: int) -> bool:
    """Return whether a lane, by its name in reports, is of a life of its partition."""
    return lane.lstrip("-").isdigit() and life_of_lane(int(lane)) == life


def is_earlier(lane: str, other: str) -> bool:
    """Return whether a lane, by its name in reports, is an earlier life of another one's partition."""
    names = (lane, other)
    if not all(name.lstrip("-").isdigit() for name in names):
        return False
    return partition_of_lane(int(lane)) == partition_of_lane(int(other)) and int(lane) < int(other)


def lane_text(lane: int) -> str:
    """Return the lane as messages name it."""
    life = life_of_lane(lane)
    return f"partition {partition_of_lane(lane)}" + (f" (life {life + 1} of the topic)" if life else "")


@dataclass(frozen=True, order=True)
class LifeSpan(JsonArray):
    """Lines of one file and partition that are of another life than the first: from a line on, up to the next span of the partition."""

    partition: int
    first_line: int
    """From 1."""
    life: int
    first: int
    """Lowest offset of these lines."""
    last: int
    """Highest."""


Lives = Mapping[str, tuple[LifeSpan, ...]]
"""By path of a file: its spans. Files that are wholly of the first life are left out."""


def needs_lines(lives: Lives) -> bool:
    """Return whether only the number of a line says which life it is of: some file holds two lives of a partition."""
    return any(len({span.partition for span in spans}) < len(spans) for spans in lives.values())


@dataclass(frozen=True, order=True)
class Stretch:
    """Lines of one file and partition that may be of one life: in file order their offsets rise, or no offset has two records."""

    file: str
    partition: int
    first_line: int
    first: int
    """Lowest offset."""
    last: int
    """Highest offset."""
    since_ms: int | None = None
    """When the connector processed the first of them (``ts_ms`` of the envelope, milliseconds since 1970); None where no record says."""
    through_ms: int | None = None
    """The same of the last."""

    @property
    def name(self) -> tuple[str, int, int]:
        """What identifies the stretch."""
        return self.file, self.partition, self.first_line


@dataclass(frozen=True)
class Meeting:
    """Two stretches that hold the same offsets."""

    left: tuple[str, int, int]
    right: tuple[str, int, int]
    same: int
    """Offsets at which both hold the same record."""
    other: int
    """Offsets at which they hold different records."""


@dataclass(frozen=True)
class Assigned:
    """Which life each stretch is of."""

    lives: Mapping[tuple[str, int, int], int] = field(default_factory=dict)
    unproven: tuple[tuple[Stretch, Stretch], ...] = ()
    """Stretches that hold other records than an earlier one of the newest life, and of which nothing says which came first."""


def assign_lives(
    stretches: Sequence[Stretch],
    meetings: Iterable[Meeting],
    known: Mapping[tuple[str, int, int], int],
    ends: Mapping[int, Mapping[int, int]],
    *,
    unproven_life: Callable[[int], int] | None = None,
) -> Assigned:
    """Return the life of each stretch.

    A stretch that only repeats records is of the life that it repeats. One that holds another record at an offset is of another life:
    of the newest one if that does not disprove it, else of a new one. Which of two lives came first the order of lines in one file
    says, or the connector's own times where those of the lives do not overlap.

    :param stretches: in the archive's order; those in ``known`` are not assigned again.
    :param known: lives of stretches of earlier microbatches.
    :param ends: by partition and life: its last offset so far.
    :param unproven_life: from the newest life to that of a stretch of which nothing says which came first, as the flow decides; None: such
        stretches are told of. What follows is compared with it, so that several new lives are told apart.
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
    """Return the newest life that an offset follows without a gap, None where it follows none.

    :param ends: last offset by life.
    """
    return max((life for life, last in ends.items() if last == first - 1), default=None)


def _came_before(earlier: Stretch, later: Stretch) -> bool:
    if earlier.file == later.file:
        return earlier.first_line < later.first_line
    if earlier.through_ms is None or later.since_ms is None:
        return False
    return earlier.through_ms < later.since_ms
