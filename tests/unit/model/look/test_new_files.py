"""New files are found without listing what is known; what a look passes over is found by the next whole one."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.errors import ArchiveNotFoundError
from airflow_cdc.model.look import new_files
from airflow_cdc.model.look.new_files import SETTLED_SECONDS, WHOLE_LOOK_SECONDS, find_new_files, poke
from airflow_cdc.model.state.ledger import Ledger
from tests.support.scene import Scene
from tests.support.surveys import FS, shape

LATER = SETTLED_SECONDS + 1


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def sunk(topic: str, offset: int, folder: str = "partition=0", ending: str = "json") -> str:
    return f"{topic}/{folder}/{topic}+0+{offset:010d}.{ending}"


def seen(scene: Scene, *, now: float | None = None) -> list[str]:
    """Return what a poke finds."""
    return [file.path for file in poke(scene.fs, scene.root, scene.state, scene.state.ledger(), now=now)]


class Cost:
    """How often folders are listed and paths are asked for, and how many entries came back."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folders: list[str] = []
        self.entries = 0
        self.asked: list[str] = []
        scandir, info = os.scandir, FS.info

        def counted(path: str) -> Any:
            self.folders.append(path.rpartition("/")[2])
            self.entries += len(os.listdir(path))  # noqa: PTH208
            return scandir(path)

        monkeypatch.setattr(new_files.os, "scandir", counted)
        monkeypatch.setattr(FS, "info", lambda path: [self.asked.append(path), info(path)][1])

    def of(self, scene: Scene, *, now: float) -> tuple[list[str], int, int]:
        self.folders, self.entries, self.asked = [], 0, []
        seen(scene, now=now)
        return list(self.folders), self.entries, len(self.asked)


# -- folders that show when they changed ---------------------------------------------------------------------------


def test_a_look_lists_what_changed_and_costs_the_same_however_much_lies_there(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    costs, cost = [], Cost(monkeypatch)
    for count in (20, 400):
        scene.arrive(*(sunk("t", offset, f"hour={hour:02d}") for hour in range(3) for offset in range(count)))
        scene.survey(now=time.time() + LATER)
        quiet = cost.of(scene, now=time.time() + LATER)
        scene.arrive(sunk("t", count * 1000, "hour=03"), sunk("t", count * 1000 + 1, "hour=03"))
        costs.append((quiet, cost.of(scene, now=time.time() + LATER)))
        scene.survey(now=time.time() + LATER)
    few, many = costs
    # Nothing came: no folder is listed, and each is asked for its time.
    assert few[0] == ([], 0, 5)
    assert many[0] == ([], 0, 6)
    # The new folder, and that in which it appeared; each new file is asked for its size.
    assert few[1] == (["t", "hour=03"], 4 + 2, 8)
    # In a folder that lies there, the names are listed, and nothing else is asked of the old ones.
    assert many[1] == (["hour=03"], 4, 8)


def test_in_a_folder_that_changed_only_the_new_files_are_asked_for(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.arrive(*(sunk("t", offset) for offset in range(300)))
    scene.survey()
    scene.arrive(sunk("t", 300))
    assert seen(scene) == [sunk("t", 300)]
    _, _, asked = Cost(monkeypatch).of(scene, now=time.time())
    assert asked == 4, "the root, two folders and one file"


def test_a_folder_that_changed_right_before_the_look_is_listed_again_though_its_time_stands_still(scene: Scene) -> None:
    scene.arrive(sunk("t", 0))
    folder, now = scene.archive / "t/partition=0", time.time()
    os.utime(folder, (now, now))
    scene.survey(now=now + 1)
    # Within one tick of a coarse clock: two seconds on some disks.
    scene.arrive(sunk("t", 1))
    os.utime(folder, (now, now))
    assert seen(scene, now=now + LATER) == [sunk("t", 1)]


def test_a_folder_that_a_copy_gave_its_old_time_is_listed_again(scene: Scene) -> None:
    """``cp -a``, rsync and tar set the modification time of a folder back."""
    scene.arrive(sunk("t", 0))
    folder, old = scene.archive / "t/partition=0", time.time() - 10 * LATER
    os.utime(folder, (old, old))
    scene.survey(now=time.time() + LATER)
    scene.arrive(sunk("t", 1))
    os.utime(folder, (old, old))
    assert seen(scene, now=time.time() + LATER) == [sunk("t", 1)]


def test_a_folder_with_a_wrong_time_makes_its_files_an_hour_late_and_no_more(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    # As HDFS has them: no time that a copy cannot set.
    info = FS.info
    monkeypatch.setattr(FS, "info", lambda path: {name: value for name, value in info(path).items() if name != "created"})
    scene.arrive(sunk("t", 0))
    folder, old = scene.archive / "t/partition=0", time.time() - 10 * LATER
    os.utime(folder, (old, old))
    looked_at = time.time()
    scene.survey(now=looked_at)
    scene.arrive(sunk("t", 1))
    os.utime(folder, (old, old))
    assert seen(scene, now=looked_at + WHOLE_LOOK_SECONDS - 1) == []
    assert seen(scene, now=looked_at + WHOLE_LOOK_SECONDS) == [sunk("t", 1)]
    # A clock that was put back must not make the last whole look last for ever.
    assert seen(scene, now=looked_at - 60) == [sunk("t", 1)]


def test_a_whole_look_is_remembered_but_for_what_nobody_has_surveyed(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.arrive(sunk("t", 0), sunk("u", 0))
    scene.survey()
    later = time.time() + 2 * WHOLE_LOOK_SECONDS
    scene.arrive(sunk("u", 1))
    assert seen(scene, now=later) == [sunk("u", 1)]
    folders, _, _ = Cost(monkeypatch).of(scene, now=later + 1)
    assert folders == ["partition=0"], "of t and u, the one with a new file"
    assert seen(scene, now=later + 1) == [sunk("u", 1)]


def test_late_removed_and_odd_files_are_distinguished(scene: Scene) -> None:
    scene.arrive("x/b", "x/d", "x/notes.md", "x/.b.crc")
    assert scene.survey() == ["x/b", "x/d"]
    # Sorts below what is known, in a folder that lies there.
    scene.arrive("x/c")
    assert seen(scene) == ["x/c"]
    assert scene.survey() == ["x/c"]
    # Removed: nothing is new, and the next look need not read all surveys again.
    (scene.archive / "x/b").unlink()
    assert seen(scene) == []
    assert scene.survey() == []
    assert scene.state.looked().folders["x"].names == 4
    scene.arrive("x/e", "x/more.md", "x/.e.crc")
    found = find_new_files(FS, scene.root, scene.state, scene.state.ledger())
    assert ([file.path for file in found.files], found.ignored) == (["x/e"], ("x/more.md", "x/notes.md"))
    assert scene.survey() == ["x/e"]
    # What lies there is reported by every run, listed or not.
    quiet = find_new_files(FS, scene.root, scene.state, scene.state.ledger(), now=time.time() + LATER)
    assert (quiet.files, quiet.ignored) == ((), ("x/more.md", "x/notes.md"))


def test_a_file_and_its_companion_belong_together_though_one_came_before(scene: Scene) -> None:
    scene.arrive("x/a.json", "x/t+0+0.json")
    scene.survey()
    # Alone they would look like files of a table that is called keys; what the first holds, the survey finds out.
    scene.arrive("x/a.keys.json", "x/b.keys.parquet", "x/t+0+0.keys.json")
    new = find_new_files(FS, scene.root, scene.state, scene.state.ledger()).files
    assert [(file.path, file.may_be_companion) for file in new] == [("x/a.keys.json", True), ("x/b.keys.parquet", False)]
    assert scene.survey() == ["x/a.keys.json", "x/b.keys.parquet"]
    scene.arrive("x/c.keys.snappy.parquet")
    assert scene.survey() == ["x/c.keys.snappy.parquet"]
    scene.arrive("x/c.snappy.parquet")
    (found,) = find_new_files(FS, scene.root, scene.state, scene.state.ledger()).files
    assert (found.path, found.keys_path) == ("x/c.snappy.parquet", "x/c.keys.snappy.parquet")


def test_what_a_run_surveyed_that_died_before_it_wrote_down_its_look_is_not_new(scene: Scene) -> None:
    scene.arrive("x/a")
    scene.survey()
    before = scene.state.looked()
    scene.arrive("x/b")
    assert scene.survey() == ["x/b"]
    scene.state.write_looked(before)
    assert seen(scene) == []
    scene.arrive("x/c")
    assert seen(scene) == ["x/c"]


def test_a_folder_that_is_gone_takes_its_files_along(scene: Scene) -> None:
    scene.arrive("x/y/a", "z/b")
    scene.survey()
    (scene.archive / "x/y/a").unlink()
    (scene.archive / "x/y").rmdir()
    assert scene.survey() == []
    assert set(scene.state.looked().folders) == {"", "x", "z"}


def test_a_lake_that_cannot_be_written_is_looked_at_all_the_same(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    scene.arrive("a")
    scene.survey()
    scene.arrive("b")

    def refuse(*_: object) -> None:
        raise PermissionError("read only")

    monkeypatch.setattr(type(scene.state), "write_looked", refuse)
    assert seen(scene, now=time.time() + 2 * WHOLE_LOOK_SECONDS) == ["b"]


names = st.sampled_from(["a", "b", "c", "b.json", "b.keys.json", "n.md", ".h", "c.parquet", "c.keys.parquet"])
paths = st.builds("{}{}".format, st.sampled_from(["", "x/", "x/y/", "z=1/"]), names)


@given(st.lists(st.tuples(st.sets(paths, max_size=6), st.sets(paths, max_size=3), st.booleans()), max_size=5))
# One that went and a late one that came below the greatest name are as many as before.
@example([({"x/b"}, set(), False), ({"x/a"}, {"x/b"}, False), (set(), set(), False)])
@settings(deadline=None, max_examples=25)
def test_looks_find_what_a_whole_listing_finds(rounds: list[tuple[set[str], set[str], bool]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scene = Scene(Path(folder))
        now = time.time()
        for arrived, removed, settled in rounds:
            now += 2 * SETTLED_SECONDS
            gone = [scene.archive / path for path in removed - arrived if (scene.archive / path).exists()]
            came = [path for path in arrived if not (scene.archive / path).exists()]
            for path in gone:
                path.unlink()
            scene.arrive(*came)
            for path in [*gone, *(scene.archive / path for path in came)]:
                for parent in [path.parent, *path.parent.parents][: len(path.relative_to(scene.archive).parts)]:
                    os.utime(parent, (now, now))
            ledger = scene.state.ledger()
            truth = [file.path for file in scene.state.unsurveyed(list_archive(FS, scene.root).files, ledger)]
            seen = [file.path for file in find_new_files(FS, scene.root, scene.state, ledger, now=now).files]
            assert seen == truth
            now += LATER if settled else 1
            scene.survey(now=now)


# -- object stores -------------------------------------------------------------------------------------------------


class Bucket(MemoryFileSystem):
    """Objects by key, with S3's own call beside fsspec's, and listings that are remembered as s3fs and adlfs remember them."""

    cachable = False
    store: dict[str, Any] = {}  # noqa: RUF012
    pseudo_dirs: list[str] = [""]  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.pages: list[tuple[str, int]] = []
        self.finds = 0
        self.remembered: dict[str, Any] = {}

    def find(self, path: str, **arguments: Any) -> Any:
        self.finds += 1
        if path not in self.remembered:
            self.remembered[path] = super().find(path, **arguments)
        return self.remembered[path]

    def invalidate_cache(self, path: str | None = None) -> None:
        self.remembered.clear()

    def call_s3(self, method: str, **asked: Any) -> dict[str, Any]:
        assert method == "list_objects_v2"
        keys = sorted(key.removeprefix(f"/{asked['Bucket']}/") for key in self.store if key.startswith(f"/{asked['Bucket']}/"))
        after = max(asked.get("StartAfter", ""), asked.get("ContinuationToken", ""))
        prefix, contents, folders = asked["Prefix"], [], {}
        for key in (key for key in keys if key.startswith(prefix) and key > after):
            head, slash, _ = key.removeprefix(prefix).partition("/")
            if asked.get("Delimiter") and slash:
                folders[f"{prefix}{head}/"] = key
            else:
                contents.append({"Key": key, "Size": len(self.store[f"/{asked['Bucket']}/{key}"].getvalue())})
        page, rest = contents[:3], contents[3:]
        self.pages.append((prefix, len(page) + len(folders)))
        more = {"IsTruncated": True, "NextContinuationToken": page[-1]["Key"]} if rest else {}
        return {"Contents": page, "CommonPrefixes": [{"Prefix": name} for name in folders], **more}


@pytest.fixture
def bucket(scene: Scene) -> Iterator[Scene]:
    scene.fs, scene.root = Bucket(), "/bucket/topics"
    yield scene
    Bucket.store.clear()


def put(scene: Scene, *keys: str) -> None:
    for key in keys:
        scene.fs.pipe_file(f"/bucket/topics/{key}", b"{}\n")


def hourly(topic: str, hour: int, partition: int, offset: int) -> str:
    return f"{topic}/year=2026/month=11/day=21/hour={hour:02d}/{topic}+{partition}+{offset:010d}.json"


def listed(scene: Scene, keys: Iterable[str]) -> tuple[int, int]:
    scene.fs, scene.root = Bucket(), "/bucket/topics"
    put(scene, *keys)
    scene.survey()
    scene.fs.pages.clear()
    put(scene, sunk("t", 10**6), hourly("u", 23, 0, 10**6))
    assert seen(scene) == [sunk("t", 10**6), hourly("u", 23, 0, 10**6)]
    return len(scene.fs.pages), sum(entries for _, entries in scene.fs.pages)


def test_a_poke_lists_s3_behind_what_is_known(bucket: Scene, tmp_path_factory: pytest.TempPathFactory) -> None:
    few = listed(bucket, [*(sunk("t", offset) for offset in range(5)), hourly("u", 1, 0, 0), hourly("u", 2, 1, 0)])
    Bucket.store.clear()
    many = listed(
        Scene(tmp_path_factory.mktemp("many")),
        [*(sunk("t", offset) for offset in range(90)), *(hourly("u", hour, hour % 2, hour) for hour in range(23))],
    )
    assert many == few


def test_a_poke_finds_new_partitions_hours_and_topics_and_lists_the_last_hour_again(bucket: Scene) -> None:
    put(bucket, sunk("t", 0), hourly("u", 1, 0, 5), hourly("u", 1, 1, 5))
    bucket.survey()
    new = [sunk("t", 0, "partition=1"), hourly("u", 1, 0, 9), hourly("u", 2, 0, 10), sunk("v", 0), "loose.jsonl"]
    put(bucket, *new)
    # Partition 0's file sorts below partition 1's of the same hour.
    assert seen(bucket) == sorted(new)
    assert bucket.fs.finds == 1, "the survey's"


def test_what_sorts_below_is_found_by_every_run_and_by_a_poke_after_an_hour(bucket: Scene) -> None:
    put(bucket, sunk("t", 5), hourly("u", 5, 0, 5))
    bucket.survey()
    late = [sunk("t", 4), hourly("u", 4, 0, 4)]
    put(bucket, *late)
    assert seen(bucket) == []
    assert seen(bucket, now=time.time() + WHOLE_LOOK_SECONDS) == late
    assert bucket.survey() == late


def test_a_layout_whose_names_have_no_order_is_listed_whole_at_every_poke(bucket: Scene) -> None:
    put(bucket, "a.jsonl", sunk("t", 0))
    bucket.survey()
    put(bucket, "0.jsonl")
    assert seen(bucket) == ["0.jsonl"]


def test_listings_of_long_ago_do_not_hide_what_came(bucket: Scene) -> None:
    bucket.fs.call_s3 = None
    put(bucket, sunk("t", 0))
    assert seen(bucket) == [sunk("t", 0)]
    put(bucket, sunk("t", 1))
    assert seen(bucket) == [sunk("t", 0), sunk("t", 1)]


def test_an_archive_that_is_gone_is_an_error_wherever_it_lay(scene: Scene, bucket: Scene) -> None:
    with pytest.raises(ArchiveNotFoundError, match=r"no archive at /bucket/topics.*Next step"):
        seen(bucket)


def test_a_file_that_changed_is_new_again_for_looks_and_pokes_alike(scene: Scene) -> None:
    scene.arrive("x/a", "x/b", "y/c")
    old = time.time() - 2 * SETTLED_SECONDS
    for folder in ("x", "y"):
        os.utime(scene.archive / folder, (old, old))
    scene.survey()
    with (scene.archive / "x" / "a").open("a") as file:
        file.write("{}\n")
    os.utime(scene.archive / "x", (old, old))
    # Its folder does not show it: within the hour nobody asks.
    assert seen(scene) == []
    later = time.time() + WHOLE_LOOK_SECONDS + 1
    ledger = scene.state.ledger()
    assert [file.path for file in poke(FS, scene.root, scene.state, ledger, now=later)] == ["x/a"]
    # The sensor's look was the whole one of this hour; the run that it calls for finds the file all the same.
    assert scene.survey(now=later + 1) == ["x/a"]


def test_a_changed_file_is_of_the_newer_survey_alone(scene: Scene) -> None:
    scene.arrive("x/a", "x/b")
    scene.survey()
    scene.commit("a")
    (scene.archive / "x" / "a").write_text("{}\n{}\n")
    (scene.archive / "x" / "b").write_text("{}\n{}\n")
    found = find_new_files(FS, scene.root, scene.state, scene.state.ledger(), now=time.time() + WHOLE_LOOK_SECONDS + 1)
    ledger = scene.state.ledger()
    replaced = scene.state.replaced(found.files, ledger)
    assert [(item.path, item.survey, item.size) for item in replaced] == [("x/a", 1, 3), ("x/b", 1, 3)]
    shapes = tuple(shape(file.path, file.topic) for file in found.files)
    assert scene.state.add(Survey(scene.state.archive, 2, found.files, shapes, replaces=replaced))
    ledger = scene.state.ledger()
    assert ledger == Ledger.from_json(ledger.to_json())
    assert (ledger.folders["x"].count, ledger.folders["x"].size, ledger.void) == (2, 12, {1: frozenset({"x/a", "x/b"})})
    # One applied it before, the other did not: both read it once, as it is now.
    assert scene.pending().planned == {"a": 1, "b": 1}
    assert seen(scene, now=time.time() + 3 * WHOLE_LOOK_SECONDS) == []
