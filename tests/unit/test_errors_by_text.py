"""docs/how-to/errors-by-text.md quotes texts that the package still prints, and has a row for every type of error."""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

import pytest

from tests.unit.test_docs import error_classes

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/how-to/errors-by-text.md").read_text(encoding="utf-8")
ROWS = [[cell.strip() for cell in line.strip("|").split("|")] for line in PAGE.splitlines() if line.startswith('| "')]
BASES = {"CdcError", "TerminalError", "TransientError"}
VALUE = "\0"


def written(node: ast.AST) -> str:
    """Return a text of a program, with a mark for each value in it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join(map(written, node.values))
    return VALUE


@cache
def texts_of_the_package() -> str:
    programs = sorted((ROOT / "airflow_cdc").rglob("*.py"))
    nodes = (node for path in programs for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    return "\n\n".join(" ".join(written(node).split()) for node in nodes if isinstance(node, ast.Constant | ast.JoinedStr))


def is_written(quoted: str) -> bool:
    parts = [re.escape(part.strip()) for part in quoted.split("…") if part.strip()]
    # Within one text: texts are lines here.
    return bool(re.search(r"[^\n]*".join(parts), texts_of_the_package()))


@pytest.mark.parametrize("quoted", [row[0].strip('"') for row in ROWS])
def test_a_quoted_text_still_stands_in_the_package(quoted: str) -> None:
    assert is_written(quoted)


def test_a_text_that_nothing_prints_is_found() -> None:
    assert is_written("There is no archive at …")
    assert not is_written("There is no archive under …")
    assert not is_written("There is no archive at … The flow's policy is to stop.")


def test_every_type_of_error_can_be_found_by_a_text() -> None:
    named = {name for row in ROWS for name in re.findall(r"`(\w+Error)`", row[1])}
    assert named == set(error_classes()) - BASES


def test_every_row_has_a_cause_and_a_next_step() -> None:
    assert len(ROWS) > 60
    assert [row for row in ROWS if not all(row)] == []


def test_the_rows_of_a_section_are_in_the_order_of_their_texts() -> None:
    sections = [re.findall(r'^\| "([^"]+)"', section.lower(), re.MULTILINE) for section in PAGE.split("\n## ")[1:]]
    assert len(sections) == 10
    assert [texts for texts in sections[:-1] if texts != sorted(texts)] == []
