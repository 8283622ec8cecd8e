"""Whether transactions are archived whole past a moment, asked of a capture's own files and of what runs have looked into."""

from __future__ import annotations

import gzip
import json
import re
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.set_aside import UNREADABLE, set_aside
from airflow_cdc.model.archive.transactions import LogStart, OpenTransactions, Place, Transaction, TransactionLedger
from airflow_cdc.model.errors import ConfigurationError, UnreadableFileError
from airflow_cdc.model.look.whole_cut import WholeCut, find_whole_cuts
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.model.state.ledger import Ledger
from tests.support.scene import Scene

CAPTURES = Path(__file__).parents[3] / "golden" / "captures"


@pytest.fixture
def scene(tmp_path: Path) -> Scene:
    return Scene(tmp_path)


def write(scene: Scene, name: str, *values: Any) -> None:
    (scene.archive / name).parent.mkdir(exist_ok=True)
    (scene.archive / name).write_text("".join(json.dumps(value) + "\n" for value in values))


def end(number: int, lsn: int, **counts: int) -> dict[str, Any]:
    collections = [{"data_collection": name, "event_count": count} for name, count in counts.items()]
    return {"status": "END", "id": f"{number}:{lsn}", "ts_ms": 1_800_000_000_000 + lsn, "data_collections": collections}


def event(number: int, lsn: int, order: int) -> dict[str, Any]:
    return {"op": "c", "after": {"id": 1}, "transaction": {"id": f"{number}:{lsn}", "total_order": 1, "data_collection_order": order}}


def asked(scene: Scene, past: str | None = None, *connectors: str) -> dict[str, WholeCut]:
    return find_whole_cuts(**scene.places, connectors=connectors, past=parse_as_of(past) if past else None)


def shop(scene: Scene, past: str | None = None) -> tuple[bool, str | None, list[str]]:
    cut = asked(scene, past)["shop"]
    return cut.is_past, cut.transaction, [item.transaction for item in cut.waits_for]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("capture", "prefix", "last"), [pytest.param("pg_load", "shop", "5344", marks=pytest.mark.deep), ("maria_load", "msh", "0-1-6025")]
)
def test_a_captures_last_transaction_is_whole_until_one_of_its_events_is_missing(
    scene: Scene, capture: str, prefix: str, last: str
) -> None:
    shutil.copytree(CAPTURES / capture / "archive" / "schema", scene.archive, dirs_exist_ok=True)
    found = asked(scene)
    assert {name: (cut.is_past, cut.transaction, cut.waits_for) for name, cut in found.items()} == {prefix: (True, last, ())}
    ended = found[prefix].committed_at
    assert ended is not None

    # A sink is behind: the last half of one table is not archived yet.
    table = max((path for path in scene.archive.iterdir() if "transaction" not in path.name), key=lambda path: path.stat().st_size)
    lines = gzip.decompress(table.read_bytes()).splitlines(keepends=True)
    table.write_bytes(gzip.compress(b"".join(lines[: len(lines) // 2])))
    behind = asked(scene, ended)[prefix]
    assert not behind.is_past
    assert behind.waits_for
    assert behind.transaction not in (None, last, *(item.transaction for item in behind.waits_for))


def test_an_end_with_all_its_events_makes_a_cut_and_one_that_lacks_some_stops_it(scene: Scene) -> None:
    assert asked(scene) == {}
    write(scene, "shop.transaction.jsonl", end(1, 10, a=2), end(2, 20, a=1), end(3, 30, b=7))
    write(scene, "shop.a.jsonl", event(1, 9, 1), event(1, 10, 2))
    # Of table b nothing is archived: nobody expects it.
    assert shop(scene) == (True, "1", ["2"])
    assert (shop(scene, "10")[0], shop(scene, "0/A")[0], shop(scene, "11")[0]) == (True, True, False)
    write(scene, "shop.a-2.jsonl", {"topic": "shop.a", "value": json.dumps({"payload": event(2, 20, 1)})}, "no record")
    assert shop(scene) == (True, "3", [])
    assert asked(scene, None, "shop", "other")["other"] == WholeCut(is_past=False)


def test_beyond_what_the_lake_shows(scene: Scene) -> None:
    write(scene, "shop.transaction.jsonl", end(1, 10, a=1))
    write(scene, "shop.a.jsonl", event(1, 10, 1))
    scene.survey()
    survey = next(scene.state.surveys(1, 1))
    kinds = {"shop.transaction": ("transaction",), "shop.a": ("c",)}
    ledger = Ledger(1, scene.state.ledger().folders, dict.fromkeys(kinds, 1), kinds, dict.fromkeys(kinds, 1))
    assert survey.number == ledger.surveyed_through
    # A run has looked into it, and has merged it.
    found = [Transaction("1", {"a": 1}, {"shop.a": ((1, 1),)}, 1, Place((10,), 10, 10))]
    scene.state.write_transactions(TransactionLedger().with_survey(1, {"shop": found}, ["shop.a"]))
    assert asked(scene, None, "shop")["shop"] == WholeCut(is_past=False)

    shapes = [replace(shape, kind=kinds[shape.topic][0]) for shape in survey.shapes]
    scene.state = type(scene.state)(scene.fs, str(scene.lake) + "-2", str(scene.archive))
    scene.lake = Path(f"{scene.lake}-2")
    scene.state.add(replace(survey, shapes=tuple(shapes)))
    scene.state.write_transactions(TransactionLedger().with_survey(1, {"shop": found}, ["shop.a"]))
    assert shop(scene) == (True, "1", []), "looked into, and not merged"
    # The time of its END is read from the file that holds it.
    assert shop(scene, "2027-01-15T08:00:00.010Z")[0] is True
    assert shop(scene, "2027-01-15T08:00:00.011Z")[0] is False


def test_what_a_sensor_cannot_read_or_compare_is_an_error(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    write(scene, "shop.transaction.jsonl", {**end(1, 10, a=1), "id": "0-1-77"})
    write(scene, "shop.a.jsonl", {**event(1, 10, 1), "transaction": {"id": "0-1-77", "data_collection_order": 1}})
    with pytest.raises(ConfigurationError, match=r"'10' cannot be compared.*Next step: Give a time"):
        asked(scene, "10")
    monkeypatch.setattr("airflow_cdc.model.look.whole_cut.MOST_BYTES", 10)
    cut = asked(scene)["shop"]
    assert (cut.is_past, cut.unread_bytes > 10) == (False, True)
    monkeypatch.undo()
    (scene.archive / "shop.a.parquet").write_bytes(b"PAR1")
    with pytest.raises(ConfigurationError, match=r"shop\.a\.parquet.*without Spark.*Next step"):
        asked(scene)


def test_a_namesake_of_an_earlier_epoch_of_the_log_proves_nothing(scene: Scene) -> None:
    """The server was restored: transaction 1 comes again, at a lower position, as another one."""
    # A run has found that the log went back at 100, and has merged nothing of it.
    known = OpenTransactions(start=LogStart(1, 1_800_000_000_100))
    scene.state.write_transactions(TransactionLedger(0, {"shop": known}))
    source = {"source": {"ts_ms": 1_800_000_000_100}}
    write(scene, "shop.transaction.jsonl", end(1, 50, a=1), {**end(1, 20, a=2), "ts_ms": 1_800_000_000_100})
    write(scene, "shop.a.jsonl", {**event(1, 50, 1), "source": {"ts_ms": 1_800_000_000_050}}, {**event(1, 20, 1), **source})
    assert shop(scene) == (False, None, ["1"])
    write(scene, "shop.a-2.jsonl", {"topic": "shop.a", "value": json.dumps({**event(1, 20, 2), **source})})
    assert shop(scene) == (True, "1", [])
    with pytest.raises(ConfigurationError, match="cannot be compared with its ENDs"):
        shop(scene, "20@2")


def put_aside(scene: Scene, path: str) -> None:
    """Set a file aside as a run does that cannot read it."""
    (file,) = (each for each in list_archive(scene.fs, scene.root).files if each.path == path)
    aside = set_aside(scene.fs, scene.root, file, reason=UNREADABLE, detail="cut off", since="2026-01-01T00:00:00+00:00")
    scene.state.write_set_aside([aside])


@pytest.mark.parametrize("known", [True, False], ids=["of a table with other files", "the only one of its table"])
def test_a_file_that_no_run_can_read_is_named_and_neither_waited_for_nor_passed_over(scene: Scene, *, known: bool) -> None:
    first, bad = (f"shop.b+0+{offset:010d}.json" for offset in (0, 1))
    write(scene, "shop.transaction.jsonl", end(1, 10, a=1, b=1))
    write(scene, "shop.a.jsonl", event(1, 10, 1))
    write(scene, bad)
    if known:
        write(scene, first, event(0, 5, 1))
    put_aside(scene, bad)
    with pytest.raises(UnreadableFileError, match=rf"Connector shop: 1 archived files cannot be read.* {re.escape(bad)} \(cut off\)"):
        asked(scene)
    # Moved away, it is lacking like any other file; with its table, nobody expects it.
    (scene.archive / bad).unlink()
    assert shop(scene) == ((False, None, ["1"]) if known else (True, "1", []))


def test_a_transaction_topic_of_which_a_file_cannot_be_read_is_no_reason_to_wait(scene: Scene) -> None:
    write(scene, "shop.transaction.jsonl.gz")
    write(scene, "shop.a.jsonl", event(1, 10, 1))
    put_aside(scene, "shop.transaction.jsonl.gz")
    with pytest.raises(UnreadableFileError, match=r"shop\.transaction\.jsonl\.gz"):
        asked(scene)


def test_a_file_that_cannot_be_read_does_not_stop_a_cut_that_is_far_enough(scene: Scene) -> None:
    write(scene, "shop.transaction.jsonl", end(1, 10, a=1), end(2, 20, a=1))
    write(scene, "shop.a.jsonl", event(1, 10, 1))
    write(scene, "nobody knows.jsonl")
    put_aside(scene, "nobody knows.jsonl")
    assert shop(scene, "10") == (True, "1", ["2"])
    with pytest.raises(UnreadableFileError, match="nobody knows"):
        shop(scene, "20")
