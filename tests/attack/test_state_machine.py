"""Whatever happens to an archive and a lake, in whatever order: behind each run the table has the source's rows."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.attack.machine import ArchiveAndLake

pytest.importorskip("duckdb")

_USUAL = settings(deadline=None, database=None, derandomize=True, suppress_health_check=list(HealthCheck), report_multiple_bugs=False)


def test_a_few_steps() -> None:
    run_state_machine_as_test(ArchiveAndLake, settings=settings(_USUAL, max_examples=15, stateful_step_count=15))
    assert ArchiveAndLake.done["done"] >= 15, ArchiveAndLake.done


@pytest.mark.deep
@pytest.mark.parametrize("part", range(10))
def test_ten_thousand_steps(part: int) -> None:
    # Each part begins at its own random place; what fails is printed as steps that can be run again.
    few = settings(_USUAL, derandomize=False, max_examples=40, stateful_step_count=25, phases=[Phase.generate, Phase.shrink])
    run_state_machine_as_test(ArchiveAndLake, settings=few)
