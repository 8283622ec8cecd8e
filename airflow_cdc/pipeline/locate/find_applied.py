"""Find the applied files of a flow that hold events of a range, and make another microbatch from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import FilePlace, TopicShape, shapes_by_file
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.position.epochs import ArchivedEpochs
from airflow_cdc.model.position.lives import LifeSpan
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.microbatch import FilePart, Microbatch
from airflow_cdc.pipeline.locate.file_parts import read_parts
from airflow_cdc.pipeline.spark.session import session_for_batch
from airflow_cdc.pipeline.survey.survey_files import survey_lines


@dataclass(frozen=True)
class CommitRange:
    """A range of a source's log, as commit positions."""

    connector: str | None = None
    """``source.connector``: defines the positions; None if the range needs none."""
    since: int | None = None
    """The first position, in its epoch of the log; None: from the beginning, with records without position and full snapshots' reads."""
    before: int | None = None
    """The first position behind the range; None: to the end."""
    files: frozenset[str] | None = None
    """Paths of the files to which the range is limited; None: all."""
    archived: ArchivedEpochs = field(default_factory=ArchivedEpochs)
    """The epochs of the records in the applied files."""


@dataclass
class _Surveyed:
    """The surveys' findings about some files."""

    shapes: dict[str, tuple[TopicShape, ...]] = field(default_factory=dict)
    placed: dict[str, FilePlace] = field(default_factory=dict)
    """By path: the file's layout, and the topic of lines that name none."""


def find_applied(
    spark: SparkSession, state: ArchiveState, flow: FlowState, checkpoint: FlowCheckpoint, within: CommitRange
) -> Microbatch | None:
    """Return the microbatch that reads again what a flow has applied of a range; it owns nothing new.

    Costs one scan of the files of those microbatches whose events may lie in the range; none if the range is everything.

    :return: None if no applied event lies in the range.
    :raises StateUnreadableError: if the intent of an earlier microbatch is missing.
    """
    applied = _applied_files(state, flow, checkpoint, within)
    surveyed = _surveyed(state, flow.flow, applied)
    parts = {path: part for path, each in applied.items() if (part := _part(each, within))}
    divided = [each.file for path, each in applied.items() if path in parts]
    inside = _look(spark, state, flow.flow, files=divided, parts=parts, placed=surveyed.placed)
    shapes = {path: inside.get(path, ()) if path in parts else surveyed.shapes.get(path, ()) for path in applied}
    files = tuple(each.file for path, each in applied.items() if shapes[path])
    if not files:
        return None
    planned, held = checkpoint.plan(state.archive)
    return Microbatch(
        flow.flow,
        checkpoint.number + 1,
        state.archive,
        files,
        planned,
        tuple(shape for file in files for shape in shapes[file.path]),
        held=held,
        parts={file.path: parts[file.path] for file in files if file.path in parts},
        is_again=True,
        lives={file.path: spans for file in files if (spans := applied[file.path].lives)},
        surveyed=checkpoint.surveyed.get(state.archive),
    )


@dataclass(frozen=True)
class _Applied:
    """The applied part of one file."""

    file: ArchivedFile
    part: FilePart | None
    """The last part that a microbatch owned, if none owned the whole file; it begins where the previous part ends."""
    lives: tuple[LifeSpan, ...]
    """The lives of the topic in the file."""


def _part(applied: _Applied, within: CommitRange) -> FilePart | None:
    """Return the part of a file to read; None for the whole file."""
    done = applied.part
    before = _lowest(within.before, done.before if done else None)
    if not within.connector or (within.since is None and before is None):
        return None
    # The run that divided the file also knew the begins of epochs in the rest.
    epochs = done.epochs if done and done.epochs.begins else within.archived.of_file(applied.file.path)
    # Reads are not ordered among the events of their epoch; those of a later epoch lie behind all of them.
    next_epoch = (within.before // EPOCH + 1) * EPOCH if within.before is not None and epochs.begins else None
    reads_before = _lowest(next_epoch, done.reads_before if done else None)
    return FilePart(within.connector, within.since, before, None, reads_before, epochs)


def known_epochs(flow: FlowState, checkpoint: FlowCheckpoint, archive: str) -> ArchivedEpochs:
    """Return the epochs of the records in a flow's applied files.

    :param archive: URI of the archive's root.
    """
    intents = [intent for number in range(1, checkpoint.number + 1) if (intent := flow.intent(number)) and intent.archive == archive]
    lives = {path: spans for intent in intents for path, spans in intent.lives.items()}
    return ArchivedEpochs(checkpoint.epochs, lives, frozenset(file.path for intent in intents for file in intent.files))


def _applied_files(state: ArchiveState, flow: FlowState, checkpoint: FlowCheckpoint, within: CommitRange) -> dict[str, _Applied]:
    """Return by path the files that may hold events of the range."""
    found: dict[str, _Applied] = {}
    for number in range(1, checkpoint.number + 1):
        intent = flow.intent(number)
        if intent is None:
            raise StateUnreadableError(
                f"Flow {flow.flow}: the intent of microbatch {number} is gone, and with it which files it applied.",
                next_step="Restore it, or rebuild the table from the archive.",
            )
        if intent.archive == state.archive and not intent.is_again and _may_hold(flow.report(number), within):
            for file in intent.files:
                if within.files is not None and file.path not in within.files:
                    continue
                found[file.path] = _Applied(file, intent.parts.get(file.path), intent.lives.get(file.path, ()))
    return found


def _may_hold(report: BatchReport | None, within: CommitRange) -> bool:
    # The reach covers neither rejected records nor placed reads.
    if report is None or within.since is None or report.events.rejected or not report.reach.streamed_from:
        return True
    first = min(position.commit for position in report.reach.streamed_from.values())
    last = max(position.commit for position in report.reach.streamed_through.values())
    return last >= within.since and (within.before is None or first < within.before)


def _surveyed(state: ArchiveState, topic: str, paths: Mapping[str, object]) -> _Surveyed:
    found, ledger = _Surveyed(), state.ledger()
    for survey in state.surveys(ledger.topics.get(topic, 1), ledger.surveyed_through) if paths else ():
        found.shapes |= {path: shapes for path, shapes in survey.shapes_of(topic).items() if path in paths}
        found.placed |= {path: place for path, place in survey.placed().items() if path in paths}
    return found


def _look(
    spark: SparkSession,
    state: ArchiveState,
    topic: str,
    *,
    files: list[ArchivedFile],
    parts: Mapping[str, FilePart],
    placed: Mapping[str, FilePlace],
) -> dict[str, tuple[TopicShape, ...]]:
    """Return the shapes of a topic's records in the parts of files, by path."""
    if not files:
        return {}
    session = session_for_batch(spark, batch_bytes=sum(file.text_size for file in files))
    return shapes_by_file(survey_lines(read_parts(session, state.archive, files, parts), files, placed), topic)


def _lowest(*bounds: int | None) -> int | None:
    return min((bound for bound in bounds if bound is not None), default=None)
