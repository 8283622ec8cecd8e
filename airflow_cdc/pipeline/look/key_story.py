"""The story of one key: its archived events in order, which microbatch applied each, what became of it and why, and the row today.

Starts no Spark. What it cannot read (Avro, Parquet, other shapes of records, files that are gone, too much text) is named in the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordLayout, TopicShape
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.errors import first_line
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.look.pending import surveyed_pending
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import lane_of
from airflow_cdc.model.position.position import EPOCH, Position, spelled_commit
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.lake import FlowState, archives_in
from airflow_cdc.model.state.microbatch import FilePart, Microbatch
from airflow_cdc.pipeline.look.flow_summaries import connector_of, table_of
from airflow_cdc.pipeline.look.key_events import KeyRecord, Place, find_records, places_of, why_not_searched
from airflow_cdc.pipeline.look.key_facts import KeyFacts, facts_of
from airflow_cdc.pipeline.look.key_outcomes import Evidence, Outcome, PlacedEvent, Written, judge
from airflow_cdc.pipeline.look.key_text import Key, parse_key
from airflow_cdc.pipeline.look.key_values import carried, changes_between, readable
from airflow_cdc.pipeline.look.microbatches import check_flow
from airflow_cdc.pipeline.look.native_table import NativeTable, NeedsSparkError, open_table
from airflow_cdc.pipeline.look.story import KeyStory, Removal, StoryEvent
from airflow_cdc.pipeline.native.decompress import TooMuchTextError
from airflow_cdc.pipeline.spark.storage import file_system

FileSystemOf = Callable[[str], tuple[FileSystem, str]]
"""Returns an archive's file system, and the archive's root in it."""


@dataclass(frozen=True)
class Bounds:
    """How much one story looks through; the newest comes first."""

    text: int = 1024**3
    """Estimated bytes of archived text."""
    microbatches: int = 1_000
    through: int | None = None
    """Newest microbatch to look through; None: the last one, and the files that wait."""
    table: int | None = None
    """Size in bytes of the table above which its rows are not searched; None: any size."""


class _Source(NamedTuple):
    """A file to search, and who owns it."""

    archive: str
    file: ArchivedFile
    layout: RecordLayout
    owners: tuple[Microbatch, ...]
    waits: Outcome | None


def key_story(lake: str, flow: str, key: str, bounds: Bounds = Bounds(), reach: FileSystemOf = file_system) -> KeyStory:
    """Return the story of a key.

    :param key: a single key column's value; several as ``column=value,column=value`` or a JSON object.
    :param reach: how an archive is reached, where that differs from the lake's own store.
    :raises ConfigurationError: for a flow that the lake does not know, and a key that does not fit its table.
    """
    fs, root = file_system(lake)
    check_flow(lake, flow)
    state = FlowState(fs, root, flow)
    checkpoint = state.checkpoint(write=False)
    archives = [(archive, archive.ledger(write=False)) for archive in archives_in(fs, root)]
    table, notes = _table(table_of(lake, checkpoint))
    numbers, asked = _numbers(checkpoint, bounds)
    if numbers and numbers[0] > 1:
        notes += (f"microbatches before {numbers[0]} were not looked through",)
    if bounds.through is not None:
        notes += (f"microbatches after {bounds.through} and files that wait were not looked through",)
    intents = [intent for number in asked if (intent := state.intent(number))]
    wanted = parse_key(key, table.keys if table else _keys(intents), table.types if table else {})
    waiting = [(archive, ledger) for archive, ledger in archives if flow in ledger.topics and bounds.through is None]
    sources = _sources(intents, checkpoint, waiting)
    found, unread = _search(sources, flow, wanted, bounds.text, reach)
    connector = connector_of(state, checkpoint, archives)
    entry = CONNECTORS.get(connector or "")
    if entry and entry.native is None and found:
        notes += (f"positions of {entry.title} are read by Spark alone: the events are in the archive's order",)
    placed = [
        _Placed(source, record, place)
        for (source, record), place in zip(found, places_of([record for _, record in found], entry), strict=True)
    ]
    is_searched = table is not None and (bounds.table is None or table.size <= bounds.table)
    if table and not is_searched:
        notes += (f"the table is larger than {(bounds.table or 0) // 1024**2:,} MiB: its rows were not searched",)
    facts = facts_of(lake, state, table if is_searched else None, wanted, {each.record.file for each in placed})
    reports = {number: report for number in numbers if (report := state.report(number))}
    is_history = table is not None and table.mode not in (TableMode.CURRENT, TableMode.FLAGGED)
    events = _events(placed, facts, reports, checkpoint, connector=connector, keeps_history=is_history)
    texts = {column: value.text for column, value in wanted.items()}
    removals = tuple(_removals(reports, connector))
    older = _left_out(numbers, [source for source in sources if unread.get(source.file.path) == _beyond(bounds.text)], bounds)
    return KeyStory(flow, texts, connector, events, facts.rows, facts.deleted, removals, unread, (*notes, *facts.notes), older)


def _numbers(checkpoint: FlowCheckpoint, bounds: Bounds) -> tuple[range, Sequence[int]]:
    """Return the committed microbatches to look through, and those with the one that is planned."""
    last = checkpoint.number if bounds.through is None else min(bounds.through, checkpoint.number)
    numbers = range(max(1, last - bounds.microbatches + 1), last + 1)
    return numbers, numbers if bounds.through is not None else (*numbers, checkpoint.number + 1)


def _left_out(numbers: range, beyond: Iterable[_Source], bounds: Bounds) -> int:
    """Return the newest microbatch of which the bounds left out a file; 0: none.

    A microbatch that has more text than one story searches would be asked for again and again: where the answer begins with it, the next
    one begins before it.
    """
    if not numbers:
        return 0
    newest = numbers[-1] if bounds.through is None else numbers[-1] - 1
    found = [owner.number for source in beyond for owner in source.owners]
    return max(numbers[0] - 1, min(newest, max(found, default=0)))


def _beyond(most_text: int) -> str:
    return f"more than {most_text // 1024**2:,} MiB of newer text was searched"


def _removals(reports: Mapping[int, BatchReport], connector: str | None) -> Iterator[Removal]:
    snapshots: set[Position] = set()
    for number, report in reports.items():
        for position in report.truncated_through.values():
            yield Removal(number, "truncate", position, spelled_commit(position, connector))
        if report.replaced_by and report.replaced_by.position not in snapshots:
            snapshots.add(report.replaced_by.position)
            yield Removal(number, "snapshot", report.replaced_by.position, spelled_commit(report.replaced_by.position, connector))


def _table(uri: str) -> tuple[NativeTable | None, tuple[str, ...]]:
    try:
        table = open_table(uri)
    except NeedsSparkError as reason:
        return None, (f"the table was not read: {reason}",)
    return table, () if table else (f"there is no table at {uri} yet",)


def _keys(intents: Iterable[Microbatch]) -> tuple[str, ...]:
    """Return the key's columns as the newest records name them; empty where they name none."""
    for intent in reversed(list(intents)):
        for shape in intent.shapes:
            parsed = json.loads(shape.key_shape) if shape.key_shape and shape.key_shape[0] in "[{" else None
            if isinstance(parsed, list):
                return tuple(map(str, parsed))
            if isinstance(parsed, dict) and parsed.get("fields"):
                return tuple(str(each["field"]) for each in parsed["fields"])
    return ()


def _sources(intents: Sequence[Microbatch], checkpoint: FlowCheckpoint, archives: Sequence[tuple[Any, Any]]) -> list[_Source]:
    found: dict[tuple[str, str], _Source] = {}
    for intent in intents:
        layouts = _layouts(intent.shapes)
        is_done = intent.number <= checkpoint.number
        for file in intent.files:
            known = found.get((intent.archive, file.path))
            owners = (*(known.owners if known else ()), *((intent,) if is_done else ()))
            waits = None if is_done else Outcome.PLANNED
            layout = layouts.get(file.path) or (known.layout if known else RecordLayout.RECORD)
            found[intent.archive, file.path] = _Source(intent.archive, file, layout, owners, waits)
    for archive, ledger in archives:
        held = {item.path for item in checkpoint.plan(archive.archive)[1]}
        held |= set(archive.waiting(ledger).flows.get(checkpoint.flow, ()))
        layouts = _layouts(shape for survey in archive.pending_surveys(checkpoint, ledger) for shape in survey.shapes)
        for path, file in surveyed_pending(archive, ledger, checkpoint.flow, checkpoint).items():
            known = found.get((archive.archive, path))
            waits = Outcome.HELD if path in held else known.waits if known and known.waits else Outcome.PENDING
            source = known or _Source(archive.archive, file, layouts.get(path, RecordLayout.RECORD), (), waits)
            found[archive.archive, path] = source._replace(waits=waits)
    return list(found.values())


def _layouts(shapes: Iterable[TopicShape]) -> dict[str, RecordLayout]:
    return {shape.file: shape.layout for shape in shapes}


def _search(
    sources: Sequence[_Source], flow: str, key: Key, most_text: int, reach: FileSystemOf
) -> tuple[list[tuple[_Source, KeyRecord]], dict[str, str]]:
    found: list[tuple[_Source, KeyRecord]] = []
    unread: dict[str, str] = {}
    unreached: dict[str, str] = {}
    reached: dict[str, tuple[FileSystem, str]] = {}
    left = most_text
    for source in reversed(sources):
        most = left
        left -= source.file.text_size
        beyond = _beyond(most_text) if left < 0 else None
        reason = why_not_searched(source.file) or beyond or unreached.get(source.archive)
        if reason is None:
            try:
                if source.archive not in reached:
                    reached[source.archive] = reach(source.archive)
                fs, root = reached[source.archive]
                records = find_records(fs, root, source.file, layout=source.layout, topic=flow, key=key, most=most)
                found += [(source, record) for record in records]
            except FileNotFoundError:
                reason = "it is no longer in the archive"
            except ValueError as error:
                reason = first_line(error)
                # Too much text costs what was left.
                left = 0 if isinstance(error, TooMuchTextError) else left
            except Exception as error:  # noqa: BLE001 - each store's client has errors of its own.
                # Asked once, and not for each file: a store that does not answer takes long.
                reason = unreached[source.archive] = f"the archive is not reached from here ({first_line(error)})"
        if reason:
            unread[source.file.path] = reason
    return found, unread


class _Placed(NamedTuple):
    source: _Source
    record: KeyRecord
    place: Place

    @property
    def lane(self) -> int | None:
        """The lane of the record; None where its partition is not known."""
        if self.record.partition is None:
            return None
        spans = [span for owner in self.source.owners for span in owner.lives.get(self.record.file, ())]
        mine = [span for span in spans if span.partition == self.record.partition and span.first_line <= self.record.line]
        return lane_of(self.record.partition, max(mine, key=lambda span: span.first_line).life if mine else 0)

    @property
    def order_in_lane(self) -> tuple[int, str, int]:
        """Where the lane holds it."""
        offset = self.record.offset if self.record.offset is not None else self.record.begins_at
        return (-1 if offset is None else offset), self.record.file, self.record.line


def _in_epoch(each: _Placed, epochs: Epochs) -> Position | None:
    position, offset = each.place.position, each.order_in_lane[0]
    begun = [epoch for begins, epoch in epochs.begins.get(str(each.lane), ()) if begins <= offset] if each.lane is not None else []
    return replace(position, commit=position.commit + max(begun, default=0) * EPOCH) if position else None


def _in_order(placed: Sequence[_Placed], epochs: Epochs, *, change_restarts: bool) -> list[tuple[_Placed, Position | None]]:
    """Return the records in the key's order, each with its position in its epoch.

    A read, and a record without position, stands where its lane holds it; a streamed event stands at its position, unless the archive
    orders a commit's events (``change_restarts``).
    """
    lanes: dict[int | None, list[_Placed]] = {}
    for each in placed:
        lanes.setdefault(each.lane, []).append(each)
    keyed: list[tuple[tuple[Any, ...], _Placed, Position | None]] = []
    for lane, members in lanes.items():
        members.sort(key=lambda each: each.order_in_lane)
        reached = Position(-1)
        for each in members:
            position = _in_epoch(each, epochs)
            is_streamed = position is not None and each.record.op != "r"
            if is_streamed and position:
                reached = max(reached, position)
            is_raised = change_restarts and position is not None and position.commit == reached.commit
            at = position if is_streamed and position and not is_raised else reached
            key = (at.commit, at.change, at.serial, not is_streamed, lane if lane is not None else -1, each.order_in_lane)
            keyed.append((key, each, position))
    return [(each, position) for _, each, position in sorted(keyed, key=lambda item: item[0])]


def _owns(part: FilePart | None, each: _Placed, position: Position | None) -> bool:
    """Return whether a microbatch's part of the file holds a record."""
    if part is None:
        return True
    since, before = (part.reads_since, part.reads_before) if each.record.op == "r" else (part.since, part.before)
    if position is None:
        return part.since is None
    if each.record.op == "r" and since is None and part.since is not None:
        return False
    return (since is None or position.commit >= since) and (before is None or position.commit < before)


def _events(
    placed: Sequence[_Placed],
    facts: KeyFacts,
    reports: Mapping[int, BatchReport],
    checkpoint: FlowCheckpoint,
    *,
    connector: str | None,
    keeps_history: bool,
) -> tuple[StoryEvent, ...]:
    entry = CONNECTORS.get(connector or "")
    ordered = _in_order(placed, checkpoint.epochs, change_restarts=bool(entry and entry.position.change_restarts))
    rows = tuple(Written(row.microbatch, row.position, row.op) for row in facts.rows if row.position)
    written = (*rows, *facts.deleted)
    asked: list[PlacedEvent] = []
    owners: list[tuple[int, ...]] = []
    for index, (each, position) in enumerate(ordered):
        mine = tuple(owner.number for owner in each.source.owners if _owns(owner.parts.get(each.record.file), each, position))
        # The first reader decided, unless the table shows another: a replay merges what was rejected.
        proven = [number for number in mine if (number, position) in {(each.microbatch, each.position) for each in written}]
        applied = next((number for number in (*proven, *mine) if number in reports), mine[0] if mine else None)
        rejected = facts.rejects.get((each.record.file, each.record.line))
        owners.append(mine)
        asked.append(PlacedEvent(index, applied, each.record.op, position, None if mine else each.source.waits, rejected))
    judged = judge(asked, Evidence(reports, written, keeps_history))
    events: list[StoryEvent] = []
    last: Mapping[str, Any] | None = None
    for (each, position), mine, outcome in zip(ordered, owners, judged, strict=True):
        record = each.record
        before, after = readable(record.before, record.fields), readable(record.after, record.fields)
        now = carried(after, last)
        changes = () if record.op is None else changes_between(before if before is not None else last, now)
        last = last if record.op is None else now
        spelled = spelled_commit(position, connector) if position else None
        place = (record.file, record.line, record.partition, record.offset, record.op)
        when = _instant(record.source.get("ts_ms"))
        images = (before, after, changes)
        events.append(StoryEvent(each.source.archive, *place, position, spelled, each.place.transaction, when, *images, mine, outcome))
    return tuple(events)


def _instant(milliseconds: Any) -> str | None:
    if not isinstance(milliseconds, int):
        return None
    try:
        return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).isoformat(timespec="milliseconds")
    except (ValueError, OverflowError, OSError):
        return None
