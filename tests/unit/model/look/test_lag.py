"""How far tables are behind, and whether their snapshots are whole, by the lake's own state."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.archive.set_aside import UNREADABLE, set_aside
from airflow_cdc.model.look.lag import Lag, find_lag, lag_summary
from airflow_cdc.model.look.new_files import find_new_files
from airflow_cdc.model.look.snapshot_state import snapshot_state
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.snapshot import Snapshot
from tests.support.scene import Scene
from tests.support.surveys import FS

NOW = 1_800_000_000.0


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def sunk(topic: str, offset: int) -> str:
    return f"{topic}/partition=0/{topic}+0+{offset:010d}.json"


def lag(scene: Scene, *tables: str) -> tuple[Lag, dict[str, Lag]]:
    return find_lag(**scene.places, tables=tables, now=NOW)


def test_nothing_waits_and_the_lag_is_none_whenever_the_source_committed_last(scene: Scene) -> None:
    assert lag(scene) == (Lag(0, 0, 0.0), {})
    scene.arrive(sunk("t", 0))
    scene.survey()
    scene.commit("t", committed_through=5)
    assert lag(scene) == (Lag(0, 0, 0.0), {})


def test_a_file_that_cannot_be_read_counts_though_no_run_would_take_it(scene: Scene) -> None:
    scene.arrive(sunk("t", 0))
    scene.survey()
    scene.commit("t", committed_through=int(NOW) * 1000)
    scene.arrive(sunk("t", 1))
    (file,) = find_new_files(FS, scene.root, scene.state, scene.state.ledger()).files
    scene.state.write_set_aside([set_aside(FS, scene.root, file, reason=UNREADABLE, detail="cut off", since="2026-11-23")])
    assert scene.waiting() == ([], {}, 0)
    assert scene.pending().stopped == ("t",)
    assert lag(scene) == (Lag(1, 3, 0.0), {"t": Lag(1, 3, 0.0)})


def test_what_waits_counts_from_the_last_commit_that_is_applied(scene: Scene) -> None:
    scene.arrive(sunk("t", 0), sunk("u", 0))
    # Never applied: no bound on the age holds.
    assert lag(scene) == (Lag(2, 6, None), {"t": Lag(1, 3, None), "u": Lag(1, 3, None)})
    scene.survey()
    assert lag(scene)[0] == Lag(2, 6, None)
    scene.commit("t", committed_through=int((NOW - 90.5) * 1000))
    scene.commit("u", committed_through=int((NOW - 10) * 1000))
    scene.arrive(sunk("t", 1), sunk("t", 2), sunk("u", 1))
    scene.survey()
    scene.arrive(sunk("t", 3))
    flows = {"t": Lag(3, 9, 90.5), "u": Lag(1, 3, 10.0)}
    assert lag(scene) == (Lag(4, 12, 90.5), flows)
    assert lag(scene, "u") == (Lag(1, 3, 10.0), {"u": flows["u"]})
    # A name without a topic: it may be of any table, and is one file.
    scene.arrive("any name")
    together, flows = lag(scene)
    assert (together.files, together.bytes, flows["u"].files) == (5, 15, 2)
    assert lag_summary(together, flows)["flows"]["t"] == {"files": 4, "bytes": 12, "seconds": 90.5}


def test_of_no_table_yet_a_file_counts_all_the_same(scene: Scene) -> None:
    scene.arrive("any name")
    assert lag(scene) == (Lag(1, 3, None), {})


def test_bounds() -> None:
    found = Lag(4, 100, 30.0)
    free = {"max_files": None, "max_bytes": None, "max_seconds": None}
    bounds = {"max_files": 4, "max_bytes": 100, "max_seconds": 30.0}
    assert found.is_within(**bounds)
    for name, bound in bounds.items():
        assert not found.is_within(**{**free, name: bound - 1})
    assert not Lag(1, 1, None).is_within(**{**free, "max_seconds": 1e9})
    assert Lag(1, 1, None).is_within(**{**free, "max_files": 1})


def test_the_last_commit_time_outlives_a_later_report_of_an_older_one(scene: Scene) -> None:
    for offset, time in ((0, 50), (1, 40), (2, None)):
        scene.arrive(sunk("t", offset))
        scene.survey()
        scene.commit("t", committed_through=time)
    scene.arrive(sunk("t", 3))
    assert lag(scene)[1]["t"].seconds == NOW - 0.05


def test_a_snapshot_is_whole_once_its_last_read_is_applied(scene: Scene) -> None:
    def state(*tables: str) -> tuple[tuple[str, ...], tuple[str, ...], bool]:
        found = snapshot_state(archive=str(scene.archive), lake_fs=FS, lake_root=str(scene.lake), tables=tables)
        return found.complete, found.missing, found.is_complete

    assert state() == ((), (), False)
    assert state("t") == ((), ("t",), False)
    assert state("!t", "u") == ((), ("u",), False)
    scene.arrive(sunk("t", 0), sunk("u", 0))
    scene.survey()
    assert state() == ((), ("t", "u"), False)
    begun = Snapshot(Position(1), is_first=True)
    scene.commit("t", snapshot=begun)
    assert state("t") == ((), ("t",), False)
    scene.arrive(sunk("t", 1))
    scene.survey()
    scene.commit("t", snapshot=Snapshot(Position(1), is_first=True, is_complete=True))
    assert state() == (("t",), ("u",), False)
    assert state("t", "x*") == (("t",), (), True)
