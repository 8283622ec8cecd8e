"""The Dags of other services, as far as they can be looked at without these services' providers; ``make test-submitters`` has them."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
DAGS = ROOT / "dags" / "submitters"
FILES = sorted(path.name for path in DAGS.glob("*.py"))
PAGE = ROOT / "docs/how-to/run-on-your-spark-service.md"


def imported(tree: ast.Module) -> list[tuple[str, str]]:
    """Return the names that a module imports from this package."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return [(str(node.module), alias.name) for node in nodes if str(node.module).startswith("airflow_cdc") for alias in node.names]


@pytest.mark.parametrize("file", FILES)
def test_a_dag_is_quoted_by_the_docs_between_markers_and_named_on_the_page(file: str) -> None:
    text = (DAGS / file).read_text(encoding="utf-8")
    name = file.removesuffix(".py")
    assert text.count(f"# [START howto_{name}]") == text.count(f"# [END howto_{name}]") == 1
    assert f'dag_id="{name}"' in text
    assert f"dags/submitters/{file}" in PAGE.read_text(encoding="utf-8")


@pytest.mark.parametrize("file", FILES)
def test_what_a_dag_imports_of_this_package_is_there(file: str) -> None:
    names = imported(ast.parse((DAGS / file).read_text(encoding="utf-8")))
    assert ("airflow_cdc.submitters.cdc_job", "CdcJob") in names
    assert [pair for pair in names if not hasattr(importlib.import_module(pair[0]), pair[1])] == []


@pytest.mark.parametrize("file", FILES)
def test_a_dag_imports_one_provider_and_airflow(file: str) -> None:
    tree = ast.parse((DAGS / file).read_text(encoding="utf-8"))
    modules = {str(node.module) for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    assert len([module for module in modules if module.startswith("airflow.providers.")]) == 1
    assert {module.split(".")[0] for module in modules} == {"__future__", "airflow", "airflow_cdc", "datetime"}
