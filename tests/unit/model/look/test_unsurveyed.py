"""A listing for who only looks: by topic where the path names it, cheap the next time, bounded, and nothing is written."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from fsspec.implementations.memory import MemoryFileSystem

from airflow_cdc.model.errors import ArchiveNotFoundError
from airflow_cdc.model.look import unsurveyed
from airflow_cdc.model.look.new_files import TooManyFilesError
from airflow_cdc.model.look.unsurveyed import Landed, list_unsurveyed
from tests.support.scene import Scene


def land(scene: Scene, path: str, size: int, at: float) -> None:
    file = Path(scene.root, path)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b" " * size)
    os.utime(file, (at, at))


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def test_files_are_counted_by_the_topic_that_their_path_names(scene: Scene) -> None:
    land(scene, "a/partition=0/a+0+0000000000.json", 10, 2_000)
    land(scene, "a/partition=0/a+0+0000000009.json", 5, 1_000)
    land(scene, "b+1+0000000000.json", 7, 3_000)
    land(scene, "whatever.jsonl", 3, 4_000)
    found, _ = list_unsurveyed(scene.fs, scene.root, scene.state, scene.state.ledger())
    assert found.by_topic == {"a": Landed(2, 15, 1_000), "b": Landed(1, 7, 3_000)}
    assert (found.others, found.failure, found.at > 0) == (Landed(1, 3, 4_000), "", True)


def test_what_a_listing_found_is_found_by_the_next_one_too_and_nothing_is_written(scene: Scene) -> None:
    land(scene, "a/a+0+0000000000.json", 10, 2_000)
    before = sorted(map(str, Path(scene.root).parent.rglob("*")))
    known = None
    for _ in range(3):
        found, known = list_unsurveyed(scene.fs, scene.root, scene.state, scene.state.ledger(write=False), known)
        assert found.by_topic == {"a": Landed(1, 10, 2_000)}
    land(scene, "a/a+0+0000000005.json", 1, 2_500)
    found, _ = list_unsurveyed(scene.fs, scene.root, scene.state, scene.state.ledger(write=False), known)
    assert found.by_topic == {"a": Landed(2, 11, 2_000)}
    (Path(scene.root) / "a/a+0+0000000005.json").unlink()
    assert sorted(map(str, Path(scene.root).parent.rglob("*"))) == before


def test_an_archive_that_is_not_there_is_no_empty_one(scene: Scene) -> None:
    with pytest.raises(ArchiveNotFoundError):
        list_unsurveyed(scene.fs, f"{scene.root}/nothing", scene.state, scene.state.ledger())


def test_a_large_archive_is_not_listed_whole_where_nothing_cheaper_shows_new_files(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unsurveyed, "MOST_LISTED", -1)
    store = MemoryFileSystem()
    store.pipe_file("/archive-of-unsurveyed/a+0+0000000000.json", b"{}")
    with pytest.raises(TooManyFilesError):
        list_unsurveyed(store, "/archive-of-unsurveyed", scene.state, scene.state.ledger())
