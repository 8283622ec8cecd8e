"""Golden lakes: every kind of state document, as each version of the package wrote it.

    before_formats/     the versions before documents carried a format (commit 4c39869)
    0.1.0/              this version: `python -m tests.unit.model.state.golden` writes it anew

A lake of an earlier version is never written again: it proves that what users have is read.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from unittest import mock
from uuid import UUID

import airflow_cdc
from airflow_cdc.model import state_kind as kinds
from airflow_cdc.model.flow.source_schema import SourceSchemas
from airflow_cdc.model.places import archive_folder
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.maintenance import MaintenanceReport
from airflow_cdc.model.report.reprocessing import ReprocessReport
from airflow_cdc.model.report.retyping import RetypeNote, RetypeReport
from airflow_cdc.model.report.verification import VerifyReport
from airflow_cdc.model.state import lake as lake_module
from airflow_cdc.model.state import lease as lease_module
from airflow_cdc.model.state.announced_versions import AnnouncedVersions
from airflow_cdc.model.state.commit_metadata import metadata_of, metadata_text, report_in
from airflow_cdc.model.state.comparison import FlowComparisons
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.lease import LeaseFile, Leases
from airflow_cdc.model.state.rebuild_note import RebuildNote
from airflow_cdc.model.state_kind import StateKind
from tests.support.surveys import FS
from tests.unit.model.state import samples

FOLDER = Path(__file__).parent
NEWEST = FOLDER / airflow_cdc.__version__
LAKES = sorted(path for path in FOLDER.iterdir() if path.is_dir() and not path.name.startswith("_"))
COMMIT = "commit_metadata.json"
_REPORTS = {
    "apply": ApplyReport,
    "maintain": MaintenanceReport,
    "reprocess": ReprocessReport,
    "retype": RetypeReport,
    "verify": VerifyReport,
}
_ABSENT_FROM = {"retype": ("before_formats",)}


@dataclass(frozen=True)
class Golden:
    """Documents of one kind in a golden lake."""

    kind: StateKind
    path: str
    """Glob of the files."""
    read: Callable[[str], Any]
    """Reads them through the package, given the lake's root."""
    means: Any
    """What they mean."""
    absent_from: tuple[str, ...] = ()
    """Golden lakes of versions that wrote no such documents."""

    def __str__(self) -> str:
        return self.path.replace("/", " ")


def _archive(root: str) -> ArchiveState:
    return ArchiveState(FS, root, samples.ARCHIVE)


def _flow(root: str) -> FlowState:
    return FlowState(FS, root, samples.FLOW)


def _commit(root: str) -> Any:
    metadata = metadata_of(Path(root, COMMIT).read_text(encoding="utf-8"), table=samples.TABLE, version=17)
    members = {name: metadata[name] for name in samples.COMMIT_METADATA}
    return members, report_in(metadata, table=samples.TABLE, version=17)


def _markers(root: str) -> Any:
    flow = _flow(root)
    return [flow.report(1), flow.report(2)], flow.committed_at(1)


def _retyped(root: str) -> Any:
    note = RetypeNote(FS, root, samples.FLOW)
    return note.settings, note.replaces


def _file(kind: StateKind, path: str, make: Callable[[Mapping[str, Any]], Any]) -> Callable[[str], Any]:
    return lambda root: kind.read(FS, f"{root}/{path}", make, owner="somebody")


_ARCHIVE = "_cdc/archives/*"
_FLOW = f"_cdc/flows/{samples.FLOW}"
_LEASE = f"_cdc/leases/{samples.FLOW}/00000001.json"
_TASK = "_cdc/told/0123456789ab.json"
DOCUMENTS = (
    Golden(kinds.SURVEY, f"{_ARCHIVE}/surveys/*.json", lambda root: tuple(_archive(root).surveys(1, 2)), samples.SURVEYS),
    Golden(kinds.LEDGER, f"{_ARCHIVE}/ledger.json", lambda root: _archive(root).ledger(), samples.LEDGER),
    Golden(kinds.LOOKED, f"{_ARCHIVE}/looked.json", lambda root: _archive(root).looked(), samples.LOOKED),
    Golden(kinds.TRANSACTIONS, f"{_ARCHIVE}/transactions.json", lambda root: _archive(root).transactions(), samples.TRANSACTIONS),
    Golden(kinds.WAITING, f"{_ARCHIVE}/waiting.json", lambda root: _archive(root).waiting(samples.LEDGER), samples.WAITING),
    Golden(kinds.SET_ASIDE, f"{_ARCHIVE}/set_aside.json", lambda root: _archive(root).set_aside(), samples.SET_ASIDE),
    Golden(kinds.HELD_TOPICS, f"{_ARCHIVE}/held_topics.json", lambda root: _archive(root).held_topics(), samples.HELD_TOPICS),
    Golden(
        kinds.ARCHIVED_SCHEMA, f"{_ARCHIVE}/schemas/*.json", lambda root: _archive(root).archived_schema(samples.FLOW), samples.ARCHIVED
    ),
    Golden(kinds.FLOW, f"{_FLOW}/flow.json", lambda root: _flow(root).incarnation(), samples.INCARNATION),
    Golden(kinds.INTENT, f"{_FLOW}/intents/*.json", lambda root: (_flow(root).intent(1), _flow(root).intent(2)), samples.INTENTS),
    Golden(
        kinds.COMMIT_MARKER,
        f"{_FLOW}/commits/*.json",
        _markers,
        ([samples.REPORT, samples.DECISION_REPORT], datetime.fromisoformat(samples.WRITTEN_AT)),
    ),
    Golden(kinds.CHECKPOINT, f"{_FLOW}/checkpoint.json", lambda root: _flow(root).checkpoint(), samples.CHECKPOINT),
    Golden(kinds.COMMIT_METADATA, COMMIT, _commit, (samples.COMMIT_METADATA, samples.REPORT)),
    Golden(kinds.SOURCE_SCHEMA, "_cdc/schemas/*.json", lambda root: SourceSchemas(FS, root).of(samples.FLOW), samples.SCHEMA),
    Golden(kinds.LEASE, _LEASE, _file(kinds.LEASE, _LEASE, LeaseFile.from_json), samples.LEASE),
    Golden(kinds.REBUILD_NOTE, "_cdc/rebuilt/*.json", lambda root: RebuildNote.read(FS, root, samples.FLOW), samples.REBUILT),
    Golden(kinds.RETYPE_NOTE, "_cdc/retypes/*.json", _retyped, ("0123456789ab", True)),
    Golden(kinds.ANNOUNCED_VERSIONS, _TASK, _file(kinds.ANNOUNCED_VERSIONS, _TASK, AnnouncedVersions.from_json), samples.ANNOUNCED),
    Golden(
        kinds.COMPARISON,
        "_cdc/compared/*.json",
        lambda root: FlowComparisons(FS, root).of(samples.FLOW, _flow(root).folder),
        samples.COMPARED,
        ("before_formats",),
    ),
    *(
        Golden(kinds.JOB_REPORT, path, _file(kinds.JOB_REPORT, path, report.from_json), samples.REPORTS[name], _ABSENT_FROM.get(name, ()))
        for name, report in _REPORTS.items()
        for path in [f"_cdc/reports/{name}.json"]
    ),
)


class _Clock(datetime):
    @classmethod
    def now(cls, tz: Any = None) -> Any:
        return datetime.fromisoformat(samples.WRITTEN_AT).astimezone(tz or timezone.utc)


def write_lake(root: Path) -> None:
    """Write all samples as runs write them, but for the clock, the process and the chance that a lake would show."""
    with (
        mock.patch.object(lake_module, "datetime", _Clock),
        mock.patch.object(lake_module.uuid, "uuid4", return_value=UUID(f"{samples.INCARNATION}4000a000000000000000")),
        mock.patch.object(lease_module, "datetime", _Clock),
        mock.patch.object(lease_module, "this_process", return_value=samples.HOLDER),
    ):
        _write_archive(str(root))
        _write_flow(str(root))
    for name, report in samples.REPORTS.items():
        kinds.JOB_REPORT.replace(FS, f"{root}/_cdc/reports/{name}.json", report.to_json())
    root.joinpath(COMMIT).write_text(metadata_text({**samples.COMMIT_METADATA, "report": samples.REPORT.to_json()}), encoding="utf-8")


def _write_archive(root: str) -> None:
    archive = _archive(root)
    for survey in samples.SURVEYS:
        assert archive.add(survey)
    ledger = {"archive": samples.ARCHIVE, **samples.LEDGER.to_json()}
    kinds.LEDGER.replace(FS, f"{root}/{archive_folder(samples.ARCHIVE)}/ledger.json", ledger)
    archive.write_looked(samples.LOOKED)
    archive.write_transactions(samples.TRANSACTIONS)
    archive.write_waiting(samples.WAITING)
    archive.write_set_aside(samples.SET_ASIDE)
    archive.write_held_topics(samples.HELD_TOPICS)
    archive.write_archived_schema(samples.ARCHIVED)


def _write_flow(root: str) -> None:
    flow = _flow(root)
    flow.incarnation()
    for intent, report in zip(samples.INTENTS, (samples.REPORT, samples.DECISION_REPORT), strict=True):
        assert flow.write_intent(intent)
        flow.write_commit(report, samples.TABLE, intent.digest)
    kinds.CHECKPOINT.replace(FS, f"{root}/{_FLOW}/checkpoint.json", samples.CHECKPOINT.to_json())
    SourceSchemas(FS, root).put(flow.folder, samples.SCHEMA)
    Leases(FS, root).take(samples.FLOW)
    RetypeNote(FS, root, flow.folder).write("0123456789ab", replaces=True)
    samples.REBUILT.write(FS, root, samples.FLOW)
    FlowComparisons(FS, root).put(flow.folder, samples.COMPARED)
    kinds.ANNOUNCED_VERSIONS.replace(FS, f"{root}/{_TASK}", samples.ANNOUNCED.to_json())


if __name__ == "__main__":
    shutil.rmtree(NEWEST, ignore_errors=True)
    write_lake(NEWEST)
