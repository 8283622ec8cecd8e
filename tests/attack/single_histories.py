"""Histories as tests of their own: ``make mutate`` asks which of them run a place of the code (elsewhere `test_attack` plays them)."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.attack.history import play


@pytest.mark.parametrize("seed", range(80))
def test_the_table_is_its_source(seed: int, tmp_path: Path) -> None:
    outcome = play(seed, tmp_path)
    assert not outcome.is_failure, outcome
