"""The lake's state folder: surveys of archives, and per flow its intents, commit markers and checkpoint.

    <lake>/_cdc/archives/<id>/surveys/<n>.json   what the files hold          created once, never changed
    <lake>/_cdc/archives/<id>/ledger.json        which files are surveyed     derived from the surveys
    <lake>/_cdc/archives/<id>/looked.json        what looks need not list     written by runs and sensors, of use only to be fast
    <lake>/_cdc/archives/<id>/transactions.json  which are not whole          derived from the surveys' files
    <lake>/_cdc/archives/<id>/waiting.json       files that wait for them     written by each run, of use until the next survey
    <lake>/_cdc/archives/<id>/set_aside.json     files that cannot be read    written by runs; lost, the next run tries them again
    <lake>/_cdc/flows/<flow>/flow.json           this life of the flow        created once, never changed
    <lake>/_cdc/flows/<flow>/intents/<n>.json    what microbatch n owns       created once, never changed
    <lake>/_cdc/flows/<flow>/commits/<n>.json    what microbatch n did        derived from the Delta commit
    <lake>/_cdc/flows/<flow>/checkpoint.json     where the flow stands        derived from the commits
    <lake>/_cdc/flows/<flow>/quarantine          Delta table of rejects
    <lake>/_cdc/flows/<flow>/delete_markers      Delta table of deleted keys
    <lake>/_cdc/flows/<flow>/events              Delta table of all events, of flows that keep every version

Readable without Spark, so the sensors and the UI ask it too. What is derived is rebuilt when it is lost or behind:
reading it starts at the recorded number and probes for the next one, so its cost does not grow with the flow's age.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from itertools import chain
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import unquote

from airflow_cdc.model.archive import ArchivedFile
from airflow_cdc.model.completeness import ArchivedOffsets
from airflow_cdc.model.cut import WaitingFiles
from airflow_cdc.model.epochs import Epochs
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.files import FileSystem, create_json, name_digest, read_json, replace_json, short_hash
from airflow_cdc.model.ledger import Ledger, folder_and_name
from airflow_cdc.model.looked import Looked
from airflow_cdc.model.microbatch import HeldFile, Microbatch, PlanPosition
from airflow_cdc.model.places import STATE_FOLDER, flow_folder
from airflow_cdc.model.position import Position
from airflow_cdc.model.reach import Reach
from airflow_cdc.model.report import BatchReport, EventCounts
from airflow_cdc.model.set_aside import CHANGED, SetAsideFile
from airflow_cdc.model.snapshot import Snapshot
from airflow_cdc.model.survey import Replaced, Survey
from airflow_cdc.model.transactions import TransactionLedger

_Kept = TypeVar("_Kept")


class ArchiveState:
    """The surveys of one archive in one lake."""

    def __init__(self, fs: FileSystem, lake_root: str, archive: str) -> None:
        # A local folder has one state, whether it is given as a path or as a file URL.
        self.archive = re.sub(r"^file:/+", "/", archive).rstrip("/")
        self._fs = fs
        self._folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/archives/{short_hash(self.archive)}"
        # A survey never changes, and every flow asks for the same ones.
        self._surveys: dict[int, Survey] = {}
        self._marking = Lock()

    def ledger(self) -> Ledger:
        """Return the ledger, caught up with surveys that a crash kept out of it."""
        document = read_json(self._fs, f"{self._folder}/ledger.json")
        # One that an older version wrote is rebuilt from the surveys, as a lost one is.
        ledger = Ledger.from_json(document) if document and "void" in document else Ledger()
        behind = False
        while survey := self._read(ledger.surveyed_through + 1):
            ledger, behind = ledger.with_survey(survey), True
        if behind:
            replace_json(self._fs, f"{self._folder}/ledger.json", {"archive": self.archive, **ledger.to_json()})
        return ledger

    def unsurveyed(self, files: Iterable[ArchivedFile], ledger: Ledger) -> list[ArchivedFile]:
        """Return the files that no survey holds as they are, in their order; not those that are set aside."""
        aside = {file.path for file in self.set_aside()}
        by_folder: dict[str, list[ArchivedFile]] = {}
        for file in files:
            if file.path not in aside:
                by_folder.setdefault(folder_and_name(file.path)[0], []).append(file)
        new: list[ArchivedFile] = []
        surveyed: Mapping[str, Replaced] | None = None
        for folder, members in by_folder.items():
            seen = ledger.folders.get(folder)
            below = [file for file in members if seen and folder_and_name(file.path)[1] <= seen.through]
            digest = sum(name_digest(folder_and_name(file.path)[1]) for file in below) % 2**64
            size = sum(file.size for file in below)
            if seen is None or (len(below), digest, size) == (seen.count, seen.digest, seen.size):
                new += members[len(below) :] if seen else members
            else:
                # A file came late into the middle of the folder, or changed, or one was removed: only the full list can tell.
                surveyed = self._surveyed(ledger) if surveyed is None else surveyed
                new += [file for file in members if file.path not in surveyed or surveyed[file.path].size != file.size]
        return sorted(new)

    def replaced(self, files: Iterable[ArchivedFile], ledger: Ledger) -> tuple[Replaced, ...]:
        """Return what the surveys say of those of some unsurveyed files that changed since they were surveyed."""
        old = {file.path for file in files if ledger.may_know(file.path)}
        known = self._surveyed(ledger) if old else {}
        return tuple(known[path] for path in sorted(old & known.keys()))

    def add(self, survey: Survey) -> bool:
        """Write a survey down; False when another run wrote that number first."""
        return create_json(self._fs, self._path(survey.number), survey.to_json())

    def surveys(self, first: int, last: int) -> Iterator[Survey]:
        """Yield the surveys from number ``first`` through ``last``."""
        for number in range(max(first, 1), last + 1):
            survey = self._read(number)
            if survey is None:
                raise StateUnreadableError(
                    f"Survey {number} of archive {self.archive} is gone ({self._path(number)}), and with it which files wait.",
                    next_step="Restore it, or remove the lake's whole _cdc folder: the archive is then applied anew; the newer row wins.",
                )
            yield survey

    def surveyed_at(self, number: int) -> datetime:
        """Return when a survey was written, or copied here."""
        return self._fs.modified(self._path(number))

    def pending_surveys(self, checkpoint: FlowCheckpoint, ledger: Ledger) -> Iterator[Survey]:
        """Yield the surveys that may have files which no committed microbatch of a flow owns."""
        planned, held = checkpoint.plan(self.archive)
        first = max(planned.survey, ledger.topics.get(checkpoint.flow, 1))
        earlier = sorted({item.survey for item in held if item.survey < first})
        found = (survey for number in earlier for survey in self.surveys(number, number))
        for survey in chain(found, self.surveys(first, ledger.latest.get(checkpoint.flow, 0))):
            yield replace(survey, void=ledger.void[survey.number]) if survey.number in ledger.void else survey

    def looked(self) -> Looked:
        """Return what earlier looks saw; nothing where that is lost."""
        document = read_json(self._fs, f"{self._folder}/looked.json")
        return Looked.from_json(document) if document else Looked()

    def write_looked(self, looked: Looked) -> None:
        """Write down what a look saw, once all data files in it are surveyed."""
        replace_json(self._fs, f"{self._folder}/looked.json", looked.to_json())

    def transactions(self) -> TransactionLedger:
        """Return which transactions are not archived whole, as far as a run has looked."""
        document = read_json(self._fs, f"{self._folder}/transactions.json")
        return TransactionLedger.from_json(document) if document else TransactionLedger()

    def write_transactions(self, ledger: TransactionLedger) -> None:
        """Write down how far transactions were looked into."""
        replace_json(self._fs, f"{self._folder}/transactions.json", ledger.to_json())

    def waiting(self, ledger: Ledger) -> WaitingFiles:
        """Return which files wait for transactions; none once there is a survey that may have brought them."""
        document = read_json(self._fs, f"{self._folder}/waiting.json")
        found = WaitingFiles.from_json(document) if document else WaitingFiles()
        return found if found.surveyed_through == ledger.surveyed_through else WaitingFiles(ledger.surveyed_through)

    def write_waiting(self, files: WaitingFiles) -> None:
        """Write down which files wait for transactions."""
        replace_json(self._fs, f"{self._folder}/waiting.json", files.to_json())

    def set_aside(self) -> tuple[SetAsideFile, ...]:
        """Return the files that no survey holds because they cannot be read."""
        document = read_json(self._fs, f"{self._folder}/set_aside.json") or {}
        return tuple(SetAsideFile.from_json(item) for item in document.get("files", ()))

    def write_set_aside(self, files: Iterable[SetAsideFile]) -> None:
        """Write down which files are set aside, where that changed."""
        now = tuple(sorted(files, key=lambda file: file.path))
        if now != self.set_aside():
            replace_json(self._fs, f"{self._folder}/set_aside.json", {"archive": self.archive, "files": [file.to_json() for file in now]})

    def mark_changed(self, files: Iterable[ArchivedFile]) -> None:
        """Have the next look survey files anew that changed since they were surveyed."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        marks = {file.path: SetAsideFile(file.path, file.topic, CHANGED, "changed since it was surveyed", now) for file in files}
        # Flows run side by side.
        with self._marking:
            self.write_set_aside([*(file for file in self.set_aside() if file.path not in marks), *marks.values()])

    def _surveyed(self, ledger: Ledger) -> dict[str, Replaced]:
        surveys = self.surveys(1, ledger.surveyed_through)
        return {file.path: Replaced(file.path, survey.number, file.size) for survey in surveys for file in survey.files}

    def _read(self, number: int) -> Survey | None:
        if number not in self._surveys and (document := read_json(self._fs, self._path(number))):
            self._surveys[number] = Survey.from_json(document)
        return self._surveys.get(number)

    def _path(self, number: int) -> str:
        return f"{self._folder}/surveys/{number:08d}.json"


@dataclass(frozen=True)
class FlowCheckpoint:
    """Where a flow stands after its last committed microbatch."""

    flow: str
    number: int = 0
    """Number of the last committed microbatch."""
    planned: dict[str, PlanPosition] = field(default_factory=dict)
    """By archive root: how far its surveys are applied."""
    applied_through: dict[str, Position] = field(default_factory=dict)
    """Highest merged position by Kafka partition."""
    truncated_through: dict[str, Position] = field(default_factory=dict)
    """By the source's table: position of the last applied truncate; older events of it are stale."""
    events: EventCounts = field(default_factory=EventCounts)
    """Sums since the flow began."""
    table: str | None = None
    """URI of the target table."""
    table_version: int | None = None
    held: dict[str, tuple[HeldFile, ...]] = field(default_factory=dict)
    """By archive root: files before ``planned`` that wait, wholly or in part, for missing offsets or a transaction."""
    offsets: dict[str, ArchivedOffsets] = field(default_factory=dict)
    """By archive root: Kafka offsets of the applied files."""
    reach: Reach = field(default_factory=Reach)
    """Where the applied events stand."""
    snapshot: Snapshot | None = None
    """The newest full snapshot of which reads were applied."""
    pending_snapshots: tuple[Snapshot, ...] = ()
    """Older full snapshots that are not proven to be whole yet."""
    replaced_by: Snapshot | None = None
    """The last full snapshot that removed the rows which it did not find."""
    epochs: Epochs = field(default_factory=Epochs)
    """Where epochs of the source's log begin."""
    unpaired_moves: int = 0
    """Rows that came from a key whose delete has not come yet."""
    tables: frozenset[str] = frozenset()
    """The source's tables that the applied events name."""
    committed_through: int | None = None
    """When the source committed the last of the applied events, in milliseconds since 1970; None where no event tells."""

    def plan(self, archive: str) -> tuple[PlanPosition, tuple[HeldFile, ...]]:
        """Return how far an archive's surveys are applied, and the files before that which wait."""
        return self.planned.get(archive, PlanPosition()), self.held.get(archive, ())

    def after(self, intent: Microbatch, report: BatchReport, table: str) -> FlowCheckpoint:
        """Return the checkpoint after one more committed microbatch."""
        applied = dict(self.applied_through)
        for partition, position in report.applied_through.items():
            applied[partition] = max(position, applied.get(partition, position))
        offsets = self.offsets.get(intent.archive, ArchivedOffsets())
        truncated = dict(self.truncated_through)
        for name, position in report.truncated_through.items():
            truncated[name] = max(position, truncated.get(name, position))
        times = [time for time in (self.committed_through, report.committed_through) if time is not None]
        return replace(
            self,
            number=intent.number,
            planned={**self.planned, intent.archive: intent.planned_through},
            applied_through=applied,
            truncated_through=truncated,
            reach=self.reach | report.reach,
            snapshot=report.snapshot or self.snapshot,
            pending_snapshots=report.pending_snapshots,
            replaced_by=report.replaced_by or self.replaced_by,
            epochs=report.epochs if report.epochs.begins else self.epochs,
            unpaired_moves=max(0, self.unpaired_moves + report.unpaired_moves),
            tables=self.tables | {shape.table for shape in intent.shapes if shape.table},
            committed_through=max(times, default=None),
            events=self.events + report.events,
            table=table,
            table_version=report.table_version if report.table_version is not None else self.table_version,
            held=_set(self.held, intent.archive, intent.held),
            offsets=_set(self.offsets, intent.archive, offsets.with_files(intent.offsets)) if intent.offsets else self.offsets,
        )

    def to_json(self) -> dict[str, Any]:
        """Return the checkpoint as plain JSON values."""
        return {
            "flow": self.flow,
            "number": self.number,
            "planned": {name: [plan.survey, plan.files] for name, plan in self.planned.items()},
            "applied_through": {name: position.to_json() for name, position in self.applied_through.items()},
            "truncated_through": {table: position.to_json() for table, position in self.truncated_through.items()},
            "reach": self.reach.to_json(),
            "snapshot": self.snapshot and self.snapshot.to_json(),
            "pending_snapshots": [snapshot.to_json() for snapshot in self.pending_snapshots],
            "replaced_by": self.replaced_by and self.replaced_by.to_json(),
            "epochs": self.epochs.to_json(),
            "unpaired_moves": self.unpaired_moves,
            "tables": sorted(self.tables),
            "committed_through": self.committed_through,
            "events": dict(vars(self.events)),
            "table": self.table,
            "table_version": self.table_version,
            "held": {name: [item.to_json() for item in files] for name, files in self.held.items()},
            "offsets": {name: offsets.to_json() for name, offsets in self.offsets.items()},
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FlowCheckpoint:
        """Read what :meth:`to_json` wrote."""
        return cls(
            document["flow"],
            document["number"],
            {name: PlanPosition(*plan) for name, plan in document["planned"].items()},
            {name: Position.from_json(parts) for name, parts in document["applied_through"].items()},
            {table: Position.from_json(parts) for table, parts in document["truncated_through"].items()},
            EventCounts(**document["events"]),
            document["table"],
            document["table_version"],
            {name: tuple(HeldFile.from_json(item) for item in files) for name, files in document.get("held", {}).items()},
            {name: ArchivedOffsets.from_json(offsets) for name, offsets in document.get("offsets", {}).items()},
            Reach.from_json(document["reach"]),
            Snapshot.from_json(document["snapshot"]) if document["snapshot"] else None,
            tuple(Snapshot.from_json(each) for each in document["pending_snapshots"]),
            Snapshot.from_json(document["replaced_by"]) if document["replaced_by"] else None,
            Epochs.from_json(document["epochs"]),
            document["unpaired_moves"],
            frozenset(document["tables"]),
            document.get("committed_through"),
        )


def _set(by_archive: dict[str, _Kept], archive: str, value: _Kept) -> dict[str, _Kept]:
    return {name: kept for name, kept in {**by_archive, archive: value}.items() if kept}


class FlowState:
    """The intents, commit markers and checkpoint of one flow in one lake."""

    def __init__(self, fs: FileSystem, lake_root: str, flow: str) -> None:
        self.flow = flow
        self._fs = fs
        self._folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/flows/{flow_folder(flow)}"

    def incarnation(self) -> str:
        """Return the name of this life of the flow's state, made when it begins.

        Part of the transaction identifier: microbatch 1 of a flow whose state was lost is not microbatch 1 of the one before.
        """
        path = f"{self._folder}/flow.json"
        while not (document := read_json(self._fs, path)):
            create_json(self._fs, path, {"flow": self.flow, "incarnation": uuid.uuid4().hex[:12]})
        return str(document["incarnation"])

    def checkpoint(self) -> FlowCheckpoint:
        """Return the checkpoint, caught up with commit markers that a crash kept out of it."""
        path = f"{self._folder}/checkpoint.json"
        document = read_json(self._fs, path)
        try:
            checkpoint = FlowCheckpoint.from_json(document) if document else FlowCheckpoint(self.flow)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise StateUnreadableError(
                f"State file {path} is no checkpoint: {type(error).__name__} {error}.",
                next_step="Remove it; it is rebuilt from the commit markers.",
            ) from error
        behind = False
        while commit := read_json(self._fs, self._commit_path(checkpoint.number + 1)):
            intent = self.intent(checkpoint.number + 1)
            if intent is None:
                break
            checkpoint, behind = checkpoint.after(intent, BatchReport.from_json(commit["report"]), commit["table"]), True
        if behind:
            replace_json(self._fs, f"{self._folder}/checkpoint.json", checkpoint.to_json())
        return checkpoint

    def intent(self, number: int) -> Microbatch | None:
        """Return what a microbatch owns, None where it was not planned."""
        document = read_json(self._fs, self._intent_path(number))
        return Microbatch.from_json(document) if document else None

    def write_intent(self, microbatch: Microbatch) -> bool:
        """Write a microbatch down before anything is done for it; False when another run planned that number first."""
        return create_json(self._fs, self._intent_path(microbatch.number), microbatch.to_json())

    def withdraw(self, microbatch: Microbatch) -> None:
        """Take back what a microbatch owns, of which nothing was merged: the next ones own it. Its number is used up."""
        planned, held = self.checkpoint().plan(microbatch.archive)
        if self.report(microbatch.number) is None:
            nothing = replace(microbatch, files=(), planned_through=planned, shapes=(), offsets=(), held=held, parts={})
            replace_json(self._fs, self._intent_path(microbatch.number), nothing.to_json())

    def write_commit(self, report: BatchReport, table: str) -> None:
        """Write down that a microbatch is done, and what it did."""
        now = datetime.now(timezone.utc).isoformat()
        replace_json(self._fs, self._commit_path(report.microbatch), {"table": table, "committed_at": now, "report": report.to_json()})

    def committed_at(self, number: int) -> datetime | None:
        """Return when a microbatch was done, None where nothing tells it; a marker that was rebuilt tells a later time."""
        document = read_json(self._fs, self._commit_path(number)) or {}
        return datetime.fromisoformat(document["committed_at"]) if document.get("committed_at") else None

    def report(self, number: int) -> BatchReport | None:
        """Return what a committed microbatch did."""
        document = read_json(self._fs, self._commit_path(number))
        return BatchReport.from_json(document["report"]) if document else None

    def _intent_path(self, number: int) -> str:
        return f"{self._folder}/intents/{number:08d}.json"

    def _commit_path(self, number: int) -> str:
        return f"{self._folder}/commits/{number:08d}.json"


def flows_in(fs: FileSystem, lake_root: str) -> list[str]:
    """Return the names of the flows that a lake has state of."""
    folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/flows"
    if not fs.exists(folder):
        return []
    return sorted(unquote(str(path).rstrip("/").rsplit("/", 1)[-1]) for path in fs.ls(folder, detail=False))


def archives_in(fs: FileSystem, lake_root: str) -> list[ArchiveState]:
    """Return the archives that a lake was filled from."""
    folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/archives"
    if not fs.exists(folder):
        return []
    found = []
    for path in fs.ls(folder, detail=False):
        # An archive of which no file could be read has no survey.
        names = (f"surveys/{1:08d}.json", "set_aside.json")
        document = next((told for name in names if (told := read_json(fs, f"{str(path).rstrip('/')}/{name}"))), None)
        found += [ArchiveState(fs, lake_root, document["archive"])] if document else []
    return found
