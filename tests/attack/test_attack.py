"""Histories of a source that the code knows nothing of: after each run the table has the source's rows, as far as they were archived."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.attack.history import Outcome, play

pytest.importorskip("duckdb")

FEW, MANY, AT_ONCE = 200, 10_000, 250


def played(seeds: Iterable[int], folder: Path) -> list[Outcome]:
    """Play histories with the native engine, which has no Spark to ask; none may fail."""
    outcomes = [play(seed, folder / str(seed)) for seed in seeds]
    failed = [outcome for outcome in outcomes if outcome.is_failure]
    again = "each is a history: python -m tests.attack SEED --shrink"
    assert not failed, "\n".join([f"{len(failed)} of {len(outcomes)} histories went wrong; {again}", *map(str, failed)])
    return outcomes


def test_tables_are_their_sources(tmp_path: Path) -> None:
    outcomes = played(range(FEW), tmp_path)
    # The others are Spark's from their first microbatch on.
    assert sum(outcome.runs > 0 for outcome in outcomes) >= FEW / 2


@pytest.mark.deep
@pytest.mark.parametrize("first", range(FEW, MANY, AT_ONCE))
def test_tables_of_many_more_are_theirs(first: int, tmp_path: Path) -> None:
    played(range(first, min(first + AT_ONCE, MANY)), tmp_path)
