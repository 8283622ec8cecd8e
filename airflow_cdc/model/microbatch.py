"""Microbatch: the files that one run of a flow owns, and the pure rule that picks the next one."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive import ArchivedFile
from airflow_cdc.model.completeness import FileOffsets, file_offsets
from airflow_cdc.model.survey import Survey, TopicShape, shapes_from_json, shapes_to_json


@dataclass(frozen=True, order=True)
class PlanPosition:
    """How far into an archive's surveys a flow's microbatches reach."""

    survey: int = 0
    """Number of the last survey that is planned, wholly or in part."""
    files: int = 0
    """How many of that survey's files for this flow are planned."""


@dataclass(frozen=True, order=True)
class HeldFile:
    """A file that a flow's microbatches have passed over: it waits for offsets that are missing before it."""

    survey: int
    path: str


@dataclass(frozen=True)
class Microbatch:
    """An intent: written down before anything else is, so that a crash anywhere can be taken up again."""

    flow: str
    number: int
    archive: str
    """URI of the archive's root."""
    files: tuple[ArchivedFile, ...]
    planned_through: PlanPosition
    """Where the next microbatch starts."""
    shapes: tuple[TopicShape, ...]
    """What the survey found in these files for this flow's topic."""
    offsets: tuple[FileOffsets, ...] = ()
    """Which Kafka offsets the files account for."""
    held: tuple[HeldFile, ...] = ()
    """Files before ``planned_through`` that no microbatch owns yet."""

    @property
    def size(self) -> int:
        """Bytes as they lie in the archive."""
        return sum(file.size for file in self.files)

    @property
    def text_size(self) -> int:
        """Bytes of the lines, estimated."""
        return sum(file.text_size for file in self.files)

    def to_json(self) -> dict[str, Any]:
        """Return the intent as plain JSON values."""
        return {
            "flow": self.flow,
            "number": self.number,
            "archive": self.archive,
            "files": [file.to_json() for file in self.files],
            "planned_through": [self.planned_through.survey, self.planned_through.files],
            "offsets": [item.to_json() for item in self.offsets],
            "held": [[item.survey, item.path] for item in self.held],
            **shapes_to_json(self.shapes),
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> Microbatch:
        """Read what :meth:`to_json` wrote."""
        return cls(
            document["flow"],
            document["number"],
            document["archive"],
            tuple(ArchivedFile.from_json(item) for item in document["files"]),
            PlanPosition(*document["planned_through"]),
            shapes_from_json(document),
            tuple(FileOffsets.from_json(item) for item in document.get("offsets", ())),
            tuple(HeldFile(*item) for item in document.get("held", ())),
        )


def pending_in(survey: Survey, flow: str, planned: PlanPosition, held: Iterable[HeldFile] = ()) -> tuple[ArchivedFile, ...]:
    """Return the files of a survey that no microbatch of a flow owns: those after ``planned``, and those that were held."""
    return tuple(file for _, file in _pending(survey, flow, planned, frozenset(held)))


def _pending(survey: Survey, flow: str, planned: PlanPosition, held: frozenset[HeldFile]) -> list[tuple[int, ArchivedFile]]:
    """Return the pending files of a survey, each with its place among all of the flow's."""
    files = survey.files_of(flow)
    start = _start(survey, planned) if survey.number >= planned.survey else len(files)
    return [(place, file) for place, file in enumerate(files) if place >= start or HeldFile(survey.number, file.path) in held]


def _start(survey: Survey, planned: PlanPosition) -> int:
    return planned.files if survey.number == planned.survey else 0


def next_microbatch(
    *,
    flow: str,
    number: int,
    archive: str,
    surveys: Iterable[Survey],
    planned: PlanPosition,
    max_bytes: int,
    held: Iterable[HeldFile] = (),
    waiting: Collection[str] = (),
) -> Microbatch | None:
    """Pick the next files of a flow: those held and those after ``planned``, in the surveys' order.

    They make up to ``max_bytes`` but are at least one.

    :param surveys: the archive's surveys that have held files, and all from ``planned.survey`` on, ascending.
    :param held: what earlier microbatches passed over.
    :param waiting: paths of files to pass over now.
    :return: None when nothing is pending but what waits.
    """
    still_held, taken = set(held), list[tuple[Survey, ArchivedFile]]()
    before, size, full = frozenset(still_held), 0, False
    for survey in surveys:
        reached, new = _start(survey, planned), survey.number >= planned.survey
        for place, file in _pending(survey, flow, planned, before):
            here = HeldFile(survey.number, file.path)
            waits = file.path in waiting
            full = full or (not waits and bool(taken) and size + file.size > max_bytes)
            if full and here not in before:
                break
            if waits or full:
                still_held.add(here)
            else:
                still_held.discard(here)
                taken.append((survey, file))
                size += file.size
            reached = max(reached, place + 1)
        planned = PlanPosition(survey.number, reached) if new else planned
        if full and new:
            break
    if not taken:
        return None
    files = tuple(file for _, file in taken)
    return Microbatch(flow, number, archive, files, planned, *_surveyed(flow, taken), tuple(sorted(still_held)))


def _surveyed(flow: str, taken: Iterable[tuple[Survey, ArchivedFile]]) -> tuple[tuple[TopicShape, ...], tuple[FileOffsets, ...]]:
    """Return what the surveys found in the files that were taken of them."""
    owned: dict[int, set[str]] = {}
    surveys: dict[int, Survey] = {}
    for survey, file in taken:
        surveys[survey.number] = survey
        owned.setdefault(survey.number, set()).add(file.path)
    shapes: list[TopicShape] = []
    offsets: list[FileOffsets] = []
    for number, paths in owned.items():
        shapes += [shape for shape in surveys[number].shapes if shape.topic == flow and shape.file in paths]
        offsets += [item for item in file_offsets(surveys[number], flow) if item.file in paths]
    return tuple(shapes), tuple(offsets)
