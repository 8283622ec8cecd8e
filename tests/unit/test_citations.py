"""What the repository cites can be opened in it: pages and their headings, decisions, files. Documents that lie elsewhere are not cited."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
FOLDERS = ("airflow_cdc", "benchmarks", "dags", "docs", "scripts", "tests")
SUFFIXES = {".md", ".py", ".toml", ".yaml", ".yml"}


def text_files() -> Iterator[Path]:
    """Yield what people write here by hand; data that captures and benchmarks produced is left out."""
    yield from (path for path in sorted(ROOT.iterdir()) if path.suffix in SUFFIXES or path.name in ("Makefile", ".gitignore"))
    for folder in FOLDERS:
        yield from (path for path in sorted((ROOT / folder).rglob("*")) if path.suffix in SUFFIXES and path.is_file())
    # Their ``_source`` says which document an example is from.
    yield from sorted((ROOT / "tests/golden/reference").glob("*.json"))


FILES = [path for path in text_files() if path != Path(__file__)]


def in_files(files: Iterable[Path], found: Callable[[Path], list[str]]) -> dict[str, list[str]]:
    """Return what is found, by the file's name; files in which there is nothing are left out."""
    return {str(path.relative_to(ROOT)): there for path in files if (there := found(path))}


@cache
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


# Pages and headings

FENCE = re.compile(r"^ *```.*?^ *```", re.MULTILINE | re.DOTALL)
CITED_PAGE = re.compile(r"(?<![\w./-])(docs/[\w./-]+\.md)(?:#([\w-]+))?")
CITED_DECISION = re.compile(r"\bADR\s+(\d{4})\b")


@cache
def anchors(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub gives a page's headings; of equal ones the second has ``-1`` behind it."""
    found: Counter[str] = Counter()
    named = set()
    for heading in re.findall(r"^#+ +(.+?) *#* *$", FENCE.sub("", read(page)), re.MULTILINE):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        anchor = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        named.add(f"{anchor}-{found[anchor]}" if found[anchor] else anchor)
        found[anchor] += 1
    return frozenset(named)


def missing_pages(text: str) -> list[str]:
    """Return the pages, headings and decisions that a text cites and that are not there."""
    missing = []
    for path, anchor in CITED_PAGE.findall(text):
        page = ROOT / path
        if not page.is_file():
            missing.append(path)
        elif anchor and anchor not in anchors(page):
            missing.append(f"{path}#{anchor}")
    decisions = [number for number in CITED_DECISION.findall(text) if not list((ROOT / "docs/adr").glob(f"{number}-*.md"))]
    return [*missing, *(f"ADR {number}" for number in decisions)]


def test_every_cited_page_is_there_and_has_the_heading() -> None:
    assert in_files(FILES, lambda path: missing_pages(read(path))) == {}


def test_a_page_a_heading_and_a_decision_that_are_not_there_are_found() -> None:
    text = "See docs/nowhere.md, docs/architecture.md#nothing-of-the-kind, docs/architecture.md#position, ADR 9999 and ADR 0001."
    assert missing_pages(text) == ["docs/nowhere.md", "docs/architecture.md#nothing-of-the-kind", "ADR 9999"]


def test_anchors_follow_githubs_rule(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# `on_gap`: what, and why?\n```\n# not a heading\n```\n## [Linked](x.md) words\n## Twice\n## Twice\n")
    assert anchors(page) == {"on_gap-what-and-why", "linked-words", "twice", "twice-1"}


# Files

CITED_FILE = re.compile(r"(?<![\w./<>-])((?:airflow_cdc|benchmarks|dags|scripts|tests)/[\w./*-]*[\w*/])(?![\w<>…{])")
CITED_BY_NAME = re.compile(r"(?<![\w./*<>-])([\w-]+\.md)\b")
"""A page's bare name: in a program it says nothing of where the page is."""


def prose(program: str) -> str:
    """Return the comments and docstrings of a program, those of fields too."""
    comments = [token.string for token in tokenize.generate_tokens(io.StringIO(program).readline) if token.type == tokenize.COMMENT]
    strings = [
        node.value.value
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]
    return "\n".join([*comments, *strings])


def missing_files(text: str) -> list[str]:
    """Return the files and folders, also as patterns, that a text cites and that are not there."""
    return [cited for cited in CITED_FILE.findall(text) if not is_there(cited.rstrip("/"))]


@cache
def is_there(pattern: str) -> bool:
    return any(ROOT.glob(pattern))


def test_every_file_that_a_page_cites_is_there() -> None:
    pages = [path for path in FILES if path.suffix == ".md"]
    assert in_files(pages, lambda page: missing_files(FENCE.sub("", read(page)))) == {}


def test_every_file_that_a_comment_or_docstring_cites_is_there() -> None:
    # To find comments takes long: only in programs that hold such a text anywhere.
    programs = [path for path in FILES if path.suffix == ".py" and (CITED_FILE.search(read(path)) or CITED_BY_NAME.search(read(path)))]
    texts = {path: prose(read(path)) for path in programs}
    assert in_files(programs, lambda path: [*missing_files(texts[path]), *CITED_BY_NAME.findall(texts[path])]) == {}


def test_files_and_pages_without_a_path_are_found() -> None:
    program = '"""See airflow_cdc/no_such.py and tests/unit/*.py."""\n# As performance.md has it.\nPATH = "tests/made/up.py"\n'
    assert missing_files(prose(program)) == ["airflow_cdc/no_such.py"]
    assert CITED_BY_NAME.findall(prose(program)) == ["performance.md"]


def listed_captures(page: Path) -> list[str]:
    rows = re.search(r"^\| capture in `tests/golden/captures` .*?\n\n", read(page), re.MULTILINE | re.DOTALL)
    return re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", rows[0], re.MULTILINE))) if rows else []


def test_the_pages_on_the_sources_list_every_capture_and_no_other() -> None:
    captures = [capture for page in (ROOT / "docs/sources").glob("*.md") for capture in listed_captures(page)]
    assert sorted(captures) == sorted(path.name for path in (ROOT / "tests/golden/captures").iterdir() if path.is_dir())


# Documents that lie elsewhere

ELSEWHERE = {
    "a section of a design that is not here": r"\bdesign(?: document)?,? section",
    "a numbered fact of a list that is not here": r"\bfacts? (?:no\. )?G?\d+\b|\barchives, fact|\bFACTS\b",
    "a text file of a connector's reference": r"(?:reference/|debezium-|huawei-)[\w.-]*\.txt\b",
    "notes that are not here": r"\bprior-art\b|\bairflow-facts\b|\bFACTS-lives\b|(?<![\w/-])style\.md\b",
    "a folder of one machine": r"(?<![\w/])/work/",
}
AN_ISSUE = r"\b[Ii]ssues? #?\d+\b"
"""Numbers of a list that a reader of the repository cannot open. What changed when may name them."""


def cited_elsewhere(text: str, *, issues: bool = False) -> list[str]:
    """Return what a text cites that no reader of the repository can open; a citation may run over a line's end.

    :param issues: whether the text may cite numbers of issues.
    """
    on_one_line = re.sub(r"\s*\n[ \t]*(?:# ?)?", " ", text)
    patterns = [*ELSEWHERE.values(), *([] if issues else [AN_ISSUE])]
    return [found for pattern in patterns for found in re.findall(pattern, on_one_line)]


def test_nothing_is_cited_that_lies_elsewhere() -> None:
    assert in_files(FILES, lambda path: cited_elsewhere(read(path), issues=path.name == "CHANGELOG.md")) == {}


def test_citations_of_other_places_are_found_over_a_lines_end_too() -> None:
    text = "Numbers (design,\n    # section 3), of archives, fact\n2; Issue 24, reference/debezium-x.zh.txt; apache/hudi#19748 is public."
    assert cited_elsewhere(text) == ["design, section", "archives, fact", "reference/debezium-x.zh.txt", "Issue 24"]
