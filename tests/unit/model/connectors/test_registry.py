"""The registry, and that what is known of a connector stands in its entry."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path

import pytest

import airflow_cdc
from airflow_cdc.model.connectors import registry
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.connectors.registry import CONNECTORS, by_flattened_fields, connector_of, entries, flattened_fields

PACKAGE = Path(airflow_cdc.__file__).parent
ENTRIES = "model/connectors"
ALLOWED = {
    # What a value of another shape becomes; the entries name the shape.
    "pipeline/decode/huawei_cdl.py",
    "pipeline/decode/mongodb.py",
    # A made-up archive, by which Java's classes are found.
    "runtime/class_archive.py",
}
"""Files in which a connector's name may stand beside its entry, the demo and the docs."""


def names() -> set[str]:
    """Return what code may call a connector by: its names, and its file."""
    files = {path.stem for path in (PACKAGE / ENTRIES).glob("*.py")} - {"__init__", "connector", "flattened_names", "registry"}
    return {*CONNECTORS, *files}


def docstrings(tree: ast.AST) -> Iterator[ast.Constant]:
    """Yield the texts that are statements: the docstrings of modules, classes, functions and attributes."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield node.value


def named_in(source: str) -> set[str]:
    """Return the connectors that a module's code names: in its texts, and by the words that it imports, reads or calls.

    The path of an import is no word: columns of documents are named in ``pipeline/decode/mongodb.py``, and others use the names.
    """
    tree = ast.parse(source)
    left_out = set(map(id, docstrings(tree)))
    words: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in left_out:
            words |= {word.lower() for pattern in (r"[\w.-]+", r"\w+") for word in re.findall(pattern, node.value)}
        elif isinstance(node, ast.Name):
            words.add(node.id.lower())
        elif isinstance(node, ast.Attribute):
            words.add(node.attr.lower())
        elif isinstance(node, ast.ImportFrom | ast.Import):
            words |= {alias.name.lower() for alias in node.names}
    return names() & words


@pytest.mark.parametrize(
    "code",
    [
        "if connector == 'mysql': pass",
        "TEXT = f\"if(source.connector IN ('postgresql', {x}), NULL, 1)\"",
        "kind = {'sqlserver': 1}",
        "from airflow_cdc.model.connectors.postgresql import POSTGRESQL",
        "found = decoder.dialect is POSTGRESQL",
        "from airflow_cdc.pipeline.decode import huawei_cdl",
        "if dialect.huawei_cdl: pass",
    ],
)
def test_a_branch_on_a_connector_is_found_however_it_is_written(code: str) -> None:
    assert named_in(code)


def test_a_docstring_may_name_a_connector() -> None:
    assert not named_in('"""As postgresql does."""\nX = 1\n"""Not for mysql."""')


def test_no_code_but_its_entry_names_a_connector() -> None:
    found = {str(path.relative_to(PACKAGE)): named_in(path.read_text(encoding="utf-8")) for path in PACKAGE.rglob("*.py")}
    elsewhere = {path: named for path, named in found.items() if named and not path.startswith((ENTRIES, "demo/"))}
    assert {path: named for path, named in elsewhere.items() if path not in ALLOWED} == {}
    assert elsewhere.keys() == ALLOWED


def test_no_entry_names_another() -> None:
    for path in (PACKAGE / ENTRIES).glob("*.py"):
        own = {path.stem, *(name for entry in entries() if getattr(registry, path.stem.upper(), None) is entry for name in entry.names)}
        if path.stem != "registry":
            assert named_in(path.read_text(encoding="utf-8")) <= own, path.name


def test_an_entry_is_data_that_nobody_changes() -> None:
    for entry in entries():
        for item in fields(Connector):
            value = getattr(entry, item.name)
            assert value is None or isinstance(value, str | tuple) or (is_dataclass(value) and value.__dataclass_params__.frozen)  # type: ignore[attr-defined]


def test_every_name_has_one_entry() -> None:
    listed = [name for entry in entries() for name in entry.names]
    assert sorted(listed) == sorted(CONNECTORS)
    assert len({*listed}) == len(listed)


def test_a_flattened_record_carries_what_its_connector_is_recognised_by() -> None:
    for entry, marks in by_flattened_fields():
        assert {*marks.fields} <= {*entry.position.fields} <= {*flattened_fields()}


def test_connectors_with_the_same_flattened_fields_differ_in_how_these_are_spelled() -> None:
    seen: dict[str, list[str]] = {}
    for _, marks in by_flattened_fields():
        for name in marks.fields:
            seen.setdefault(name, []).append(marks.pattern)
    shared = {name: patterns for name, patterns in seen.items() if len(patterns) > 1}
    assert shared.keys() == {"commit_lsn", "change_lsn"}
    # The one without a pattern takes all that the others do not.
    assert all(patterns[-1] == "" and "" not in patterns[:-1] for patterns in shared.values())


def test_a_topic_whose_values_show_their_connector_may_name_the_source_s_too() -> None:
    assert connector_of({"huawei-cdl-2.0", "postgresql"}, "t").names == ("huawei-cdl-1.0", "huawei-cdl-2.0")
