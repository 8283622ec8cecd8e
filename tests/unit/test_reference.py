"""The reference pages that are made of the code are what the code gives, and the reports' schema describes every member of a report."""

from __future__ import annotations

import copy
import sys
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from airflow_cdc.model.archive.completeness import OffsetGap
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.model.report.retyping import FlowRetype, RetypeReport

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def reference() -> Any:
    """The program that writes the pages, which is no package."""
    sys.path.insert(0, str(ROOT / "scripts"))
    try:
        import reference
    finally:
        sys.path.remove(str(ROOT / "scripts"))
    return reference


NAMES = ("connections.md", "errors.md", "operators.md", "options.md", "report.schema.json", "where-it-runs.md")


def test_every_made_page_is_known_here(reference: Any) -> None:
    assert sorted(reference.PAGES) == sorted(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_made_page_is_what_the_code_gives(reference: Any, name: str) -> None:
    text = (FOLDER / name).read_text(encoding="utf-8")
    assert text == reference.PAGES[name](), "Next step: .venv/bin/python scripts/reference.py, and commit what it wrote."


@pytest.mark.parametrize("kind", ["Operators", "Sensors"])
def test_every_argument_of_an_operator_and_a_sensor_is_described_and_no_other(reference: Any, kind: str) -> None:
    made_here = [cls for cls in dict(reference._classes_by_kind())[kind] if "__init__" in vars(cls)]
    assert len(made_here) >= 3
    for cls in made_here:
        arguments = {name for name in vars(cls)["__init__"].__annotations__ if name not in {"return", "kwargs"}}
        assert set(reference.parameters_of(cls)) - {"kwargs"} == arguments, cls


# The reports' schema

BATCH = BatchReport("pg.public.orders", 2, 1, 900, EventCounts(read=1, rejected=1), applied_through={"0": Position(9, 9, 0)})
GAP = OffsetGap("pg.public.orders", 0, 5, 9, "a.json", "b.json")
FAILED = FlowOutcome("pg.public.orders", FlowStatus.FAILED, error={"type": "OffsetGapError"}, batches=(BATCH,), waiting_for=(GAP,))
REPORTS = [BATCH, ApplyReport("/archive", "/lake", (FAILED,))]


def exact(schema: dict[str, Any]) -> dict[str, Any]:
    """Return the schema so that it refuses members that it does not describe."""
    strict = copy.deepcopy(schema)
    for kind in strict["$defs"].values():
        if "properties" in kind:
            kind["additionalProperties"] = False
    return strict


def errors_of(reference: Any, document: Any, kind: str) -> list[str]:
    schema = {"$ref": f"#/$defs/{kind}", "$defs": exact(reference.report_schema())["$defs"]}
    return [error.message for error in Draft202012Validator(schema).iter_errors(document)]


@pytest.mark.parametrize("report", REPORTS, ids=lambda report: type(report).__name__)
def test_a_report_has_the_members_that_the_schema_describes_and_no_others(reference: Any, report: Any) -> None:
    assert errors_of(reference, report.to_json(), type(report).__name__) == []


@pytest.mark.parametrize("kind", [ReprocessReport, RetypeReport, FlowReprocess, FlowRetype])
def test_the_schema_describes_the_reports_of_repairs(reference: Any, kind: type[Any]) -> None:
    assert kind.__name__ in reference.report_schema()["$defs"]


def test_the_schema_refuses_a_status_that_does_not_exist(reference: Any) -> None:
    document = FAILED.to_json() | {"status": "asleep"}
    assert errors_of(reference, document, "FlowOutcome") == ["'asleep' is not one of ['applied', 'up_to_date', 'waiting', 'failed']"]


def test_the_schema_refuses_a_count_as_text(reference: Any) -> None:
    assert errors_of(reference, EventCounts(1).to_json() | {"read": "1"}, "EventCounts") == ["'1' is not of type 'integer'"]


# Settings: that each is described is held by tests/unit/test_docs.py


def settings_rows() -> dict[str, list[str]]:
    page = (FOLDER / "flows-file.md").read_text(encoding="utf-8").partition("## Routes")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in page.splitlines() if line.startswith("| `")]
    return {row[0].strip("`"): row[1:] for row in rows}


def test_defaults_and_choices_of_settings_are_those_of_the_code() -> None:
    rows, flow = settings_rows(), CdcFlow("t")
    choices = {name: type(value) for name, value in vars(flow).items() if hasattr(type(value), "__members__")}
    assert len(choices) > 8
    for name, kind in choices.items():
        assert rows[name][0].replace("`", "").split(", ") == [member.value for member in kind], name
        assert rows[name][1].strip("`") == getattr(flow, name).value, name
    assert rows["stored_as_scd_type"][1] == f"`{flow.stored_as_scd_type}`"
    assert rows["max_microbatch_bytes"][1].startswith(str(flow.max_microbatch_bytes))
