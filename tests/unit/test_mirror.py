"""The folders of unit tests are the package's rooms, and each file is named for the module that it tests."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
MIRRORED = ("model", "pipeline")
TOGETHER = {
    "model/catalogue/test_modes.py",
    "model/catalogue/test_types.py",
    "model/state/test_flow_state.py",
    "model/state/test_state_documents.py",
    "pipeline/target/test_requests_of_delta_rs.py",
}
"""Tests of more than a module: every type in every mode, what a flow's files say together, every kind of state document, what a library
asks of a store by our options."""


@pytest.mark.parametrize("part", MIRRORED)
def test_each_unit_test_is_named_for_a_module_of_its_room(part: str) -> None:
    tests = ROOT / "tests/unit"
    found = {path.relative_to(tests) for path in (tests / part).rglob("test_*.py")}
    assert len(found) > 20

    strays = {
        str(path)
        for path in found
        if not (ROOT / "airflow_cdc" / path.parent / f"{path.stem.removeprefix('test_')}.py").is_file() and str(path) not in TOGETHER
    }

    assert strays == set()


def test_what_is_excused_is_there() -> None:
    assert {name for name in TOGETHER if not (ROOT / "tests/unit" / name).is_file()} == set()
