"""The lake's state folder: surveys of archives, and per flow its intents, commit markers and checkpoint.

    <lake>/_cdc/archives/<id>/surveys/<n>.json   what the files hold          created once, never changed
    <lake>/_cdc/archives/<id>/ledger.json        which files are surveyed     derived from the surveys
    <lake>/_cdc/archives/<id>/looked.json        what looks need not list     written by runs and sensors, a cache
    <lake>/_cdc/archives/<id>/transactions.json  which are not whole          derived from the surveys' files
    <lake>/_cdc/archives/<id>/waiting.json       files that wait for them     written by each run, of use until the next survey
    <lake>/_cdc/archives/<id>/schemas/<flow>.json  schemas in its events  derived from the surveys
    <lake>/_cdc/archives/<id>/set_aside.json     files that cannot be read    written by runs; lost, the next run tries them again
    <lake>/_cdc/schemas/<flow>.json              its schema, handed over      see model/flow/source_schema.py
    <lake>/_cdc/leases/<flow>/<n>.json           which run may write it       see model/state/lease.py
    <lake>/_cdc/flows/<flow>/flow.json           this life of the flow        created once, never changed
    <lake>/_cdc/flows/<flow>/intents/<n>.json    what microbatch n owns       created once, never changed
    <lake>/_cdc/flows/<flow>/commits/<n>.json    what microbatch n did        derived from the Delta commit
    <lake>/_cdc/flows/<flow>/checkpoint.json     where the flow stands        derived from the commits
    <lake>/_cdc/flows/<flow>/quarantine          Delta table of rejects
    <lake>/_cdc/flows/<flow>/delete_markers      Delta table of deleted keys
    <lake>/_cdc/flows/<flow>/expired_markers     Delta table of those that maintenance put away
    <lake>/_cdc/flows/<flow>/moves               Delta table of key changes without all of the row's values
    <lake>/_cdc/flows/<flow>/events              Delta table of all events, of flows that keep every version

Readable without Spark, so the sensors and the UI ask it too. What is derived is rebuilt when it is lost or behind:
reading it starts at the recorded number and probes for the next one, so its cost does not grow with the flow's age.
Each document carries the format of its kind (:mod:`airflow_cdc.model.state_kind`).
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property
from itertools import chain
from threading import Lock
from typing import Any, TypeVar
from urllib.parse import unquote

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.cut import WaitingFiles
from airflow_cdc.model.archive.looked import Looked
from airflow_cdc.model.archive.set_aside import CHANGED, SetAsideFile, SetAsideFiles
from airflow_cdc.model.archive.survey import Replaced, Survey
from airflow_cdc.model.archive.transactions import TransactionLedger
from airflow_cdc.model.errors import StateLostError, StateUnreadableError
from airflow_cdc.model.files import FileSystem, folds_case, name_digest, read_json
from airflow_cdc.model.flow.new_topics import HeldTopic, HeldTopics
from airflow_cdc.model.places import STATE_FOLDER, archive_folder, flow_folder, folded_folder
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.state.archived_schema import ArchivedSchema, archived_schema_from_json
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.flow_documents import CommitMarker, FlowIdentity
from airflow_cdc.model.state.ledger import Ledger, folder_and_name, ledger_from_json
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.model.state_kind import (
    ARCHIVED_SCHEMA,
    CHECKPOINT,
    COMMIT_MARKER,
    FLOW,
    HELD_TOPICS,
    INTENT,
    LEDGER,
    LOOKED,
    SET_ASIDE,
    SURVEY,
    TRANSACTIONS,
    WAITING,
    StateKind,
)

_Kept = TypeVar("_Kept")


class ArchiveState:
    """The surveys of one archive, as one lake records them."""

    def __init__(self, fs: FileSystem, lake_root: str, archive: str) -> None:
        # A local folder has one state, whether given as a path or as a file URL.
        self.archive = re.sub(r"^file:/+", "/", archive).rstrip("/")
        self._fs = fs
        self._folder = f"{lake_root.rstrip('/')}/{archive_folder(self.archive)}"
        # Surveys never change, and every flow reads the same ones.
        self._surveys: dict[int, Survey] = {}
        self._marking = Lock()

    def ledger(self, *, write: bool = True) -> Ledger:
        """Return the ledger, caught up with surveys that a crash kept from being entered.

        :param write: whether to record what it caught up with; a reader without the right to write sets it to False.
        """
        ledger = self._read_state(LEDGER, "ledger.json", ledger_from_json) or Ledger()
        behind = False
        while survey := self._read(ledger.surveyed_through + 1):
            ledger, behind = ledger.with_survey(survey), True
        if behind and write:
            self._write_state(LEDGER, "ledger.json", {"archive": self.archive, **ledger.to_json()})
        return ledger

    def unsurveyed(self, files: Iterable[ArchivedFile], ledger: Ledger) -> list[ArchivedFile]:
        """Return the files that no survey holds in their present form, in their order, without those that are set aside."""
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
                # A file was added in the middle of the folder, changed or removed: only the full list shows which.
                surveyed = self._surveyed(ledger) if surveyed is None else surveyed
                new += [file for file in members if file.path not in surveyed or surveyed[file.path].size != file.size]
        return sorted(new)

    def replaced(self, files: Iterable[ArchivedFile], ledger: Ledger) -> tuple[Replaced, ...]:
        """Return the survey entries of those given files that changed since they were surveyed."""
        old = {file.path for file in files if ledger.may_know(file.path)}
        known = self._surveyed(ledger) if old else {}
        return tuple(known[path] for path in sorted(old & known.keys()))

    def add(self, survey: Survey) -> bool:
        """Record a survey; False when another run recorded that number first."""
        return SURVEY.create(self._fs, self._path(survey.number), survey.to_json())

    def surveys(self, first: int, last: int) -> Iterator[Survey]:
        """Yield the surveys ``first`` through ``last``.

        :raises StateUnreadableError: when one of them is gone.
        """
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
        """Yield the surveys that may hold pending files of a flow."""
        planned, held = checkpoint.plan(self.archive)
        first = max(planned.survey, ledger.topics.get(checkpoint.flow, 1))
        earlier = sorted({item.survey for item in held if item.survey < first})
        found = (survey for number in earlier for survey in self.surveys(number, number))
        for survey in chain(found, self.surveys(first, ledger.latest.get(checkpoint.flow, 0))):
            yield replace(survey, void=ledger.void[survey.number]) if survey.number in ledger.void else survey

    def looked(self) -> Looked:
        """Return what earlier looks recorded; empty where that is lost."""
        return self._read_state(LOOKED, "looked.json", Looked.from_json) or Looked()

    def write_looked(self, looked: Looked) -> None:
        """Record a look, once all its data files are surveyed."""
        self._write_state(LOOKED, "looked.json", looked.to_json())

    def archived_schema(self, topic: str) -> ArchivedSchema | None:
        """Return the schema of a topic's columns from the surveys; None where none is recorded yet."""
        found = self._read_state(ARCHIVED_SCHEMA, f"schemas/{flow_folder(topic)}.json", archived_schema_from_json)
        # Case-insensitive stores have one file for two topics.
        return found if found and found.topic == topic else None

    def write_archived_schema(self, schema: ArchivedSchema) -> None:
        """Record the schema of a topic's columns from the surveys."""
        self._write_state(ARCHIVED_SCHEMA, f"schemas/{flow_folder(schema.topic)}.json", schema.to_json())

    def transactions(self) -> TransactionLedger:
        """Return the incomplete transactions, as far as runs have looked."""
        return self._read_state(TRANSACTIONS, "transactions.json", TransactionLedger.from_json) or TransactionLedger()

    def write_transactions(self, ledger: TransactionLedger) -> None:
        """Record the transactions, and through which survey they were read."""
        self._write_state(TRANSACTIONS, "transactions.json", ledger.to_json())

    def waiting(self, ledger: Ledger) -> WaitingFiles:
        """Return the files that wait for transactions; none after a newer survey, which may have completed them."""
        found = self._read_state(WAITING, "waiting.json", WaitingFiles.from_json) or WaitingFiles()
        return found if found.surveyed_through == ledger.surveyed_through else WaitingFiles(ledger.surveyed_through)

    def write_waiting(self, files: WaitingFiles) -> None:
        """Record the files that wait for transactions."""
        self._write_state(WAITING, "waiting.json", files.to_json())

    def set_aside(self) -> tuple[SetAsideFile, ...]:
        """Return the unreadable files, which no survey holds."""
        found = self._read_state(SET_ASIDE, "set_aside.json", SetAsideFiles.from_json)
        return found.files if found else ()

    def write_set_aside(self, files: Iterable[SetAsideFile]) -> None:
        """Record the files that are set aside, if they changed."""
        now = tuple(sorted(files, key=lambda file: file.path))
        if now != self.set_aside():
            self._write_state(SET_ASIDE, "set_aside.json", SetAsideFiles(self.archive, now).to_json())

    def held_topics(self) -> dict[str, HeldTopic]:
        """Return the topics that are no flows, by name, as the last run recorded them."""
        found = self._read_state(HELD_TOPICS, "held_topics.json", HeldTopics.from_json)
        return {item.topic: item for item in found.topics} if found else {}

    def write_held_topics(self, topics: Mapping[str, HeldTopic]) -> None:
        """Record the topics that are no flows, if they changed."""
        if topics != self.held_topics():
            listed = tuple(topics[name] for name in sorted(topics))
            self._write_state(HELD_TOPICS, "held_topics.json", HeldTopics(self.archive, listed).to_json())

    def flows(self, ledger: Ledger) -> list[str]:
        """Return the topics that are flows: those with rows of a table, except held ones."""
        held = self.held_topics()
        return [topic for topic in ledger.tables() if topic not in held]

    def mark_changed(self, files: Iterable[ArchivedFile]) -> None:
        """Mark files that changed since their survey, so that the next look surveys them again."""
        now = datetime.now(timezone.utc).isoformat(timespec="seconds")
        marks = {file.path: SetAsideFile(file.path, file.topic, CHANGED, "changed since it was surveyed", now) for file in files}
        # Flows run concurrently.
        with self._marking:
            self.write_set_aside([*(file for file in self.set_aside() if file.path not in marks), *marks.values()])

    def _surveyed(self, ledger: Ledger) -> dict[str, Replaced]:
        surveys = self.surveys(1, ledger.surveyed_through)
        return {file.path: Replaced(file.path, survey.number, file.size) for survey in surveys for file in survey.files}

    def _read(self, number: int) -> Survey | None:
        if number not in self._surveys and (found := SURVEY.read(self._fs, self._path(number), Survey.from_json, owner=self._owner)):
            self._surveys[number] = found
        return self._surveys.get(number)

    def _read_state(self, kind: StateKind, name: str, make: Callable[[Mapping[str, Any]], _Kept]) -> _Kept | None:
        return kind.read(self._fs, f"{self._folder}/{name}", make, owner=self._owner)

    def _write_state(self, kind: StateKind, name: str, document: Mapping[str, Any]) -> None:
        kind.replace(self._fs, f"{self._folder}/{name}", document)

    @property
    def _owner(self) -> str:
        return f"archive {self.archive}"

    def _path(self, number: int) -> str:
        return f"{self._folder}/surveys/{number:08d}.json"


class FlowState:
    """The intents, commit markers and checkpoint of one flow in one lake."""

    def __init__(self, fs: FileSystem, lake_root: str, flow: str) -> None:
        self.flow = flow
        self._fs = fs
        self._state = f"{lake_root.rstrip('/')}/{STATE_FOLDER}"

    @cached_property
    def folder(self) -> str:
        """Name of the flow's folder, unique also where the store's names are case-insensitive."""
        plain = flow_folder(self.flow)
        if not folds_case(self._fs, self._state):
            return plain
        found = self._read_state(FLOW, f"{self._state}/flows/{plain}/flow.json", FlowIdentity.from_json)
        owner = found.flow if found else None
        return plain if owner == self.flow else folded_folder(self.flow, is_taken=owner is not None)

    @property
    def _folder(self) -> str:
        return f"{self._state}/flows/{self.folder}"

    def incarnation(self) -> str:
        """Return the identifier of this life of the flow's state, created on first use.

        It is part of Delta's transaction identifier: microbatch 1 of a flow whose state was lost is not microbatch 1 of the flow before.
        """
        path = f"{self._folder}/flow.json"
        while not (found := self._read_state(FLOW, path, FlowIdentity.from_json)):
            FLOW.create(self._fs, path, FlowIdentity(self.flow, uuid.uuid4().hex[:12]).to_json())
        return found.incarnation

    def checkpoint(self, *, write: bool = True) -> FlowCheckpoint:
        """Return the checkpoint, caught up with commit markers that a crash kept from being entered.

        :param write: as for :meth:`ArchiveState.ledger`.
        :raises StateLostError: when the intent of a committed microbatch is missing, or another one than its marker records.
        """
        path = f"{self._folder}/checkpoint.json"
        checkpoint, behind = self._read_state(CHECKPOINT, path, FlowCheckpoint.from_json) or FlowCheckpoint(self.flow), False
        while commit := self.marker(checkpoint.number + 1):
            intent = self.intent(checkpoint.number + 1)
            if intent is None or (commit.intent or intent.digest) != intent.digest:
                # The number would be planned again, and the marker then count other files as done.
                raise StateLostError(
                    f"Flow {self.flow}: microbatch {checkpoint.number + 1} has a commit marker ({self._commit_path(checkpoint.number + 1)})"
                    f" and {'no intent' if intent is None else 'another intent'}: which files it applied is not known.",
                    next_step="Restore the flow's state folder whole; or rebuild the flow.",
                )
            checkpoint, behind = checkpoint.after(intent, commit.report, commit.table), True
        if behind and write:
            CHECKPOINT.replace(self._fs, path, checkpoint.to_json())
        return checkpoint

    def intent(self, number: int) -> Microbatch | None:
        """Return a microbatch's intent; None where it was not planned."""
        return self._read_state(INTENT, self._intent_path(number), Microbatch.from_json)

    def write_intent(self, microbatch: Microbatch) -> bool:
        """Record a microbatch's intent before any effect; False when another run planned that number first."""
        return INTENT.create(self._fs, self._intent_path(microbatch.number), microbatch.to_json())

    def withdraw(self, microbatch: Microbatch) -> None:
        """Withdraw the intent of a microbatch that merged nothing: later microbatches own its files. Its number stays used."""
        planned, held = self.checkpoint().plan(microbatch.archive)
        if self.report(microbatch.number) is None:
            surveyed = self.checkpoint().surveyed.get(microbatch.archive)
            nothing = replace(
                microbatch, files=(), planned_through=planned, shapes=(), offsets=(), held=held, parts={}, lives={}, surveyed=surveyed
            )
            INTENT.replace(self._fs, self._intent_path(microbatch.number), nothing.to_json())

    def write_commit(self, report: BatchReport, table: str, intent: str | None = None) -> None:
        """Record a microbatch as done, with its report.

        :param intent: digest of its intent.
        """
        now = datetime.now(timezone.utc).isoformat()
        COMMIT_MARKER.replace(self._fs, self._commit_path(report.microbatch), CommitMarker(table, report, now, intent).to_json())

    def committed_at(self, number: int) -> datetime | None:
        """Return when a microbatch was done; None where that is not recorded. A rebuilt marker carries a later time."""
        found = self.marker(number)
        return datetime.fromisoformat(found.committed_at) if found and found.committed_at else None

    def report(self, number: int) -> BatchReport | None:
        """Return the report of a committed microbatch; None where it has no marker."""
        found = self.marker(number)
        return found.report if found else None

    def had_table_before(self, number: int) -> bool:
        """Return whether a microbatch before ``number`` made the table or merged into it."""
        reports = (self.report(earlier) for earlier in range(1, number))
        return any(report is not None and report.table_version is not None for report in reports)

    def marker(self, number: int) -> CommitMarker | None:
        """Return the commit marker of a microbatch; None where it is not committed."""
        return self._read_state(COMMIT_MARKER, self._commit_path(number), CommitMarker.from_json)

    def _read_state(self, kind: StateKind, path: str, make: Callable[[Mapping[str, Any]], _Kept]) -> _Kept | None:
        return kind.read(self._fs, path, make, owner=f"flow {self.flow}")

    def _intent_path(self, number: int) -> str:
        return f"{self._folder}/intents/{number:08d}.json"

    def _commit_path(self, number: int) -> str:
        return f"{self._folder}/commits/{number:08d}.json"


def flows_in(fs: FileSystem, lake_root: str) -> list[str]:
    """Return the flows that have state in a lake, by the names of their folders."""
    folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/flows"
    if not fs.exists(folder):
        return []
    return sorted(unquote(str(path).rstrip("/").rsplit("/", 1)[-1]) for path in fs.ls(folder, detail=False))


def archives_in(fs: FileSystem, lake_root: str) -> list[ArchiveState]:
    """Return the archives that have state in a lake."""
    folder = f"{lake_root.rstrip('/')}/{STATE_FOLDER}/archives"
    if not fs.exists(folder):
        return []
    found = []
    for path in fs.ls(folder, detail=False):
        # An archive without any readable file has no survey.
        names = (f"surveys/{1:08d}.json", "set_aside.json")
        document = next((held for name in names if (held := read_json(fs, f"{str(path).rstrip('/')}/{name}"))), None)
        found += [ArchiveState(fs, lake_root, document["archive"])] if document else []
    return found
