"""Full snapshots: in which lanes each is proven."""

from __future__ import annotations

import pytest

from airflow_cdc.model.position.lives import LANES
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.snapshot import Snapshot

ANEW, RAISED, ELSEWHERE = str(LANES), "1", str(LANES + 1)


def seen(reads: dict[str, int], passed: set[str]) -> Snapshot:
    return Snapshot(Position(61, -1, -1), is_first=False, is_complete=True, last_offsets=reads, begins=reads, passed=frozenset(passed))


@pytest.mark.parametrize(
    ("snapshot", "lacks"),
    [
        pytest.param(seen({ANEW: 22, RAISED: 6}, {ANEW, RAISED}), set(), id="a partition added to the topic made anew, which holds reads"),
        pytest.param(seen({ANEW: 22, RAISED: 6}, {ANEW}), {RAISED}, id="the same, without events behind the reads"),
        pytest.param(seen({ANEW: 22}, {ANEW}), {ELSEWHERE}, id="a partition that only the earlier life had"),
        pytest.param(seen({ANEW: 22}, {ANEW, RAISED}), {ELSEWHERE}, id="the same, whose earlier life goes on behind the position"),
        pytest.param(seen({"0": 3, ANEW: 22}, {ANEW}), {"0", ELSEWHERE}, id="reads of two lives, the earlier ending within the snapshot"),
    ],
)
def test_a_snapshot_lacks_the_lanes_in_which_it_is_not_passed(snapshot: Snapshot, lacks: set[str]) -> None:
    assert snapshot.lacks(frozenset({"0", RAISED, ANEW})) == lacks


@pytest.mark.parametrize(("lanes", "life"), [([], 0), (["-"], 0), (["0", "1"], 0), (["0", ANEW, "-"], 1), ([str(-LANES)], -1)])
def test_a_snapshot_is_of_the_newest_life_that_holds_reads_of_it(lanes: list[str], life: int) -> None:
    assert seen(dict.fromkeys(lanes, 5), set()).life == life
