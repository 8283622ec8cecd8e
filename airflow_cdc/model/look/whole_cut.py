"""Whether an archive proves that a connector's transactions are complete past some moment; determined without Spark."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.cut import AwaitedTransaction, whole_through
from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile
from airflow_cdc.model.archive.survey import RecordKind
from airflow_cdc.model.archive.transaction_records import MOST_BYTES, TransactionRecord, read_transaction_records
from airflow_cdc.model.archive.transactions import MOST_NAMED, LogStart, OpenTransactions, ends_transactions, prefix_of
from airflow_cdc.model.connectors.registry import entries
from airflow_cdc.model.errors import ConfigurationError, UnreadableFileError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.look.new_files import poke
from airflow_cdc.model.position.as_of import AsOf
from airflow_cdc.model.position.position import EPOCH, commit_position
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger


@dataclass(frozen=True)
class WholeCut:
    """How far the transactions of one connector are completely archived."""

    is_past: bool
    """Whether the requested moment is reached."""
    transaction: str | None = None
    """The last transaction up to which all are complete; None where there is none yet."""
    committed_at: str | None = None
    """When its END was written, ISO-8601 in UTC; None where no file that was read holds it."""
    waits_for: tuple[AwaitedTransaction, ...] = ()
    """Transactions whose END announces events that are not archived; the first ones."""
    unread_bytes: int = 0
    """Bytes of the unread files where they are more than a look reads, and a merge run must survey them first; 0 otherwise."""

    def to_json(self) -> dict[str, Any]:
        """Return the cut as plain JSON values."""
        return {**vars(self), "waits_for": [item.transaction for item in self.waits_for]}


@dataclass(frozen=True)
class _Known:
    """An archive and a lake, as far as both are known."""

    fs: FileSystem
    root: str
    state: ArchiveState
    ledger: Ledger
    new: tuple[ArchivedFile, ...]
    lake_fs: FileSystem
    lake_root: str
    aside: tuple[SetAsideFile, ...] = ()
    """Unreadable files that have not been removed."""


def find_whole_cuts(
    *,
    archive_fs: FileSystem,
    archive_root: str,
    archive: str,
    lake_fs: FileSystem,
    lake_root: str,
    connectors: Sequence[str] = (),
    past: AsOf | None = None,
) -> dict[str, WholeCut]:
    """Return how far the transactions of each connector are completely archived, by ``topic.prefix``.

    Reads what no run has processed: the new files of transaction topics and tables, up to :data:`MOST_BYTES`.

    :param connectors: the requested prefixes; none: every connector whose transaction topic is archived.
    :param past: the moment that must be reached; None: more than the lake's tables hold.
    :raises ConfigurationError: when a file cannot be read without Spark, or a position does not compare with the connector's ENDs.
    :raises UnreadableFileError: when an unreadable file may hold what is awaited.
    """
    state = ArchiveState(lake_fs, lake_root, archive)
    ledger = state.ledger()
    new = poke(archive_fs, archive_root, state, ledger)
    aside = _set_aside(archive_fs, archive_root, state, {file.path for file in new})
    known = _Known(archive_fs, archive_root, state, ledger, new, lake_fs, lake_root, aside)
    ending = [topic for topic in (*(file.topic for file in new), *(file.topic for file in aside)) if ends_transactions(topic)]
    prefixes = {*connectors_with_transactions(ledger), *map(prefix_of, ending)}
    asked = connectors or sorted(prefixes)
    return {prefix: _whole_cut(known, prefix, past) if prefix in prefixes else WholeCut(is_past=False) for prefix in asked}


def highest_position(flows: Iterable[tuple[FlowCheckpoint, int]], start: LogStart) -> int | None:
    """Return the highest commit position, as the source has it, that tables hold in the newest epoch of their connector's log.

    :param flows: each flow's checkpoint, and the number of the newest epoch in its files.
    :param start: where that epoch begins.
    """
    # A table without events since the log went back holds positions of the epoch before.
    reached = (
        place.commit % EPOCH
        for checkpoint, newest in flows
        if start.holds(checkpoint.committed_through)
        for place in checkpoint.reach.streamed_through.values()
        if place.epoch == newest
    )
    return max(reached, default=None)


def _set_aside(fs: FileSystem, root: str, state: ArchiveState, new: set[str]) -> tuple[SetAsideFile, ...]:
    aside = (file for file in state.set_aside() if file.reason == UNREADABLE and file.path not in new)
    return tuple(file for file in aside if fs.exists(f"{root.rstrip('/')}/{file.path}"))


def connectors_with_transactions(ledger: Ledger) -> list[str]:
    """Return the prefixes of the connectors whose transaction topic is archived."""
    topics = (topic for topic in ledger.control_topics() if RecordKind.TRANSACTION.value in ledger.kinds[topic])
    return [prefix_of(topic) for topic in topics if ends_transactions(topic)]


def _whole_cut(known: _Known, prefix: str, past: AsOf | None) -> WholeCut:
    cut = _seen_cut(known, prefix, past)
    others = {prefix_of(topic) for topic in known.ledger.topics} - {prefix}
    aside = [file for file in known.aside if prefix_of(file.topic) not in others]
    # The missing events or the missing END may be in these files; no look ever reads them.
    if not cut.is_past and aside and (cut.waits_for or any(ends_transactions(file.topic) for file in aside)):
        raise UnreadableFileError(
            f"Connector {prefix}: {len(aside)} archived files cannot be read and are set aside, such as {aside[0]}; what they hold of its"
            " transactions is lacking.",
            next_step="Replace each by a whole copy under the same name, or move it out of the archive; then let the merge run."
            " `airflow-cdc files --lake …` lists them.",
            files=[file.path for file in aside],
        )
    return cut


def _seen_cut(known: _Known, prefix: str, past: AsOf | None) -> WholeCut:
    transactions = known.state.transactions()
    before = transactions.connectors.get(prefix, OpenTransactions())
    files = [*_surveyed_since(known, prefix, transactions.surveyed_through), *_new_of(known, prefix)]
    size = sum(file.text_size for file in files)
    if size > MOST_BYTES:
        return WholeCut(is_past=False, unread_bytes=size)
    # The last surveyed one is read too: the lake does not record when its transactions ended.
    files += _last_surveyed(known, f"{prefix}.transaction") if past and past.time else ()
    archived = read_transaction_records(known.fs, known.root, files, known.ledger.surveyed_through + 1)
    records = [record for record in archived if before.start.holds(record.time_ms)]
    tables = _tables(known, records, prefix)
    found = [record.transaction for record in records if record.topic in {*tables, f"{prefix}.transaction"}]
    after = before.with_records(found, prefix=prefix, topics=tables)
    applied = _applied_through(known, tables, before.start)
    stop, awaited = whole_through(after, applied_through=applied)
    ended = {key: place.ended for key, place in after.whole.items() if place.ended and (stop is None or place.ended < stop)}
    last = max(ended, key=lambda key: (ended[key], key), default=None)
    times = {record.transaction.key: record.ended_ms for record in records if record.ended_ms is not None}
    cut = WholeCut(is_past=False, transaction=last, committed_at=_iso(times.get(last or "")), waits_for=awaited[:MOST_NAMED])
    if past is None:
        with_rows = {item.key for item in (*found, *before.open.values()) if item.seen}
        return replace(cut, is_past=any(_is_new(key, after, before, applied, with_rows) for key in ended))
    if past.time:
        return replace(cut, is_past=any(times.get(key, 0) >= (past.milliseconds or 0) for key in ended if key in times))
    return replace(cut, is_past=any(end >= (_end_of(past, end, prefix),) for end in ended.values()))


def _is_new(key: str, after: OpenTransactions, before: OpenTransactions, applied: int | None, with_rows: set[str]) -> bool:
    """Return whether a complete transaction brings rows that the tables lack."""
    commit = after.whole[key].commit
    if commit is not None:
        return applied is None or commit > applied
    return key not in before.whole and key in with_rows


def _end_of(past: AsOf, end: tuple[int, ...], prefix: str) -> int:
    # ENDs name no epoch.
    placed = [entry for entry in entries() if entry.cut]
    found = next((number for entry in placed if (number := commit_position(past.text, entry.names[0])) is not None), None)
    if found is None or len(end) > 1:
        raise ConfigurationError(
            f"Connector {prefix}: {past.text!r} cannot be compared with its ENDs, which carry no such position.",
            next_step="Give a time such as 2026-11-21T09:30:00Z; a position is in the transaction's id of these sources only:"
            f" {', '.join(entry.title for entry in placed)}.",
        )
    return found


def _surveyed_since(known: _Known, prefix: str, number: int) -> Iterable[ArchivedFile]:
    """Yield the files that a run has surveyed, but not yet for transactions."""
    for survey in known.state.surveys(number + 1, known.ledger.surveyed_through):
        holding = {shape.file for shape in survey.shapes if shape.topic.startswith(f"{prefix}.")}
        yield from (file for file in survey.files if file.path in holding)


def _new_of(known: _Known, prefix: str) -> Iterable[ArchivedFile]:
    """Return the new files that may hold a connector's records: all except those whose sink's name shows another topic."""
    return (file for file in known.new if file.start_offset is None or file.topic.startswith(f"{prefix}."))


def _last_surveyed(known: _Known, topic: str) -> tuple[ArchivedFile, ...]:
    latest = known.ledger.latest.get(topic, 0)
    return tuple(file for survey in known.state.surveys(latest, latest) for file in survey.files_of(topic)[-1:])


def _tables(known: _Known, records: Iterable[TransactionRecord], prefix: str) -> list[str]:
    found = {record.topic for record in records if record.transaction.seen}
    # A table without any readable file counts as archived too.
    unread = {file.topic for file in known.aside if not ends_transactions(file.topic)}
    return sorted(topic for topic in {*known.ledger.tables(), *found, *unread} if topic.startswith(f"{prefix}."))


def _applied_through(known: _Known, tables: Iterable[str], start: LogStart) -> int | None:
    """Return the highest position of the newest epoch of the log that a table shows, as the source has it."""
    checkpoints = [FlowState(known.lake_fs, known.lake_root, table).checkpoint() for table in tables]
    return highest_position([(checkpoint, checkpoint.epochs.newest) for checkpoint in checkpoints], start)


def _iso(milliseconds: int | None) -> str | None:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat() if milliseconds else None
