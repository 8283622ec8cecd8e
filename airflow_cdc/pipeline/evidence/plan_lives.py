"""Plan lives: find the lives of a flow's topic in the pending files, before a microbatch owns any of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.completeness import ArchivedOffsets, FileOffsets, PartitionOffsets, file_offsets, repeating_files
from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.errors import LifeUnknownError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnRepeatedOffsets
from airflow_cdc.model.look.moved_files import KnownLog, LogSpan
from airflow_cdc.model.position.lives import (
    Assigned,
    LifeSpan,
    Lives,
    Meeting,
    Stretch,
    assign_lives,
    following_life,
    lane_of,
    life_of_lane,
    partition_of_lane,
)
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import pending_in
from airflow_cdc.pipeline.evidence.find_lives import find_stretches
from airflow_cdc.pipeline.evidence.log_spans import find_log_spans
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.commit_positions import comparable_dialect

_DECISIONS: Mapping[OnRepeatedOffsets, Callable[[int], int]] = {
    OnRepeatedOffsets.NEW_LIFE: lambda newest: newest + 1,
    OnRepeatedOffsets.REDELIVERY: lambda newest: newest,
}
"""By the flow's policy: from the newest life to the life of repeated offsets; a policy without an entry stops."""


@dataclass(frozen=True)
class PlanLives:
    """Finds the lives in a flow's pending files."""

    spark: SparkSession
    archive: ArchiveState
    ledger: Ledger
    state: FlowState
    flow: CdcFlow

    def find(self, checkpoint: FlowCheckpoint) -> Lives:
        """Return by path the lives of the pending files that hold another life than the first.

        Costs no job unless offsets repeat.

        :raises LifeUnknownError: where nothing proves whether a file repeats an earlier one or begins another life.
        """
        # For a partly applied file, its microbatch recorded the lives.
        divided = {item.path for item in checkpoint.plan(self.archive.archive)[1] if item.since is not None}
        every = list(self._pending(checkpoint))
        pending = [item for item in every if item[1].path not in divided]
        rests = self._lives_of([file for _, file, _ in every if file.path in divided], checkpoint)
        return {**{path: spans for path, spans in rests.items() if spans}, **self._find(checkpoint, pending)}

    def _find(self, checkpoint: FlowCheckpoint, pending: Sequence[tuple[Survey, ArchivedFile, list[FileOffsets]]]) -> Lives:
        applied = checkpoint.offsets.get(self.archive.archive, ArchivedOffsets())
        repeating = {path for survey, _, _ in pending for path in repeating_files(survey, self.flow.topic)}
        # A rewritten file can no longer be compared with its earlier content.
        replaced = frozenset(item.path for survey, _, _ in pending for item in survey.replaces)
        suspects = _suspects([item for _, _, offsets in pending for item in offsets], applied) | (
            repeating & {file.path for _, file, _ in pending}
        )
        ends = _ends(applied)
        suspects -= replaced
        moved = self._moved(pending, applied, checkpoint, suspects)
        if not suspects:
            return _spans(pending, set(), (), {}, ends, moved=moved)
        known = self._overlapped(pending, suspects, checkpoint)
        there = [file for file in known if self._exists(file)]
        files = [*there, *(file for _, file, _ in pending if file.path in suspects)]
        session = session_for_batch(self.spark, batch_bytes=sum(file.text_size for file in files))
        stretches, meetings = find_stretches(session, self.archive.archive, self.flow.topic, files)
        lives_of = self._lives_of(known, checkpoint)
        theirs = {stretch.name: _life_at(lives_of.get(stretch.file, ()), stretch) for stretch in stretches if stretch.file in lives_of}
        assigned = self._proven(
            assign_lives(stretches, meetings, theirs, ends, unproven_life=_DECISIONS.get(self.flow.on_repeated_offsets))
        )
        self._refuse_unseen(stretches, meetings, applied, missing={file.path for file in known} - {file.path for file in there})
        return _spans(pending, suspects, stretches, assigned, ends, moved=moved)

    def _moved(
        self,
        pending: Sequence[tuple[Survey, ArchivedFile, list[FileOffsets]]],
        applied: ArchivedOffsets,
        checkpoint: FlowCheckpoint,
        suspects: Iterable[str],
    ) -> dict[str, int]:
        """Return by path how many lives later (1) or earlier (-1) than its partition's newest a file is, as its positions and times prove.

        Costs a small job where a file does not follow its lane (:mod:`airflow_cdc.model.look.moved_files`).

        :raises LifeUnknownError: where nothing proves it, and the flow's policy is to stop.
        """
        ends = _ends(applied)
        newest = {number: lane_of(number, max(lives)) for number, lives in ends.items()}
        odd = {
            file.path: (file, item, newest[item.partition])
            for _, file, offsets in pending
            for item in offsets
            if file.path not in suspects
            and item.partition in newest
            and (
                item.first <= applied.partitions[newest[item.partition]].runs[-1].certain
                or (len(ends[item.partition]) > 1 and following_life(ends[item.partition], item.first) is None)
            )
        }
        shapes = (shape for survey, _, _ in pending for shape in survey.shapes if shape.topic == self.flow.topic)
        dialect = comparable_dialect({shape.connector for shape in shapes if shape.connector})
        known = KnownLog.of(checkpoint)
        if not odd or dialect is None or not dialect.position.goes_back or known is None:
            return {}
        spans = self._spans_of([file for file, _, _ in odd.values()], dialect)
        shifts = {path: known.shift(spans[path], lane, item.first) for path, (_, item, lane) in odd.items() if path in spans}
        for path in sorted(path for path, shift in shifts.items() if shift == 1):
            _, item, lane = odd[path]
            told = self._shift_by_times(spans[path], item, applied.partitions[lane], dialect=dialect)
            # A file from before the log went back has higher positions too, and earlier times.
            shifts[path] = told if spans[path].has_reads_only or told == 0 else 1
        for path in sorted(path for path, shift in shifts.items() if shift is None):
            shifts[path] = self._decide(path, odd[path][1], known)
        return {path: shift for path, shift in shifts.items() if shift}

    def _shift_by_times(self, span: LogSpan, item: FileOffsets, applied: PartitionOffsets, *, dialect: Connector) -> int | None:
        """Return the shift of a file whose higher positions prove nothing: by its times and those of the next applied file."""
        name = next((run.first_file for run in applied.runs if run.first > item.last), None)
        topic, ledger = self.flow.topic, self.ledger
        surveys = self.archive.surveys(ledger.topics.get(topic, 1), ledger.latest.get(topic, 0))
        following = [file for survey in surveys for file in survey.files if file.path == name]
        if not following or not self._exists(following[-1]):
            return None
        beside = self._spans_of(following[-1:], dialect).get(following[-1].path)
        if beside is None or (span.through_ms == beside.since_ms and not span.has_reads_only):
            return None
        return span.shift_beside(beside)

    def _decide(self, path: str, offsets: FileOffsets, known: KnownLog) -> int:
        decision = _DECISIONS.get(self.flow.on_repeated_offsets)
        if decision:
            return decision(0)
        before = ", and the source's log went back before" if known.epochs.newest else ""
        raise LifeUnknownError(
            f"Flow {self.flow.name}: {path} holds offsets {offsets.first}–{offsets.last} of partition {offsets.partition} of topic"
            f" {self.flow.topic}, below what was applied{before}. The file is late, or the topic was made anew; its positions and its times"
            " (ts_ms) do not prove either. Nothing was merged.",
            next_step=_DECIDE,
            files=(path,),
        )

    def _spans_of(self, files: Sequence[ArchivedFile], dialect: Connector) -> dict[str, LogSpan]:
        return find_log_spans(self.spark, self.archive.archive, files, topic=self.flow.topic, dialect=dialect)

    def _pending(self, checkpoint: FlowCheckpoint) -> Iterator[tuple[Survey, ArchivedFile, list[FileOffsets]]]:
        plan = checkpoint.plan(self.archive.archive)
        for survey in self.archive.pending_surveys(checkpoint, self.ledger):
            offsets: dict[str, list[FileOffsets]] = {}
            for item in file_offsets(survey, self.flow.topic):
                offsets.setdefault(item.file, []).append(item)
            for file in pending_in(survey, self.flow.topic, *plan):
                yield survey, file, offsets.get(file.path, [])

    def _overlapped(
        self, pending: Sequence[tuple[Survey, ArchivedFile, list[FileOffsets]]], suspects: Iterable[str], checkpoint: FlowCheckpoint
    ) -> list[ArchivedFile]:
        """Return the applied files that share offsets with suspects."""
        asked = [item for _, file, offsets in pending if file.path in set(suspects) for item in offsets]
        waiting = {file.path for _, file, _ in pending}
        found = []
        first = self.ledger.topics.get(self.flow.topic, 1)
        for survey in self.archive.surveys(first, self.ledger.latest.get(self.flow.topic, 0)) if checkpoint.number else ():
            files = {file.path: file for file in survey.files}
            paths = {item.file for item in file_offsets(survey, self.flow.topic) if any(_overlap(item, other) for other in asked)}
            found += [files[path] for path in sorted(paths - waiting)]
        return found

    def _exists(self, file: ArchivedFile) -> bool:
        fs, root = file_system(self.archive.archive)
        return bool(fs.exists(f"{root.rstrip('/')}/{file.path}"))

    def _lives_of(self, files: Sequence[ArchivedFile], checkpoint: FlowCheckpoint) -> Lives:
        """Return the lives of applied files from their intents, for all of them, including those of the first life only."""
        found: dict[str, tuple[LifeSpan, ...]] = {file.path: () for file in files}
        for number in range(1, checkpoint.number + 1) if files else ():
            intent = self.state.intent(number)
            found |= {path: spans for path, spans in (intent.lives if intent else {}).items() if path in found}
        return found

    def _proven(self, assigned: Assigned) -> Mapping[tuple[str, int, int], int]:
        if assigned.unproven:
            earlier, later = assigned.unproven[0]
            raise LifeUnknownError(
                f"Flow {self.flow.name}: {later.file} holds other records than {earlier.file} at offsets {later.first}–{later.last}"
                f" of partition {later.partition} of topic {self.flow.topic}, so the topic was made anew between them; it is not"
                " known which of the two came first. Nothing was merged.",
                next_step=_DECIDE,
                files=(earlier.file, later.file),
            )
        return assigned.lives

    def _refuse_unseen(
        self, stretches: Sequence[Stretch], meetings: Iterable[Meeting], applied: ArchivedOffsets, *, missing: set[str]
    ) -> None:
        if not missing or self.flow.on_repeated_offsets is not OnRepeatedOffsets.STOP:
            return
        compared = {name for meeting in meetings for name in (meeting.left, meeting.right)}
        for stretch in stretches:
            if stretch.name not in compared and _is_archived(stretch, applied):
                raise LifeUnknownError(
                    f"Flow {self.flow.name}: offsets {stretch.first}–{stretch.last} of partition {stretch.partition} of topic"
                    f" {self.flow.topic} in {stretch.file} were applied before, from files that are no longer in the archive"
                    f" ({', '.join(sorted(missing)[:3])}): the file repeats them, or the topic was made anew. Nothing was merged.",
                    next_step=_DECIDE,
                    files=(stretch.file, *sorted(missing)),
                )


_DECIDE = (
    "Set the flow's on_repeated_offsets to redelivery (the same records again) or new_life (the topic was deleted and made anew, or Kafka"
    " moved), and run again; see docs/how-to/when-the-source-was-rebuilt.md."
)


def _suspects(pending: Sequence[FileOffsets], applied: ArchivedOffsets) -> set[str]:
    """Return the paths of the pending files that share offsets with applied files or with each other."""
    newest: dict[int, int] = {}
    for lane in applied.partitions:
        newest[partition_of_lane(lane)] = max(lane, newest.get(partition_of_lane(lane), lane))
    found = set()
    seen: dict[int, list[FileOffsets]] = {}
    for item in pending:
        lanes = [lane for lane in applied.partitions if partition_of_lane(lane) == item.partition]
        # What follows the newest life without a gap belongs to it, whatever offsets an earlier life had.
        last = applied.partitions[newest[item.partition]].runs[-1].last if lanes else None
        follows = last is not None and item.first > last and len(lanes) > 1
        if not follows and any(True for lane in lanes for _ in applied.partitions[lane].overlaps(item)):
            found.add(item.file)
        for other in seen.setdefault(item.partition, []):
            if _overlap(item, other):
                found |= {item.file, other.file}
        seen[item.partition].append(item)
    return found


def _overlap(one: FileOffsets, other: FileOffsets) -> bool:
    if one.partition != other.partition or one.file == other.file:
        return False
    return any(max(a[0], b[0]) <= min(a[1], b[1], one.last, other.last) for a in one.covered for b in other.covered)


def _is_archived(stretch: Stretch, applied: ArchivedOffsets) -> bool:
    item = FileOffsets(stretch.file, stretch.partition, stretch.first, stretch.last, ((stretch.first, stretch.last),))
    return any(
        True for lane, offsets in applied.partitions.items() if partition_of_lane(lane) == stretch.partition for _ in offsets.overlaps(item)
    )


def _ends(applied: ArchivedOffsets) -> dict[int, dict[int, int]]:
    ends: dict[int, dict[int, int]] = {}
    for lane, offsets in applied.partitions.items():
        ends.setdefault(partition_of_lane(lane), {})[life_of_lane(lane)] = offsets.runs[-1].last
    return ends


def _life_at(spans: Sequence[LifeSpan], stretch: Stretch) -> int:
    before = [span for span in spans if span.partition == stretch.partition and span.first_line <= stretch.first_line]
    return max(before, key=lambda span: span.first_line).life if before else 0


def _spans(
    pending: Sequence[tuple[Survey, ArchivedFile, list[FileOffsets]]],
    suspects: set[str],
    stretches: Sequence[Stretch],
    assigned: Mapping[tuple[str, int, int], int],
    ends: Mapping[int, Mapping[int, int]],
    *,
    moved: Mapping[str, int] = MappingProxyType({}),
) -> Lives:
    """Return the lives by path, for files that hold another life than the first."""
    reached = {partition: dict(each) for partition, each in ends.items()}
    found: dict[str, tuple[LifeSpan, ...]] = {}
    for _, file, offsets in pending:
        spans = []
        if file.path in suspects:
            of_file = [stretch for stretch in stretches if stretch.file == file.path]
            spans = [LifeSpan(one.partition, one.first_line, assigned[one.name], one.first, one.last) for one in of_file]
        for item in offsets if file.path not in suspects else ():
            here = reached.setdefault(item.partition, {})
            following = following_life(here, item.first)
            life = max(here, default=0) if following is None else following
            shift = moved.get(file.path, 0)
            # The first file of a new life opens it; later files follow.
            if shift < 0 or (shift > 0 and item.first <= here.get(life, -1)):
                life += shift
            spans.append(LifeSpan(item.partition, 1, life, item.first, item.last))
        for span in spans:
            here = reached.setdefault(span.partition, {})
            here[span.life] = max(span.last, here.get(span.life, span.last))
        if any(span.life for span in spans):
            found[file.path] = tuple(_joined(spans))
    return found


def _joined(spans: Sequence[LifeSpan]) -> Iterator[LifeSpan]:
    """Yield merged spans: neighbours in one partition have different lives."""
    for partition in sorted({span.partition for span in spans}):
        current: LifeSpan | None = None
        for span in sorted(item for item in spans if item.partition == partition):
            if current and current.life == span.life:
                current = LifeSpan(partition, current.first_line, span.life, min(current.first, span.first), max(current.last, span.last))
                continue
            if current:
                yield current
            current = span
        if current:
            yield current
