"""State files: created by exactly one writer, replaced in one step, read as what they are or not at all."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.files import create_json, name_digest, read_json, replace_json, short_hash

DOCUMENT = {"text": "naïve „x“\n", "number": 2**70, "list": [1, None, True], "map": {"é": {}}}


@pytest.fixture(params=["file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Any, str]]:
    """A file system and an empty folder in it."""
    if request.param == "file":
        yield fsspec.filesystem("file"), str(tmp_path)
        return
    fs = fsspec.filesystem("memory")
    root = "/test_files"
    yield fs, root
    if fs.exists(root):
        fs.rm(root, recursive=True)


def test_what_is_created_is_read_back_and_the_folders_are_made(place: tuple[Any, str]) -> None:
    fs, root = place
    assert read_json(fs, f"{root}/a/b/1.json") is None
    assert create_json(fs, f"{root}/a/b/1.json", DOCUMENT) is True
    assert read_json(fs, f"{root}/a/b/1.json") == DOCUMENT


def test_a_second_creation_changes_nothing(place: tuple[Any, str]) -> None:
    fs, root = place
    path = f"{root}/1.json"
    assert [create_json(fs, path, {"writer": number}) for number in (1, 2, 3)] == [True, False, False]
    assert read_json(fs, path) == {"writer": 1}
    assert [Path(found).name for found in fs.find(root)] == ["1.json"]


def test_a_replacement_is_the_new_document_and_leaves_nothing_else_behind(place: tuple[Any, str]) -> None:
    fs, root = place
    path = f"{root}/deep/checkpoint.json"
    for number in (1, 2):
        replace_json(fs, path, {"number": number})
        assert read_json(fs, path) == {"number": number}
    assert [Path(found).name for found in fs.find(root)] == ["checkpoint.json"]


def test_exactly_one_of_many_threads_creates_a_file(tmp_path: Path) -> None:
    fs = fsspec.filesystem("file")
    writers, rounds = 8, 20
    together = threading.Barrier(writers)

    def write(writer: int) -> list[bool]:
        won = []
        for number in range(rounds):
            together.wait()
            won.append(create_json(fs, f"{tmp_path}/{number}.json", {"writer": writer, "padding": "x" * 10_000}))
        return won

    with ThreadPoolExecutor(writers) as pool:
        results = list(pool.map(write, range(writers)))

    for number in range(rounds):
        winners = [writer for writer in range(writers) if results[writer][number]]
        assert len(winners) == 1, (number, winners)
        written = read_json(fs, f"{tmp_path}/{number}.json")
        assert written is not None
        assert written["writer"] == winners[0]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(f"{number}.json" for number in range(rounds))


def test_a_reader_sees_the_old_or_the_new_document_and_never_a_part(tmp_path: Path) -> None:
    fs = fsspec.filesystem("file")
    path = f"{tmp_path}/checkpoint.json"
    versions = [{"number": number, "padding": "x" * (50_000 * number)} for number in range(4)]
    replace_json(fs, path, versions[0])
    stop = threading.Event()
    seen: set[int] = set()

    def watch() -> None:
        while not stop.is_set():
            document = read_json(fs, path)
            assert document in versions
            seen.add(document["number"])

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(watch) for _ in range(2)]
        for turn in range(200):
            replace_json(fs, path, versions[turn % 4])
        stop.set()
        for reader in readers:
            reader.result(timeout=30)
    assert len(seen) > 1


def test_a_write_that_dies_half_way_leaves_the_old_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fs = fsspec.filesystem("file")
    path = f"{tmp_path}/checkpoint.json"
    replace_json(fs, path, {"number": 1})

    def die(_: int) -> None:
        raise OSError("disk is full")

    monkeypatch.setattr("airflow_cdc.model.files.os.fsync", die)
    with pytest.raises(OSError, match="disk is full"):
        replace_json(fs, path, {"number": 2})
    with pytest.raises(OSError, match="disk is full"):
        create_json(fs, f"{tmp_path}/intent.json", {"number": 2})

    assert read_json(fs, path) == {"number": 1}
    assert read_json(fs, f"{tmp_path}/intent.json") is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        (b"", "is not JSON"),
        (b'{"number": 1', "is not JSON"),
        (b"\xff\xfe", "is not JSON"),
        (b"[1]", "holds no JSON object"),
        (b"null", "holds no JSON object"),
        (b'"text"', "holds no JSON object"),
    ],
)
def test_a_broken_state_file_is_named(place: tuple[Any, str], text: bytes, complaint: str) -> None:
    fs, root = place
    path = f"{root}/checkpoint.json"
    fs.pipe_file(path, text)
    with pytest.raises(StateUnreadableError) as raised:
        read_json(fs, path)
    assert path in raised.value.message
    assert complaint in raised.value.message
    assert raised.value.next_step.startswith("Restore it")
    assert raised.value.transient is False


def test_what_is_written_is_readable_text(tmp_path: Path) -> None:
    replace_json(fsspec.filesystem("file"), f"{tmp_path}/x.json", {"é": 1})
    assert json.loads((tmp_path / "x.json").read_text(encoding="utf-8")) == {"é": 1}
    assert "é" in (tmp_path / "x.json").read_text(encoding="utf-8")


def test_names_have_stable_short_forms() -> None:
    # They name folders and stand in ledgers that live for years: computed once by sha256sum and b2sum -l 64.
    assert short_hash("file:///archive") == "3c2244ff7401"
    assert name_digest("a.jsonl") == 0xF23DA8341D99CEDE


class ReplacedMeanwhile:
    """A store whose client refuses the first reads of an object, as S3's does while another run replaces it."""

    def __init__(self, *, refused: int) -> None:
        self.refused = refused

    def cat_file(self, path: str) -> bytes:
        if self.refused:
            self.refused -= 1
            raise RuntimeError("Expected checksum gnKy6A== did not match calculated checksum: PCOAig==")
        return b'{"number": 2}'


def test_an_object_that_is_replaced_while_it_is_read_is_read_again() -> None:
    store: Any = ReplacedMeanwhile(refused=2)
    assert read_json(store, "ledger.json") == {"number": 2}


def test_an_object_that_stays_refused_raises_the_clients_error() -> None:
    store: Any = ReplacedMeanwhile(refused=3)
    with pytest.raises(RuntimeError, match="did not match"):
        read_json(store, "ledger.json")
    assert store.refused == 0
