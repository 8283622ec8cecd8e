"""The page on the architecture and CONTRIBUTING name files, functions and rooms that are there; every room is described by one line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "airflow_cdc"
ARCHITECTURE = ROOT / "docs/architecture.md"
CONTRIBUTING = ROOT / "CONTRIBUTING.md"
PAGES = [ARCHITECTURE, CONTRIBUTING]

MOST_STEPS = 10
MOST_ROOMS = 15
"""On the way of a microbatch."""
MOST_FILES = 3
"""To be opened for the answer to a question."""
VALUES = {"unknown", "not_a_change_event", "merged", "stale"}
"""What answers name that is a value of the data, not of the code."""

FILE = re.compile(r"`([\w./-]+\.py)`")
IDENTIFIER = re.compile(r"`([A-Za-z_]\w*(?:\.\w+)*)`")


def section(page: Path, heading: str) -> str:
    """Return what stands below a heading, up to the next one."""
    found = re.search(rf"^#+ {re.escape(heading)}\n(.*?)(?=^#|\Z)", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert found, f"{page.name} has no section {heading}"
    return found[1]


def rows(text: str) -> list[list[str]]:
    """Return the cells of a table's rows, without its head."""
    table = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines() if line.startswith("|")]
    return table[2:]


def file_of(path: str) -> Path | None:
    """Return the file that a path leads to, from the repository or from the package; None where there is none."""
    return next((found for found in (ROOT / path, PACKAGE / path) if found.is_file()), None)


def missing(text: str) -> list[str]:
    return [path for path in FILE.findall(text) if file_of(path) is None]


def defines(path: Path, name: str) -> bool:
    """Whether a module has a function, class or constant, or a class of it the member behind the point."""
    body: list[ast.stmt] = ast.parse(path.read_text(encoding="utf-8")).body
    for part in name.split("."):
        found = [node for node in body if part in names_of(node)]
        if not found:
            return False
        body = found[0].body if isinstance(found[0], ast.ClassDef) else []
    return True


def names_of(node: ast.stmt) -> list[str]:
    """Return the names that a statement binds."""
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
        return [node.name]
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return [target.id for target in targets if isinstance(target, ast.Name)]


def rooms() -> list[str]:
    """Return the folders of the pipeline and of the model that hold modules, as paths below the package."""
    folders = (path.parent for part in ("pipeline", "model") for path in (PACKAGE / part).rglob("__init__.py"))
    return sorted(str(folder.relative_to(PACKAGE)) for folder in folders if folder.parent != PACKAGE)


# Files


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_file_that_the_page_names_is_there(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert len(FILE.findall(text)) > 20
    assert missing(text) == []


def test_a_file_that_is_not_there_is_found_also_where_another_folder_has_one_of_its_name() -> None:
    text = (
        "`pipeline/decode/order_events.py`, `order_events.py`, `pipeline/reconcile/order_events.py`, `tests/unit/test_docs.py`, `cli.py`."
    )
    assert missing(text) == ["pipeline/decode/order_events.py", "order_events.py"]


# The way of one record


def steps() -> list[list[str]]:
    return rows(section(ARCHITECTURE, "The way of one record"))


def test_the_way_of_one_record_has_at_most_ten_numbered_steps_each_a_file_of_its_own() -> None:
    numbers = [int(step[0].partition(".")[0]) for step in steps()]
    files = [FILE.findall(step[1]) for step in steps()]

    assert 5 <= len(numbers) <= MOST_STEPS
    assert numbers == list(range(1, len(numbers) + 1))
    assert all(len(named) == 1 for named in files)
    assert len({named[0] for named in files}) == len(files)


def test_each_step_names_a_function_of_its_file_and_what_goes_in_and_comes_out() -> None:
    lost = []
    for step, file, function, goes_in, comes_out in steps():
        path, name = file_of(file.strip("`")), function.strip("`")
        assert path, file
        if not (defines(path, name) and goes_in and comes_out):
            lost.append(step)
    assert lost == []


def test_a_function_that_a_module_does_not_define_is_found() -> None:
    path = PACKAGE / "pipeline/decode/decode_events.py"
    assert defines(path, "Decoder.events")
    assert not defines(path, "Decoder.lines_of_another")
    assert not defines(path, "parse_line"), "imported is not defined"


# Rooms


def test_every_room_is_named_on_the_page() -> None:
    named = set(re.findall(r"`((?:pipeline|model)/[\w/]+)/`", ARCHITECTURE.read_text(encoding="utf-8")))
    assert len(rooms()) > 20
    assert named == set(rooms())


@pytest.mark.parametrize("room", rooms())
def test_the_room_has_one_line_that_describes_it(room: str) -> None:
    text = (PACKAGE / room / "__init__.py").read_text(encoding="utf-8")
    described = ast.get_docstring(ast.parse(text)) or ""
    assert len(described.split()) > 3
    assert text == f'"""{described}"""\n'


def layers(part: str) -> list[str]:
    """Return the rooms of a part in the order of its import contract, from the top."""
    contract = re.search(
        rf'^layers = \[\n((?:  "airflow_cdc\.{part}\.\w+",\n)+)\]', (ROOT / "pyproject.toml").read_text("utf-8"), re.MULTILINE
    )
    assert contract, f"no contract orders the rooms of {part}"
    return re.findall(rf"airflow_cdc\.({part}\.\w+)", contract[1])


@pytest.mark.parametrize("part", ["pipeline", "model"])
def test_the_page_lists_the_rooms_in_the_order_in_which_they_may_import(part: str) -> None:
    listed = re.findall(rf"`({part}/\w+)/` (?=\||\()", section(ARCHITECTURE, "Rooms"))
    assert [room.replace("/", ".") for room in listed] == layers(part)


def imported(module: Path) -> Iterator[Path]:
    """Yield the modules of the pipeline that one imports, at its head or late."""
    for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow_cdc.pipeline"):
            whole = ROOT.joinpath(*(node.module or "").split("."))
            names = [whole.with_suffix(".py"), *(whole / f"{alias.name}.py" for alias in node.names)]
            yield from (path for path in names if path.is_file())


def reached(start: Path) -> set[Path]:
    found, waiting = set[Path](), [start]
    while waiting:
        module = waiting.pop()
        if module not in found:
            found.add(module)
            waiting += imported(module)
    return found


def test_the_way_of_a_microbatch_leads_through_as_many_rooms_as_the_page_counts() -> None:
    way = {path.relative_to(PACKAGE).parts[1] for path in reached(PACKAGE / "pipeline/apply/apply_microbatch.py")}
    order = [room.removeprefix("pipeline.") for room in layers("pipeline")]
    counted = re.search(r"count\s+the\s+rooms\s+of\s+the\s+modules\s+reached:\s+(\d+)", section(ARCHITECTURE, "The calls"))

    assert way == set(order[order.index("apply") :])
    assert counted
    assert len(way) == int(counted[1]) <= MOST_ROOMS


# Questions


def questions() -> list[list[str]]:
    return rows(section(CONTRIBUTING, "Ten questions"))


def test_ten_questions_are_answered_by_one_file_each_and_at_most_three_are_opened() -> None:
    assert len(questions()) == 10
    for question, file, answer, more in questions():
        assert len(FILE.findall(file)) == 1, question
        assert answer
        assert len(FILE.findall(file + more)) <= MOST_FILES, question


def test_what_an_answer_names_is_defined_in_one_of_its_files() -> None:
    checked, lost = 0, []
    for question, file, answer, more in questions():
        files = [path for name in FILE.findall(file + more) if (path := file_of(name))]
        # An answer's own words, such as a reason's or a kind's, are texts of the first file or of the model.
        names = [name for name in IDENTIFIER.findall(answer + more) if name not in VALUES]
        checked += len(names)
        lost += [(question, name) for name in names if not any(defines(path, name) for path in files)]
    assert checked >= 10
    assert lost == []
