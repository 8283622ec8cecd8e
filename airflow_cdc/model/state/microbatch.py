"""Microbatch: the files that one run of a flow owns, and the pure rule that picks the next one."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.completeness import FileOffsets, file_offsets, in_lanes
from airflow_cdc.model.archive.survey import Survey, TopicShape, shapes_from_json, shapes_to_json
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.files import short_hash
from airflow_cdc.model.operation import Operation
from airflow_cdc.model.plain_json import BigInt, JsonArray, JsonObject
from airflow_cdc.model.position.epochs import FileEpochs
from airflow_cdc.model.position.lives import LifeSpan
from airflow_cdc.model.position.snapshot import SnapshotDecision

_EVENT_KINDS = {operation.value for operation in Operation}


@dataclass(frozen=True, order=True)
class PlanPosition(JsonArray):
    """Position in an archive's surveys that a flow's microbatches have reached."""

    survey: int = 0
    """Number of the first survey that is not wholly planned; earlier surveys are not read again, however many files they have."""
    files: int = 0
    """Number of that survey's files that are planned for this flow."""


@dataclass(frozen=True, order=True)
class HeldFile(JsonArray):
    """A file that a flow's microbatches have passed over, wholly or in part: it waits for missing offsets or for a transaction."""

    survey: int
    path: str
    since: BigInt | None = None
    """Records below this commit position, in its epoch of the log, were applied; None where no record of the file was."""
    left: int = 0
    """Number of the flow's records that were not applied, where some were."""
    reads_since: BigInt | None = None
    """Reads of full snapshots from this position on were not applied either; None where all were."""
    epochs: FileEpochs = field(default_factory=FileEpochs)
    """Epochs of the file's records, as known to the microbatch that divided it."""

    def to_json(self) -> list[Any]:
        """Return the file as plain JSON values, short for the usual case: whole, and of the first epoch."""
        if self.since is None:
            return [self.survey, self.path]
        return super().to_json() if self.epochs.begins else super().to_json()[:-1]


@dataclass(frozen=True)
class FilePart(JsonArray):
    """The records of a file that one microbatch owns: those at or after ``since`` and below ``before``.

    Records without a position belong to the part without ``since``. So do the reads of a full snapshot, unless the part names positions for
    them.
    """

    connector: str
    """``source.connector``, which determines how positions are read."""
    since: BigInt | None = None
    """Commit position, in its epoch of the log; None: from the beginning."""
    before: BigInt | None = None
    """Commit position; None: to the end."""
    reads_since: BigInt | None = None
    """As above, for the reads of full snapshots; None: all of them where there is no ``since``, and none where there is."""
    reads_before: BigInt | None = None
    """As above; None: at any position."""
    epochs: FileEpochs = field(default_factory=FileEpochs)
    """Epochs of the file's records."""

    def to_json(self) -> list[Any]:
        """Return the part as plain JSON values."""
        return super().to_json() if self.epochs.begins else super().to_json()[:-1]


@dataclass(frozen=True)
class SurveyedPart:
    """A part of a file, with what it and the rest of the file hold for one flow."""

    part: FilePart
    shapes: tuple[TopicShape, ...]
    """Shapes of the part; none where everything left of the file waits."""
    left: int
    """Number of records behind the part."""


@dataclass(frozen=True)
class Microbatch(JsonObject, own=("shapes",)):
    """An intent: recorded before anything else is done, so that a crash anywhere can be recovered."""

    flow: str
    number: int
    archive: str
    """URI of the archive's root."""
    files: tuple[ArchivedFile, ...]
    planned_through: PlanPosition
    """Where the next microbatch starts."""
    shapes: tuple[TopicShape, ...]
    """The survey's shapes of these files for this flow's topic."""
    offsets: tuple[FileOffsets, ...] = ()
    """Kafka offsets that the files account for."""
    held: tuple[HeldFile, ...] = ()
    """Files before ``planned_through`` that no microbatch owns yet, or only in part."""
    parts: Mapping[str, FilePart] = field(default_factory=dict)
    """By path: the owned part of a file that is not owned as a whole."""
    is_again: bool = False
    """Whether it owns nothing new, and only reads files of earlier microbatches again."""
    surveyed: str | None = None
    """Digest of the last survey that ``planned_through`` reaches into; None where it reaches into none."""
    lives: Mapping[str, tuple[LifeSpan, ...]] = field(default_factory=dict)
    """By path: lives of the topic in a file (:mod:`airflow_cdc.model.position.lives`), where it holds another than the first."""
    decides: SnapshotDecision | None = None
    """A person's decision about a snapshot; such a microbatch owns no file."""

    @property
    def does_nothing(self) -> bool:
        """Whether it was withdrawn."""
        return not self.files and self.decides is None

    @property
    def size(self) -> int:
        """Bytes in the archive, compressed or not."""
        return sum(file.size for file in self.files)

    @property
    def text_size(self) -> int:
        """Estimated bytes of the uncompressed lines."""
        return sum(file.text_size for file in self.files)

    @property
    def rests(self) -> frozenset[str]:
        """Paths of the files whose offsets another microbatch accounted for: the one that owned their first part."""
        if self.is_again:
            return frozenset(file.path for file in self.files)
        return frozenset(path for path, part in self.parts.items() if part.since is not None)

    @property
    def has_unnumbered(self) -> bool:
        """Whether some files account for no offsets: their records may have none."""
        numbered = {item.file for item in self.offsets}
        return any(file.path not in numbered for file in self.files)

    @property
    def logs(self) -> frozenset[str]:
        """The source's logs that its row events name."""
        events = (shape for shape in self.shapes if shape.kind in _EVENT_KINDS and shape.connector in CONNECTORS)
        return frozenset(shape.log for shape in events if shape.log)

    @property
    def digest(self) -> str:
        """Hash of what it owns: a number may be planned twice where state is lost."""
        owned = [
            self.archive,
            self.is_again,
            [file.path for file in self.files],
            [[path, self.parts[path].to_json()] for path in sorted(self.parts)],
            *([self.decides.to_json()] if self.decides else ()),
        ]
        return short_hash(json.dumps(owned))

    def to_json(self) -> dict[str, Any]:
        """Return the intent as plain JSON values."""
        return {**super().to_json(), **shapes_to_json(self.shapes)}

    @classmethod
    def from_json(cls, document: Mapping[str, Any]) -> Microbatch:
        """Read what :meth:`to_json` wrote."""
        return super().from_json({**document, "shapes": shapes_from_json(document)})


def pending_in(survey: Survey, flow: str, planned: PlanPosition, held: Iterable[HeldFile] = ()) -> tuple[ArchivedFile, ...]:
    """Return the files of a survey that no microbatch of a flow owns wholly: those after ``planned``, and held ones."""
    return tuple(file for _, file in _pending(survey, flow, planned, {_name(item) for item in held}))


def _name(held: HeldFile) -> tuple[int, str]:
    return held.survey, held.path


def _pending(survey: Survey, flow: str, planned: PlanPosition, held: Collection[tuple[int, str]]) -> list[tuple[int, ArchivedFile]]:
    """Return the pending files of a survey, each with its index among the flow's files."""
    files = survey.files_of(flow)
    start = _start(survey, planned) if survey.number >= planned.survey else len(files)
    mine = ((place, file) for place, file in enumerate(files) if file.path not in survey.void)
    return [(place, file) for place, file in mine if place >= start or (survey.number, file.path) in held]


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
    parts: Mapping[str, SurveyedPart] | None = None,
    lives: Mapping[str, tuple[LifeSpan, ...]] | None = None,
) -> Microbatch | None:
    """Pick the next files of a flow: held ones and those after ``planned``, in the surveys' order.

    They have up to ``max_bytes`` together, but at least one file is picked.

    :param surveys: the archive's surveys that have held files, and all from ``planned.survey`` on, ascending.
    :param held: files that earlier microbatches passed over.
    :param waiting: paths of files to pass over now.
    :param parts: by path: the part to own of a file, where it is not the whole file; the rest is held.
    :param lives: by path: lives of the topic in a pending file.
    :return: None when nothing is pending except what waits.
    """
    still_held, taken = {_name(item): item for item in held}, list[tuple[Survey, ArchivedFile]]()
    before, size, full = frozenset(still_held), 0, False
    for survey in surveys:
        reached, new = _start(survey, planned), survey.number >= planned.survey
        for path in survey.void:
            still_held.pop((survey.number, path), None)
        for place, file in _pending(survey, flow, planned, before):
            here = (survey.number, file.path)
            waits = file.path in waiting
            full = full or (not waits and bool(taken) and size + file.size > max_bytes)
            if full and here not in before:
                break
            if waits or full:
                still_held.setdefault(here, HeldFile(*here))
            else:
                still_held.pop(here, None)
                taken.append((survey, file))
                size += file.size
            reached = max(reached, place + 1)
        if new:
            planned = PlanPosition(survey.number, reached) if full else PlanPosition(survey.number + 1)
        if full and new:
            break
    if not taken:
        return None
    owned = {file.path: part for _, file in taken if (part := (parts or {}).get(file.path))}
    rests = [
        HeldFile(survey.number, file.path, item.part.before, item.left, item.part.reads_before, item.part.epochs)
        for survey, file in taken
        if (item := owned.get(file.path)) and item.left > 0
    ]
    files, left = tuple(file for _, file in taken), tuple(sorted([*still_held.values(), *rests]))
    divided = {path: item.part for path, item in owned.items() if item.left or item.part.since is not None}
    shapes, offsets = _surveyed(flow, taken, owned)
    theirs = {file.path: spans for file in files if (spans := (lives or {}).get(file.path))}
    return Microbatch(flow, number, archive, files, planned, shapes, in_lanes(offsets, theirs), left, divided, lives=theirs)


def _surveyed(
    flow: str, taken: Iterable[tuple[Survey, ArchivedFile]], owned: Mapping[str, SurveyedPart]
) -> tuple[tuple[TopicShape, ...], tuple[FileOffsets, ...]]:
    """Return the surveys' shapes and offsets of the picked files; a file's offsets go to its first part."""
    paths_of: dict[int, set[str]] = {}
    surveys: dict[int, Survey] = {}
    for survey, file in taken:
        surveys[survey.number] = survey
        paths_of.setdefault(survey.number, set()).add(file.path)
    shapes: list[TopicShape] = []
    offsets: list[FileOffsets] = []
    for number, paths in paths_of.items():
        # Named once: an archive may have a hundred thousand files, and as many shapes.
        whole, divided = paths - owned.keys(), sorted(paths & owned.keys())
        again = {path for path in divided if owned[path].part.since is not None}
        here = paths - again
        shapes += [shape for shape in surveys[number].shapes if shape.topic == flow and shape.file in whole]
        shapes += [shape for path in divided for shape in owned[path].shapes]
        offsets += [item for item in file_offsets(surveys[number], flow) if item.file in here]
    return tuple(shapes), tuple(offsets)


def read_together(microbatches: Iterable[Microbatch]) -> list[Microbatch]:
    """Return fewer microbatches that read the same lines: one per archive, and each one that only reads again.

    :param microbatches: of one flow, in the order of their numbers, without a gap.
    """
    groups: dict[tuple[str, int], list[Microbatch]] = {}
    # A withdrawn one owns nothing.
    for microbatch in (each for each in microbatches if each.files):
        groups.setdefault((microbatch.archive, microbatch.number if microbatch.is_again else 0), []).append(microbatch)
    return [_joined(members) for members in groups.values()]


def _joined(members: Sequence[Microbatch]) -> Microbatch:
    files = {file.path: file for member in members for file in member.files}
    # Parts of a file are consecutive.
    first: dict[str, FilePart | None] = {}
    last: dict[str, FilePart | None] = {}
    for member in members:
        for file in member.files:
            last[file.path] = member.parts.get(file.path)
            first.setdefault(file.path, last[file.path])
    parts = {path: part for path in files if (part := _span(first[path], last[path]))}
    shapes = tuple(shape for member in members for shape in member.shapes)
    lives = {path: spans for member in members for path, spans in member.lives.items()}
    return replace(members[-1], files=tuple(files.values()), shapes=shapes, parts=parts, lives=lives)


def _span(first: FilePart | None, last: FilePart | None) -> FilePart | None:
    """Return the part from the start of one to the end of another; None where that is the whole file."""
    since = first if first and first.since is not None else None
    before = last if last and last.before is not None else None
    if since and before:
        return replace(before, since=since.since, reads_since=since.reads_since)
    if since:
        return replace(since, before=None, reads_before=None)
    return replace(before, since=None, reads_since=None) if before else None
