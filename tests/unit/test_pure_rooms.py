"""Decode and reconcile build plans and run no Spark job, but for the modules whose docstring names it; long calls name their arguments."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

PIPELINE = Path(__file__).parents[2] / "airflow_cdc" / "pipeline"
RUNS = ("collect", "count", "first", "isEmpty", "head", "take", "toPandas", "toLocalIterator", "write", "foreach", "localCheckpoint")
NAMED = ("Runs a Spark job", "Runs Spark jobs")
OF_EFFECTS = ("apply", "target", "microbatch")
MOST_PARAMETERS = 6
MOST_BY_POSITION = 3


def modules(*rooms: str) -> list[Path]:
    return sorted(path for room in rooms for path in (PIPELINE / room).rglob("*.py"))


def place(path: Path) -> str:
    return str(path.relative_to(PIPELINE))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def job_lines(tree: ast.Module) -> list[int]:
    """Return the lines where a frame is asked for its rows, or written; ``F.count`` and the like only build a column."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "write":
            found.append(node.lineno)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in RUNS:
            of_functions = isinstance(node.func.value, ast.Name) and node.func.value.id in {"F", "functions"}
            # A text's count of a letter has an argument.
            of_text = node.func.attr == "count" and node.args
            if not (of_functions or of_text):
                found.append(node.lineno)
    return found


def test_the_modules_that_run_jobs_while_they_decode_or_reconcile_are_those_that_name_it() -> None:
    trees = {place(path): parsed(path) for path in modules("decode", "reconcile")}
    assert "decode/decode_events.py" in trees
    running = {name for name, tree in trees.items() if job_lines(tree)}
    saying = {name for name, tree in trees.items() if any(words in (ast.get_docstring(tree) or "") for words in NAMED)}
    assert running == saying


@pytest.mark.parametrize(
    ("code", "runs"),
    [
        ("rows.collect()", True),
        ("rows.filter(x).count()", True),
        ("rows.agg(F.count('*'), F.first(x))", False),
        ("rows.write.save(path)", True),
        ("text.count('a')", False),
        ("values.count == 1", False),
        ("rows.head(1)", True),
    ],
)
def test_a_job_is_distinguished_from_a_column(code: str, runs: bool) -> None:
    assert bool(job_lines(ast.parse(code))) is runs


def functions(tree: ast.Module) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


def parameters(function: ast.FunctionDef) -> list[str]:
    given = function.args
    return [each.arg for each in (*given.posonlyargs, *given.args, *given.kwonlyargs) if each.arg != "self"]


def test_no_step_takes_more_parameters_than_one_sees_at_a_glance() -> None:
    found = {
        f"{place(path)}: {function.name}": parameters(function)
        for path in modules(*OF_EFFECTS)
        for function in functions(parsed(path))
        if len(parameters(function)) > MOST_PARAMETERS
    }
    assert found == {}


def ours(tree: ast.Module) -> set[str]:
    """Return the names that a module imports from this package, or defines."""
    imported = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("airflow_cdc")
        for alias in node.names
    }
    return imported | {node.name for node in ast.walk(tree) if isinstance(node, (ast.FunctionDef, ast.ClassDef))}


def called(call: ast.Call) -> tuple[str, int]:
    """Return the name that is called, and how many arguments it gets by position; of a ``partial`` those of what it holds."""
    name = call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""
    if name == "partial" and call.args and isinstance(call.args[0], (ast.Name, ast.Attribute)):
        held = call.args[0]
        return (held.id if isinstance(held, ast.Name) else held.attr), len(call.args) - 1
    return name, len(call.args)


def test_what_a_step_is_given_has_a_name_beyond_the_third() -> None:
    found = [
        f"{place(path)}:{node.lineno} {name}"
        for path in modules(*OF_EFFECTS)
        for tree in [parsed(path)]
        for named in [ours(tree)]
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        for name, count in [called(node)]
        if count > MOST_BY_POSITION and name in named
    ]
    assert found == []
