"""State documents of every version are read, mean what they meant, and lose nothing when they are written back."""

from __future__ import annotations

import dataclasses
import json
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.model.errors import StateTooNewError, StateUnreadableError
from airflow_cdc.model.flow.warn_above import WarnAbove
from airflow_cdc.model.plain_json import JsonArray, JsonObject
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.flows_report import FlowsReport
from airflow_cdc.model.report.health import FlowHealth, HealthCounts
from airflow_cdc.model.report.verification import VerifyReport
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.model.state.lease import Leases
from airflow_cdc.model.state_kind import KINDS, SURVEY
from tests.support.surveys import FS
from tests.unit.model.state import samples
from tests.unit.model.state.golden import DOCUMENTS, LAKES, NEWEST, Golden, write_lake

ROOT = Path(__file__).parents[4]
Document = dict[str, Any]


def read_all(lake: Path) -> dict[str, Document]:
    return {str(path.relative_to(lake)): json.loads(path.read_text(encoding="utf-8")) for path in lake.rglob("*.json")}


def changed(lake: Path, golden: Golden, change: Callable[[Document], Document]) -> str:
    """Change the documents of one kind in a lake, and return its root."""
    paths = list(lake.glob(golden.path))
    assert paths
    for path in paths:
        path.write_text(json.dumps(change(json.loads(path.read_text(encoding="utf-8")))), encoding="utf-8")
    return str(lake)


def of_members(document: Any, earlier: Any) -> Any:
    """Return a document without the members, at any depth, that an earlier one lacks."""
    if isinstance(document, dict) and isinstance(earlier, dict):
        return {name: of_members(document[name], earlier[name]) for name in document if name in earlier}
    if isinstance(document, list) and isinstance(earlier, list) and len(document) == len(earlier):
        return [of_members(one, other) for one, other in zip(document, earlier, strict=True)]
    return document


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return Path(shutil.copytree(NEWEST, tmp_path / "lake"))


@pytest.mark.parametrize("golden", DOCUMENTS, ids=str)
@pytest.mark.parametrize("lake", LAKES, ids=lambda lake: lake.name)
def test_a_document_that_any_version_wrote_means_what_it_meant(lake: Path, golden: Golden) -> None:
    if lake.name in golden.absent_from:
        assert list(lake.glob(golden.path)) == []
    else:
        assert golden.read(str(lake)) == golden.means


def test_this_version_writes_its_golden_lake_as_it_stands(tmp_path: Path) -> None:
    write_lake(tmp_path)
    assert read_all(tmp_path) == read_all(NEWEST)


@pytest.mark.parametrize("lake", LAKES, ids=lambda lake: lake.name)
def test_written_back_a_document_has_its_format_and_every_member_that_it_had(lake: Path, tmp_path: Path) -> None:
    write_lake(tmp_path)
    before, after = read_all(lake), read_all(tmp_path)
    formats = {str(path.relative_to(tmp_path)): golden.kind.format for golden in DOCUMENTS for path in tmp_path.glob(golden.path)}
    assert before.keys() <= after.keys() == formats.keys()
    for path, document in before.items():
        assert after[path]["format"] == formats[path]
        earlier = {name: value for name, value in document.items() if name != "format"}
        assert of_members(after[path], earlier) == earlier


@pytest.mark.parametrize("lake", LAKES, ids=lambda lake: lake.name)
def test_the_checkpoint_of_any_version_is_rebuilt_from_its_intents_and_commit_markers(lake: Path, tmp_path: Path) -> None:
    root = Path(shutil.copytree(lake, tmp_path / "lake"))
    (root / "_cdc" / "flows" / samples.FLOW / "checkpoint.json").unlink()
    rebuilt = FlowState(FS, str(root), samples.FLOW).checkpoint()
    assert (rebuilt.number, rebuilt.applied_through, rebuilt.planned) == (2, samples.REPORT.applied_through, samples.CHECKPOINT.planned)


@pytest.mark.parametrize("golden", DOCUMENTS, ids=str)
def test_members_that_a_newer_version_added_are_ignored(golden: Golden, copy: Path) -> None:
    def add(document: Document) -> Document:
        report = {"report": {**document["report"], "added_later": [1]}} if "report" in document else {}
        return {**document, **report, "added_later": {"x": [1]}}

    assert golden.read(changed(copy, golden, add)) == golden.means


@pytest.mark.parametrize("golden", DOCUMENTS, ids=str)
def test_a_newer_format_is_refused_by_what_where_and_the_next_step(golden: Golden, copy: Path) -> None:
    newer = golden.kind.format + 1
    with pytest.raises(StateTooNewError) as raised:
        golden.read(changed(copy, golden, lambda document: {**document, "format": newer}))
    assert raised.value.message.startswith(f"The {golden.kind.name} of ")
    assert f"has format {newer}; this version of airflow-cdc knows formats up to {golden.kind.format}." in raised.value.message
    assert raised.value.next_step.startswith("Upgrade airflow-cdc")
    assert raised.value.facts["path"] in {*map(str, copy.glob(golden.path)), f"{samples.TABLE}, version 17"}


@pytest.mark.parametrize("wrong", ["2", None, True, 1.5])
def test_a_format_that_is_no_whole_number_is_no_format(wrong: Any) -> None:
    with pytest.raises(StateUnreadableError, match=r"The survey of archive a \(file\) has format .* expected a whole number"):
        SURVEY.check({"format": wrong}, where="file", owner="archive a")


@pytest.mark.parametrize("gone", ["files", "planned_through", "shapes"])
def test_an_intent_without_what_it_owns_is_named_and_not_read(gone: str, copy: Path) -> None:
    intents = next(golden for golden in DOCUMENTS if golden.kind.name == "intent")
    lake = changed(copy, intents, lambda document: {name: value for name, value in document.items() if name != gone})
    with pytest.raises(StateUnreadableError, match=rf"The intent of flow {samples.FLOW} \(.*00000001\.json\) has another shape.*{gone}"):
        intents.read(lake)


@pytest.mark.parametrize("older", [{}, {"format": 0, "topic": samples.FLOW, "through": 2, "connector": "", "columns": {}}])
def test_an_archived_schema_without_its_format_is_derived_anew(older: Document, copy: Path) -> None:
    schemas = next(golden for golden in DOCUMENTS if golden.kind.name == "archived schema")
    assert schemas.read(changed(copy, schemas, lambda _: older)) is None


def test_a_lease_in_a_newer_format_is_neither_waited_for_nor_taken_over(copy: Path) -> None:
    leases = next(golden for golden in DOCUMENTS if golden.kind.name == "lease")
    lake = changed(copy, leases, lambda document: {**document, "format": 2, "released": True})
    with pytest.raises(StateTooNewError, match=f"flow {samples.FLOW}"):
        Leases(FS, lake, wait_seconds=0).take(samples.FLOW)


def test_every_kind_has_a_golden_document_and_stands_in_the_reference() -> None:
    page = ROOT.joinpath("docs", "reference", "state.md").read_text(encoding="utf-8")
    rows = {name.strip(): int(number) for name, number in (line.split("|")[1:4:2] for line in page.splitlines() if "| 1 |" in line)}
    assert rows == {kind.name: kind.format for kind in KINDS}
    assert {golden.kind for golden in DOCUMENTS} == set(KINDS)


def test_every_job_s_report_has_a_golden_document() -> None:
    assert {type(report) for report in samples.REPORTS.values()} == {ApplyReport, VerifyReport, *FlowsReport.__subclasses__()}


# -- the samples ---------------------------------------------------------------------------------------------------

NEVER_SET = {
    # The first is not written down; the second is newer than the oldest lake.
    "Survey": {"void", "reader"},
    # Is so only when another microbatch, run or process comes behind.
    "LeaseFile": {"released"},
    "AnnouncedVersions": {"before"},
    # Are newer than the oldest lake, in which they mean their default.
    "MaintenanceReport": {"reports_removed"},
    "ArchivedFile": {"may_be_companion"},
    "TopicShape": {"log"},
    "FlowCheckpoint": {"logs", "moves_kept", "health"},
    "OffsetReport": {"newly_missing"},
    "FlowOutcome": {"attention"},
    "Snapshot": {"marks_tables", "followed"},
    "BatchReport": {
        *("engine", "engine_reason", "moves_kept", "rows_not_found", "updates_without_old_key"),
        *("started_at", "stage_seconds", "warn_above"),
    },
    "TableVerification": {"doubled"},
    **{each.__name__: {field.name for field in dataclasses.fields(each)} for each in (FlowHealth, HealthCounts, WarnAbove)},
}


def parts(value: Any) -> Iterator[Any]:
    """Yield all objects and arrays in a value that are spelled as JSON."""
    if isinstance(value, JsonObject | JsonArray):
        yield value
        value = vars(value)
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from parts(each)


def test_the_samples_set_every_field_to_something_else_than_its_default() -> None:
    unset: dict[str, set[str]] = {}
    for each in parts((*(golden.means for golden in DOCUMENTS), samples.REPORTS)):
        names = {
            field.name
            for field in dataclasses.fields(each)
            if getattr(each, field.name) == (field.default if field.default_factory is dataclasses.MISSING else field.default_factory())
        }
        unset[type(each).__name__] = unset.get(type(each).__name__, names) & names
    assert {name: fields for name, fields in unset.items() if fields} == NEVER_SET
