"""``llms.txt`` of the documentation's site: each page once, with a link that leads to it and a sentence of its own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.unit.test_site import ROOT, pages, script, titles_and_places

llms = script("docs_llms")
LINE = re.compile(r"- \[([^\]]+)\]\(([^)]+)/\)(?:: (.+))?")


@pytest.fixture(scope="module")
def text() -> str:
    written: str = llms.llms_text(ROOT)
    return written


def test_it_begins_with_the_title_and_what_the_package_does(text: str) -> None:
    title, empty, summary, *_ = text.splitlines()
    assert (title, empty) == ("# airflow-cdc", "")
    assert summary.startswith("> `airflow-cdc` applies archived Debezium change events to Delta tables. ")


def test_it_has_every_page_of_the_navigation_under_its_section(text: str) -> None:
    nav = pages.navigation(ROOT, pages.place_of_sources(ROOT))
    wanted = {section: titles_and_places(below) for item in nav for section, below in item.items() if section != "Home"}
    sections = dict(re.findall(r"^## (.+)\n\n((?:- .+\n)+)", text, re.MULTILINE))

    listed = {section: [LINE.fullmatch(line) for line in lines.splitlines()] for section, lines in sections.items()}

    assert {section: [(line[1], f"{line[2]}.md") for line in lines if line] for section, lines in listed.items()} == wanted


def test_every_page_but_a_settings_file_has_a_sentence_without_links(text: str) -> None:
    lines = [LINE.fullmatch(line) for line in text.splitlines() if line.startswith("- ")]
    assert [line[1] for line in lines if line and not line[3]] == ["airflow_cdc.yaml"]
    assert [line[3] for line in lines if line and line[3] and ("](" in line[3] or line[3].endswith(":"))] == []


@pytest.mark.parametrize(
    ("page", "sentence"),
    [
        ("# Maintain\n\nHow-to: keep tables small ([why](../why.md)). And more.\n", "Keep tables small (why)."),
        ("# 1. Decide\n\nAccepted.\n\n## The question\n\nTwo runs may\nwrite one flow. So what?\n", "Two runs may write one flow."),
        ("# Listed\n\n<!-- made -->\n\n![A picture](a.png)\n\nWhat there is:\n\n- one thing\n", "What there is"),
        ("# Empty\n\n| a |\n|---|\n", ""),
    ],
)
def test_a_pages_sentence_is_the_first_of_its_prose(tmp_path: Path, page: str, sentence: str) -> None:
    source = tmp_path / "page.md"
    source.write_text(page, encoding="utf-8")
    assert llms.summary(source) == sentence


def test_a_programs_sentence_is_of_its_docstring(tmp_path: Path) -> None:
    source = tmp_path / "dag.py"
    source.write_text('"""Merge by ``airflow``. More."""\n\nx = "No. Not this."\n', encoding="utf-8")
    assert llms.summary(source) == "Merge by `airflow`."
