"""The docs name what is there: quotes, links, commands, settings, errors, fields, types."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import typer.main

from airflow_cdc import dags_file, runtime
from airflow_cdc.cli import app
from airflow_cdc.model.archive.completeness import OffsetGap, OffsetOverlap, OffsetReport
from airflow_cdc.model.archive.cut import AwaitedTransaction, Cut
from airflow_cdc.model.archive.transactions import Lacking, TransactionReport
from airflow_cdc.model.columns import CHANGE_LOG_COLUMNS, FLAGGED_COLUMNS, MULTISET_COLUMNS, TARGET_COLUMNS, VERSION_COLUMNS
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.errors import CdcError, RejectReason
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, OnGap, OnTruncate, WriteDisposition
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.report.metrics import METRICS
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.model.report.retyping import FlowRetype, RetypeReport
from airflow_cdc.pipeline.decode.types import connect_types
from tests.unit.test_citations import anchors

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)


def read(*path: str) -> str:
    return ROOT.joinpath(*path).read_text(encoding="utf-8")


def in_code(text: str) -> set[str]:
    """Return what stands between single backticks, also the parts of a list in them."""
    return set(re.findall(r"`([^`\n]+)`", FENCE.sub("", text)))


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


# Quotes


def quoted_dag() -> list[str]:
    block = re.search(r"```python\n(.*?)```", read("README.md"), re.DOTALL)
    assert block, "README.md quotes no Dag"
    return [line for line in block[1].splitlines() if line.strip() and line.strip() != "..."]


def test_the_quoted_dag_stands_in_the_example_dag_in_this_order() -> None:
    shipped = re.search(r"\[START howto_cdc_merge\]\n(.*?)# \[END", read("dags", "cdc_merge.py"), re.DOTALL)
    assert shipped
    rest = iter(shipped[1].splitlines())
    missing = [line for line in quoted_dag() if line not in rest]
    assert missing == []


QUOTED = [
    ("how-to/many-tables.md", "python", "cdc_merge_groups.py"),
    ("how-to/many-tables.md", "yaml", "airflow_cdc.yaml"),
    ("reference/dags-file.md", "python", "cdc_tables.py"),
    ("how-to/run-on-your-spark-service.md", "python", "submitters/cdc_emr_serverless.py"),
]


@pytest.mark.parametrize(("page", "language", "file"), QUOTED)
def test_what_a_page_quotes_of_an_example_stands_in_it_line_by_line(page: str, language: str, file: str) -> None:
    block = re.search(rf"```{language}\n(.*?)```", read("docs", page), re.DOTALL)
    assert block
    assert block[1] in read("dags", file)


# Links


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_relative_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    broken = []
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        path, _, anchor = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", [page for page in PAGES if page.is_relative_to(DOCS)], ids=name)
def test_every_page_can_be_reached_from_the_index(page: Path) -> None:
    index = DOCS / "README.md"
    linked = {(DOCS / link.partition("#")[0]).resolve() for link in LINK.findall(index.read_text(encoding="utf-8"))}
    assert page == index or page.resolve() in linked


# The command line


def commands(group: Any, *parents: str) -> Iterator[tuple[str, Any]]:
    for title, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *parents, title)
        else:
            yield " ".join([*parents, title]), command


COMMANDS = dict(commands(typer.main.get_command(app)))
CLI_PAGE = read("docs", "reference", "cli.md")
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", CLI_PAGE, re.MULTILINE | re.DOTALL))


def test_the_page_names_every_command_and_no_other() -> None:
    named = re.findall(r"^\| \[`airflow-cdc ([^`]+)`\]", CLI_PAGE, re.MULTILINE)
    assert sorted(named) == sorted(COMMANDS)
    assert [command for command in COMMANDS if command not in SECTIONS] == []


@pytest.mark.parametrize("command", COMMANDS)
def test_a_commands_usage_line_names_its_options_and_no_others(command: str) -> None:
    usage = re.search(r"```\n(airflow-cdc .*?)```", SECTIONS[command], re.DOTALL)
    assert usage
    assert usage[1].startswith(f"airflow-cdc {command}")
    options = {option for parameter in COMMANDS[command].params for option in parameter.opts if option.startswith("--")}
    assert set(re.findall(r"--[a-z-]+", usage[1])) == options - {"--help"}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_command_in_a_page_exists(page: Path) -> None:
    called = re.findall(r"(?:^|`)airflow-cdc ((?:quarantine |schema )?[a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [command for command in called if command not in COMMANDS] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_in_a_page_exists(page: Path) -> None:
    targets = set(re.findall(r"^([a-z-]+):", read("Makefile"), re.MULTILINE))
    called = re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [target for target in called if target not in targets] == []


# Settings, errors, fields, types


def error_classes(root: type[CdcError] = CdcError) -> Iterator[str]:
    yield root.__name__
    for kind in root.__subclasses__():
        if kind.__module__.startswith("airflow_cdc."):
            yield from error_classes(kind)


def test_every_error_and_reject_reason_is_explained() -> None:
    assert runtime.JavaNotFoundError.__name__ in error_classes(), "the runtime's errors are known by now"
    page = read("docs", "how-to", "when-something-is-red.md")
    explained = set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE))
    reasons = {reason.value for reason in RejectReason}
    assert explained == {*error_classes(), *reasons}


def test_every_setting_of_a_flow_is_described_and_no_other() -> None:
    page = read("docs", "reference", "flows-file.md")
    assert set(re.findall(r"^\| `(\w+)`", page, re.MULTILINE)) == {item.name for item in fields(CdcFlow)}
    assert {policy.value for policy in (*OnTruncate, *OnGap, *OnDelete, *WriteDisposition)} <= in_code(page)


def test_every_setting_of_the_dags_file_is_described_and_no_other() -> None:
    page = read("docs", "reference", "dags-file.md")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", page, re.MULTILINE)
    named = [setting for row in rows for setting in re.findall(r"\w+", row)]
    models = (dags_file._Document, dags_file.DagEntry, dags_file.Notice)
    assert sorted(named) == sorted({field for model in models for field in model.model_fields})


def test_the_dags_file_that_the_page_shows_is_one(tmp_path: Path) -> None:
    block = re.search(r"```yaml\n(.*?)```", read("docs", "reference", "dags-file.md"), re.DOTALL)
    assert block
    file = tmp_path / "airflow_cdc.yaml"
    file.write_text(block[1])
    dags = ["cdc_server.db.orders", "cdc_server.db.order_lines", "cdc_rest"]
    assert [dag.dag_id for dag in dags_file.read_dags_file(file).dags] == dags


REPORTS = [
    EventCounts,
    RowCounts,
    BatchReport,
    OffsetReport,
    OffsetGap,
    OffsetOverlap,
    FlowOutcome,
    TransactionReport,
    Lacking,
    Cut,
    AwaitedTransaction,
    ApplyReport,
    FlowReprocess,
    ReprocessReport,
    FlowRetype,
    RetypeReport,
]


@pytest.mark.parametrize("kind", REPORTS)
def test_every_field_of_the_report_is_described(kind: Any) -> None:
    members = [kind._options.names.get(item.name, item.name) for item in fields(kind)]
    assert [name for name in members if name not in in_code(read("docs", "reference", "report.md"))] == []


def test_the_reports_sum_names_every_part() -> None:
    page = read("docs", "reference", "report.md")
    total, parts = re.search(r"^(\w+) = (.+)$", page, re.MULTILINE).groups()  # type: ignore[union-attr]
    assert [total, *parts.split(" + ")] == [item.name for item in fields(EventCounts)]
    assert {reason.value for reason in RejectReason} <= in_code(page)
    assert {status.value for status in FlowStatus} <= in_code(page)


def test_every_connect_type_and_dialect_is_described() -> None:
    types = in_code(read("docs", "reference", "types.md"))
    assert {*connect_types._LITERAL, *connect_types._SEMANTIC} <= types
    assert set(CONNECTORS) <= in_code(read("docs", "reference", "dialects.md"))


def test_every_column_of_ours_is_described() -> None:
    named = {*TARGET_COLUMNS, *FLAGGED_COLUMNS, *CHANGE_LOG_COLUMNS, *VERSION_COLUMNS, *MULTISET_COLUMNS}
    assert named <= in_code(read("docs", "reference", "target-tables.md"))


def test_every_mode_of_a_table_is_described() -> None:
    assert {mode.value for mode in TableMode} <= in_code(read("docs", "reference", "target-tables.md"))


def test_every_metric_is_described_by_its_kind_and_label() -> None:
    rows = re.findall(r"^\| `(cdc\.[\w.]+)` \| (\w+) \| (?:`(\w+)`|–) \|", read("docs", "reference", "metrics.md"), re.MULTILINE)
    assert rows == [(metric.name, metric.kind.value, metric.part) for metric in METRICS]
