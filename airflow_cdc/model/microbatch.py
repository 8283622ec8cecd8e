"""Microbatch: the files that one run of a flow owns, and the pure rule that picks the next one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive import ArchivedFile
from airflow_cdc.model.survey import Survey, TopicShape, shapes_from_json, shapes_to_json


@dataclass(frozen=True, order=True)
class PlanPosition:
    """How far into an archive's surveys a flow's microbatches reach."""

    survey: int = 0
    """Number of the last survey that is planned, wholly or in part."""
    files: int = 0
    """How many of that survey's files for this flow are planned."""


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
        )


def next_microbatch(
    *, flow: str, number: int, archive: str, surveys: Iterable[Survey], planned: PlanPosition, max_bytes: int
) -> Microbatch | None:
    """Pick the next files of a flow: those after ``planned``, in the surveys' order, up to ``max_bytes`` but at least one.

    :param surveys: the archive's surveys from ``planned.survey`` on, ascending.
    :return: None when nothing is pending.
    """
    taken: list[ArchivedFile] = []
    shapes: list[TopicShape] = []
    size = 0
    for survey in surveys:
        candidates = survey.files_of(flow)
        start = planned.files if survey.number == planned.survey else 0
        chosen = 0
        for file in candidates[start:]:
            if taken and size + file.size > max_bytes:
                break
            taken.append(file)
            size += file.size
            chosen += 1
        owned = {file.path for file in candidates[start : start + chosen]}
        shapes += [shape for shape in survey.shapes if shape.topic == flow and shape.file in owned]
        planned = PlanPosition(survey.number, start + chosen)
        if start + chosen < len(candidates):
            break
    return Microbatch(flow, number, archive, tuple(taken), planned, tuple(shapes)) if taken else None
