"""Parts of files: a run that stops at a cut applies the part of a file before it, and a later run the rest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pyspark.sql import DataFrame, SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import Survey, shapes_by_file
from airflow_cdc.model.columns import FILE, OFFSET
from airflow_cdc.model.position.epochs import ArchivedEpochs, FileEpochs
from airflow_cdc.model.position.lives import Lives, needs_lines
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import FilePart, HeldFile, Microbatch, SurveyedPart, pending_in
from airflow_cdc.pipeline.decode.lanes import in_epoch
from airflow_cdc.pipeline.read.read_lines import read_lines
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.commit_positions import (
    COMMIT,
    READ_COMMIT,
    comparable_connector,
    comparable_dialect,
    parse_lines,
    with_lanes,
)
from airflow_cdc.pipeline.survey.survey_files import survey_lines


def read_microbatch(spark: SparkSession, microbatch: Microbatch, *, numbered: bool = False) -> DataFrame:
    """Return the archived lines that a microbatch owns (:func:`airflow_cdc.pipeline.read.read_lines.read_lines`)."""
    numbered = numbered or needs_lines(microbatch.lives) or needs_lines(_lives_of(microbatch.parts))
    return only_parts(read_lines(spark, microbatch.archive, microbatch.files, numbered=numbered), microbatch.files, microbatch.parts)


def read_parts(spark: SparkSession, archive: str, files: Sequence[ArchivedFile], parts: Mapping[str, FilePart]) -> DataFrame:
    """Return the archived lines of parts of files.

    :param parts: by path of the file.
    """
    return only_parts(read_lines(spark, archive, files, numbered=needs_lines(_lives_of(parts))), files, parts)


def only_parts(lines: DataFrame, files: Sequence[ArchivedFile], parts: Mapping[str, FilePart]) -> DataFrame:
    """Return the lines without those of a divided file outside its part; all lines of other files stay.

    :param files: the files of the lines.
    :param parts: by path of the file.
    """
    columns = lines.columns
    if any(part.epochs.begins for part in parts.values()):
        lines = with_lanes(lines, files, _lives_of(parts))
    for connector in sorted({part.connector for part in parts.values()}):
        paths_of: dict[FilePart, list[str]] = {}
        for path, part in parts.items():
            if part.connector == connector:
                paths_of.setdefault(part, []).append(path)
        located = parse_lines(lines, "", comparable_dialect({connector}))
        outside = " OR ".join(f"({FILE} IN ({', '.join(map(sql.text, paths))}) AND NOT {_is_in(part)})" for part, paths in paths_of.items())
        lines = located.filter(f"NOT ({outside})").select(*columns)
    return lines


def _lives_of(parts: Mapping[str, FilePart]) -> Lives:
    return {path: part.epochs.lives for path, part in parts.items() if part.epochs.lives}


def _is_in(part: FilePart) -> str:
    """Return the SQL that is true for a line of the part, never NULL."""
    commit, read = (in_epoch(each, part.epochs.epochs, at=OFFSET) for each in (COMMIT, READ_COMMIT))
    # A line without a position belongs to the first part.
    since = "true" if part.since is None else f"coalesce({commit} >= {part.since}BD, false)"
    if part.reads_since is not None:
        since = f"({since} OR coalesce({read} >= {part.reads_since}BD, false))"
    before = "true" if part.before is None else f"coalesce({commit} < {part.before}BD, true)"
    if part.reads_before is not None:
        before += f" AND coalesce({read} < {part.reads_before}BD, true)"
    return f"({since} AND {before})"


@dataclass(frozen=True)
class FlowEnd:
    """The point up to which a run applies a flow."""

    before: int | None = None
    """Commit position, in its epoch of the log: events at or behind it wait; None if none do."""
    reads_before: int | None = None
    """As above, for the reads of full snapshots, which otherwise never wait. Requires ``before``, at which the rest of a file begins."""
    archived: ArchivedEpochs = field(default_factory=ArchivedEpochs)
    """The epochs of the records in the flow's files."""


@dataclass(frozen=True)
class _Pending:
    """The rest of one pending file, and its part before the cut."""

    survey: Survey
    file: ArchivedFile
    part: FilePart
    records: int
    """Records of the flow that no microbatch owns yet."""


@dataclass(frozen=True)
class PartsOfFlow:
    """Finds the part of each pending file of a flow before the cut. Each pair of file and cut is read once."""

    spark: SparkSession
    archive: ArchiveState
    ledger: Ledger
    flow: str
    end: FlowEnd
    _found: dict[tuple[str, FilePart], SurveyedPart] = field(default_factory=dict)

    def find(self, checkpoint: FlowCheckpoint) -> Mapping[str, SurveyedPart]:
        """Return by path the part to own next, for each pending file that the cut divides, that an earlier cut divided, or that waits.

        Costs one job for all files not read before, and none if nothing waits and nothing was divided.
        """
        pending = self._pending(checkpoint)
        self._look([item for item in pending if (item.file.path, item.part) not in self._found])
        return {item.file.path: self._found[item.file.path, item.part] for item in pending}

    def _pending(self, checkpoint: FlowCheckpoint) -> list[_Pending]:
        planned, held = checkpoint.plan(self.archive.archive)
        marks = {(item.survey, item.path): item for item in held if item.since is not None}
        if self.end.before is None and not marks:
            return []
        found = []
        for survey in self.archive.pending_surveys(checkpoint, self.ledger):
            shapes_of = survey.shapes_of(self.flow)
            for file in pending_in(survey, self.flow, planned, held):
                mark = marks.get((survey.number, file.path))
                shapes = shapes_of[file.path]
                # A file without events of this flow has nothing that could wait.
                connector = comparable_connector({shape.connector for shape in shapes if shape.connector})
                if connector and (mark or self.end.before is not None):
                    part = FilePart(
                        connector,
                        *((mark.since, self.end.before, mark.reads_since) if mark else (None, self.end.before, None)),
                        self.end.reads_before,
                        self._epochs_of(file.path, mark),
                    )
                    found.append(_Pending(survey, file, part, mark.left if mark else sum(shape.records for shape in shapes)))
        return found

    def _epochs_of(self, path: str, mark: HeldFile | None) -> FileEpochs:
        """Return the epochs of a file's records. This run may not have searched for them where an earlier one did."""
        found = self.end.archived.of_file(path)
        return found if found.begins or mark is None else mark.epochs

    def _look(self, pending: Sequence[_Pending]) -> None:
        if closed := [item for item in pending if _is_empty(item.part)]:
            self._found.update({(item.file.path, item.part): SurveyedPart(item.part, (), item.records) for item in closed})
        rest = [item for item in pending if not _is_empty(item.part)]
        if not rest:
            return
        files = [item.file for item in rest]
        session = session_for_batch(self.spark, batch_bytes=sum(file.text_size for file in files))
        lines = read_parts(session, self.archive.archive, files, {item.file.path: item.part for item in rest})
        surveys = {item.survey.number: item.survey for item in rest}
        placed = {path: place for survey in surveys.values() for path, place in survey.placed().items()}
        shapes_of = shapes_by_file(survey_lines(lines, files, placed), self.flow)
        for item in rest:
            inside = shapes_of.get(item.file.path, ())
            left = item.records - sum(shape.records for shape in inside)
            self._found[item.file.path, item.part] = SurveyedPart(item.part, inside, left)


def _is_empty(part: FilePart) -> bool:
    """Return whether the cut is not behind the earlier one that divided the file."""
    return part.since is not None and part.before is not None and part.before <= part.since
