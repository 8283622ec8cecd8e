"""The lake's state folder: surveys of archives, and per flow its intents, commit markers and checkpoint.

    <lake>/_cdc/archives/<id>/surveys/<n>.json   what the files hold          created once, never changed
    <lake>/_cdc/archives/<id>/ledger.json        which files are surveyed     derived from the surveys
    <lake>/_cdc/archives/<id>/looked.json        what looks need not list     written by runs and sensors, of use only to be fast
    <lake>/_cdc/archives/<id>/transactions.json  which are not whole          derived from the surveys' files
    <lake>/_cdc/archives/<id>/waiting.json       files that wait for them     written by each run, of use until the next survey
    <lake>/_cdc/flows/<flow>/flow.json           this life of the flow        created once, never changed
    <lake>/_cdc/flows/<flow>/intents/<n>.json    what microbatch n owns       created once, never changed
    <lake>/_cdc/flows/<flow>/commits/<n>.json    what microbatch n did        derived from the Delta commit
    <lake>/_cdc/flows/<flow>/checkpoint.json     where the flow stands        derived from the commits
    <lake>/_cdc/flows/<flow>/quarantine          Delta table of rejects
    <lake>/_cdc/flows/<flow>/delete_markers      Delta table of deleted keys
    <lake>/_cdc/flows/<flow>/expired_markers     Delta table of those that maintenance put away
    <lake>/_cdc/flows/<flow>/events              Delta table of all events, of flows that keep every version

Readable without Spark, so the sensors and the UI ask it too. What is derived is rebuilt when it is lost or behind:
reading it starts at the recorded number and probes for the next one, so its cost does not grow with the flow's age.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any, TypeVar
from urllib.parse import unquote

from airflow_cdc.model.archive import ArchivedFile
from airflow_cdc.model.completeness import ArchivedOffsets
from airflow_cdc.model.cut import WaitingFiles
from airflow_cdc.model.errors import StateLostError, StateUnreadableError
from airflow_cdc.model.files import FileSystem, create_json, name_digest, read_json, replace_json, short_hash
from airflow_cdc.model.ledger import Ledger, folder_and_name
from airflow_cdc.model.looked import Looked
from airflow_cdc.model.microbatch import HeldFile, Microbatch, PlanPosition
from airflow_cdc.model.places import STATE_FOLDER, flow_folder
from airflow_cdc.model.position import Position
from airflow_cdc.model.reach import Reach
from airflow_cdc.model.report import BatchReport, EventCounts
from airflow_cdc.model.snapshot import Snapshot
from airflow_cdc.model.survey import Survey
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

    def ledger(self) -> Ledger:
        """Return the ledger, caught up with surveys that a crash kept out of it."""
        document = read_json(self._fs, f"{self._folder}/ledger.json")
        # One that an older version wrote is rebuilt from the surveys, as a lost one is.
        ledger = Ledger.from_json(document) if document and "digests" in document else Ledger()
        behind = False
        while survey := self._read(ledger.surveyed_through + 1):
            ledger, behind = ledger.with_survey(survey), True
        if behind:
            replace_json(self._fs, f"{self._folder}/ledger.json", {"archive": self.archive, **ledger.to_json()})
        return ledger

    def unsurveyed(self, files: Iterable[ArchivedFile], ledger: Ledger) -> list[ArchivedFile]:
        """Return the files that no survey holds, in their order."""
        by_folder: dict[str, list[ArchivedFile]] = {}
        for file in files:
            by_folder.setdefault(folder_and_name(file.path)[0], []).append(file)
        new: list[ArchivedFile] = []
        surveyed: set[str] | None = None
        for folder, members in by_folder.items():
            seen = ledger.folders.get(folder)
            below = [file for file in members if seen and folder_and_name(file.path)[1] <= seen.through]
            digest = sum(name_digest(folder_and_name(file.path)[1]) for file in below) % 2**64
            if seen is None or (len(below), digest) == (seen.count, seen.digest):
                new += members[len(below) :] if seen else members
            else:
                # A file came late into the middle of the folder, or one was removed: only the full list can tell.
                surveyed = self._surveyed_paths(ledger) if surveyed is None else surveyed
                new += [file for file in members if file.path not in surveyed]
        return sorted(new)

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
                    next_step="Restore it; or remove the lake's whole _cdc folder and its tables, and run again: all is applied anew.",
                )
            yield survey

    def surveyed_at(self, number: int) -> datetime:
        """Return when a survey was written, or copied here."""
        return self._fs.modified(self._path(number))

    def pending_surveys(self, checkpoint: FlowCheckpoint, ledger: Ledger) -> Iterator[Survey]:
        """Yield the surveys that may have files which no committed microbatch of a flow owns."""
        planned, held = checkpoint.plan(self.archive)
        first = max(planned.survey, ledger.topics.get(checkpoint.flow, 1))
        for number in sorted({item.survey for item in held if item.survey < first}):
            yield from self.surveys(number, number)
        yield from self.surveys(first, ledger.latest.get(checkpoint.flow, 0))

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

    def _surveyed_paths(self, ledger: Ledger) -> set[str]:
        return {file.path for survey in self.surveys(1, ledger.surveyed_through) for file in survey.files}

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
    truncated_through: Position | None = None
    """Position of the last applied truncate; older events are stale."""
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
    unpaired_moves: int = 0
    """Rows that came from a key whose delete has not come yet."""
    committed_through: int | None = None
    """When the source committed the last of the applied events, in milliseconds since 1970; None where no event tells."""
    surveyed: dict[str, str] = field(default_factory=dict)
    """By archive root: digest of the last survey that ``planned`` reaches into."""

    def plan(self, archive: str) -> tuple[PlanPosition, tuple[HeldFile, ...]]:
        """Return how far an archive's surveys are applied, and the files before that which wait."""
        return self.planned.get(archive, PlanPosition()), self.held.get(archive, ())

    def after(self, intent: Microbatch, report: BatchReport, table: str) -> FlowCheckpoint:
        """Return the checkpoint after one more committed microbatch."""
        applied = dict(self.applied_through)
        for partition, position in report.applied_through.items():
            applied[partition] = max(position, applied.get(partition, position))
        offsets = self.offsets.get(intent.archive, ArchivedOffsets())
        truncates = [position for position in (self.truncated_through, report.truncated_through) if position]
        times = [time for time in (self.committed_through, report.committed_through) if time is not None]
        return replace(
            self,
            number=intent.number,
            planned={**self.planned, intent.archive: intent.planned_through},
            applied_through=applied,
            truncated_through=max(truncates, default=None),
            reach=self.reach | report.reach,
            snapshot=report.snapshot or self.snapshot,
            unpaired_moves=max(0, self.unpaired_moves + report.unpaired_moves),
            committed_through=max(times, default=None),
            events=self.events + report.events,
            table=table,
            table_version=report.table_version if report.table_version is not None else self.table_version,
            held=_set(self.held, intent.archive, intent.held),
            offsets=_set(self.offsets, intent.archive, offsets.with_files(intent.offsets)) if intent.offsets else self.offsets,
            surveyed=_set(self.surveyed, intent.archive, intent.surveyed or ""),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the checkpoint as plain JSON values."""
        return {
            "flow": self.flow,
            "number": self.number,
            "planned": {name: [plan.survey, plan.files] for name, plan in self.planned.items()},
            "applied_through": {name: position.to_json() for name, position in self.applied_through.items()},
            "truncated_through": self.truncated_through and self.truncated_through.to_json(),
            "reach": self.reach.to_json(),
            "snapshot": self.snapshot and self.snapshot.to_json(),
            "unpaired_moves": self.unpaired_moves,
            "committed_through": self.committed_through,
            "events": dict(vars(self.events)),
            "table": self.table,
            "table_version": self.table_version,
            "held": {name: [item.to_json() for item in files] for name, files in self.held.items()},
            "offsets": {name: offsets.to_json() for name, offsets in self.offsets.items()},
            "surveyed": self.surveyed,
        }

    @classmethod
    def from_json(cls, document: dict[str, Any]) -> FlowCheckpoint:
        """Read what :meth:`to_json` wrote."""
        return cls(
            document["flow"],
            document["number"],
            {name: PlanPosition(*plan) for name, plan in document["planned"].items()},
            {name: Position.from_json(parts) for name, parts in document["applied_through"].items()},
            Position.from_json(parts) if (parts := document["truncated_through"]) else None,
            EventCounts(**document["events"]),
            document["table"],
            document["table_version"],
            {name: tuple(HeldFile.from_json(item) for item in files) for name, files in document.get("held", {}).items()},
            {name: ArchivedOffsets.from_json(offsets) for name, offsets in document.get("offsets", {}).items()},
            Reach.from_json(document["reach"]),
            Snapshot.from_json(document["snapshot"]) if document["snapshot"] else None,
            document["unpaired_moves"],
            document.get("committed_through"),
            document.get("surveyed", {}),
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
            if intent is None or commit.get("intent", intent.digest) != intent.digest:
                # Its number would be planned anew, and its marker then count other files as done.
                raise StateLostError(
                    f"Flow {self.flow}: microbatch {checkpoint.number + 1} has a commit marker ({self._commit_path(checkpoint.number + 1)})"
                    f" and {'no intent' if intent is None else 'another intent'}: which files it applied is not known.",
                    next_step="Restore the flow's state folder whole; or rebuild the flow.",
                )
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

    def write_commit(self, report: BatchReport, table: str, intent: str | None = None) -> None:
        """Write down that a microbatch is done, and what it did.

        :param intent: digest of its intent.
        """
        now = datetime.now(timezone.utc).isoformat()
        marker = {"table": table, "committed_at": now, "report": report.to_json()}
        replace_json(self._fs, self._commit_path(report.microbatch), marker | ({"intent": intent} if intent else {}))

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
    documents = (read_json(fs, f"{str(path).rstrip('/')}/surveys/{1:08d}.json") for path in fs.ls(folder, detail=False))
    return [ArchiveState(fs, lake_root, first["archive"]) for first in documents if first]
