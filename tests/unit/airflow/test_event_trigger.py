"""The watcher's trigger: it announces each file once, over restarts too, whether or not anybody merges."""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from airflow.sdk import Asset
from airflow.triggers.base import BaseEventTrigger

from airflow_cdc.model.archive.announced import MOST_NAMED, Announced
from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.triggers import archive_event
from airflow_cdc.triggers.archive_event import CdcArchiveEventTrigger

TOPIC, OTHER_TOPIC = "server.db.orders", "server.db.customers"


class Store:
    """What Airflow 3.3 hands to a watcher's trigger: JSON values by key, kept beyond the trigger's life."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.is_down = False

    async def aget(self, key: str, default: Any = None) -> Any:
        if self.is_down:
            raise ConnectionError("the API server is gone")
        return json.loads(self.kept[key]) if key in self.kept else default

    async def aset(self, key: str, value: Any) -> None:
        if self.is_down:
            raise ConnectionError("the API server is gone")
        self.kept[key] = json.dumps(value)


@pytest.fixture(autouse=True)
def hand_over_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive_event, "HAND_OVER_SECONDS", 0.0)


def watcher(store: Store | None, **arguments: Any) -> CdcArchiveEventTrigger:
    trigger = CdcArchiveEventTrigger(**{"poke_interval": 0.01, **arguments})
    trigger.asset_state_store = store
    return trigger


def watched(trigger: CdcArchiveEventTrigger, *steps: Callable[[], Any], seconds: float = 0.25) -> list[list[Any]]:
    """Let the trigger look, take each step, let it look again, and stop it as a triggerer does; return the events after each."""

    async def story() -> list[list[Any]]:
        events: list[Any] = []

        async def collect() -> None:
            async for event in trigger.run():
                events.extend([event.payload])

        task = asyncio.ensure_future(collect())
        found = []
        for step in (lambda: None, *steps):
            step()
            await asyncio.sleep(seconds)
            assert not task.done(), task
            found.append(events[:])
            events.clear()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        return found

    return asyncio.run(story())


def merge(scene: Any) -> None:
    command = [scene.spark_submit, "--archive", scene.archive, "--lake", scene.lake, "--report", scene.folder / "report.json"]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


def news(files: int, **topics: int) -> dict[str, Any]:
    return {"files": files, "topics": {f"server.db.{name}": count for name, count in topics.items()}}


def together(events: list[Any]) -> dict[str, Any]:
    """Return what some events announce, as one event."""
    topics: Counter[str] = Counter()
    for event in events:
        topics.update(event["topics"])
    return {"files": sum(event["files"] for event in events), "topics": dict(topics)}


def test_it_announces_each_file_once_though_nobody_merges(scene: Any) -> None:
    def two() -> None:
        scene.land("0000000001")
        scene.land("0000000000", topic=OTHER_TOPIC)

    found = watched(watcher(Store()), lambda: scene.land("0000000000"), two, lambda: None)
    # The trigger looks in a thread of its own, perhaps between the two files.
    assert [together(events) for events in found] == [news(0), news(1, orders=1), news(2, customers=1, orders=1), news(0)]


def test_a_restart_of_the_triggerer_neither_loses_nor_repeats(scene: Any) -> None:
    store = Store()
    scene.land("0000000000")
    assert watched(watcher(store)) == [[news(1, orders=1)]]
    # While no triggerer runs: one is still announced, one is new.
    scene.land("0000000001")
    restarted = CdcArchiveEventTrigger(**watcher(store).serialize()[1])
    restarted.asset_state_store = store
    assert watched(restarted) == [[news(1, orders=1)]]
    assert watched(watcher(store)) == [[]]


def test_an_event_that_the_triggerer_had_no_time_to_write_down_comes_again(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Store()
    monkeypatch.setattr(archive_event, "HAND_OVER_SECONDS", 60.0)
    scene.land("0000000000")
    assert watched(watcher(store)) == [[news(1, orders=1)]]
    assert store.kept == {}
    assert watched(watcher(store)) == [[news(1, orders=1)]]


def test_what_a_run_has_looked_into_is_forgotten_and_what_comes_behind_it_is_announced(scene: Any) -> None:
    store = Store()
    scene.land("0000000000")
    found = watched(watcher(store), lambda: merge(scene), lambda: scene.land("0000000001"))
    assert found == [[news(1, orders=1)], [], [news(1, orders=1)]]
    merge(scene)
    assert watched(watcher(store)) == [[]]
    kept = json.loads(store.kept[archive_event.KEY])
    assert (kept["count"], kept["digest"], kept["names"]) == (0, "0", [])


def test_before_airflow_3_3_a_restart_repeats_what_nobody_has_looked_into(scene: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.land("0000000000")
    assert watched(watcher(None), lambda: None) == [[news(1, orders=1)], []]
    assert capsys.readouterr().out.count("announced again") == 1
    assert watched(watcher(None)) == [[news(1, orders=1)]]
    merge(scene)
    assert watched(watcher(None)) == [[]]


def test_it_goes_on_looking_after_an_error(scene: Any, capsys: pytest.CaptureFixture[str]) -> None:
    scene.archive.rename(scene.folder / "away")
    # A look that has begun may still see what lands: it has to end before.
    back, land = (lambda: (scene.folder / "away").rename(scene.archive)), (lambda: scene.land("0000000000"))
    assert watched(watcher(Store()), back, land) == [[], [], [news(1, orders=1)]]
    assert capsys.readouterr().out.count("There is no archive") == 1


def test_a_state_that_cannot_be_used_neither_silences_nor_repeats(scene: Any, capsys: pytest.CaptureFixture[str]) -> None:
    store = Store()
    store.is_down = True

    def up() -> None:
        store.is_down = False

    trigger = watcher(store)
    assert watched(trigger, lambda: scene.land("0000000000"), lambda: None) == [[], [news(1, orders=1)], []]
    assert capsys.readouterr().out.count("The asset's state cannot be used: ConnectionError: the API server is gone") == 1
    # What was announced meanwhile is written down once that can be done.
    assert watched(trigger, up) == [[], []]
    assert json.loads(store.kept[archive_event.KEY])["count"] == 1
    assert watched(watcher(store)) == [[]]


def test_an_error_that_stays_is_logged_again_and_again(
    scene: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive_event, "COMPLAIN_AGAIN_SECONDS", 0.05)
    store = Store()
    store.is_down = True
    watched(watcher(store))
    assert capsys.readouterr().out.count("the API server is gone") > 1
    scene.archive.rename(scene.folder / "away")
    watched(watcher(Store()))
    assert capsys.readouterr().out.count("There is no archive") > 1


def test_it_announces_the_chosen_tables_only(scene: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000000", topic=OTHER_TOPIC)
    assert watched(watcher(Store(), tables=["*.customers"])) == [[news(1, customers=1)]]


def test_a_watcher_can_be_made_of_it_and_comes_back_from_what_it_serializes() -> None:
    from airflow.sdk import AssetWatcher

    trigger = CdcArchiveEventTrigger(tables=("a.*",), poke_interval=5)
    path, arguments = trigger.serialize()
    assert path == "airflow_cdc.triggers.archive_event.CdcArchiveEventTrigger"
    conn_ids = {"archive_conn_id": "cdc_archive_default", "lake_conn_id": "cdc_lake_default"}
    assert arguments == {**conn_ids, "tables": ["a.*"], "poke_interval": 5, "repeat_after": 3600.0, "name": ""}
    assert CdcArchiveEventTrigger(**arguments).serialize() == (path, arguments)
    asset = Asset(name="a", uri="x-cdc://a", watchers=[AssetWatcher(name="w", trigger=trigger)])
    assert asset.watchers[0].trigger is trigger
    # By this number the triggerer knows one watcher from another.
    assert isinstance(BaseEventTrigger.hash(path, arguments), int)


def test_what_no_run_has_looked_into_is_announced_again_after_a_while(scene: Any) -> None:
    scene.land("0000000000")
    trigger = watcher(Store(), repeat_after=0.4)
    first, *later = watched(trigger, *[lambda: None] * 4, seconds=0.25)
    assert first == [news(1, orders=1)]
    again = [event for events in later for event in events]
    assert again == [{**news(1, orders=1), "again": True}] * len(again)
    assert 1 <= len(again) <= 3


def test_what_a_failed_run_looked_into_and_did_not_apply_is_announced_again_until_one_applies_it(scene: Any) -> None:
    store, waiting = Store(), {**news(1, orders=1), "again": True}
    job = scene.spark_submit.read_text()
    scene.land("0000000000")
    assert watched(watcher(store)) == [[news(1, orders=1)]]
    # The run ends between the survey and the merge.
    scene.submit_by(job.replace("outcomes = []", "sys.exit(0)"))
    merge(scene)
    time.sleep(0.5)
    assert watched(watcher(store, repeat_after=0.5), seconds=0.4) == [[waiting]]
    scene.submit_by(job)
    merge(scene)
    assert watched(watcher(store, repeat_after=0.1), lambda: None) == [[], []]


def test_it_announces_once_where_it_is_asked_to(scene: Any) -> None:
    scene.land("0000000000")
    assert watched(watcher(Store(), repeat_after=None), lambda: None) == [[news(1, orders=1)], []]
    with pytest.raises(ValueError, match="repeat_after is 0, expected seconds above 0"):
        CdcArchiveEventTrigger(repeat_after=0)


def test_where_nothing_waits_the_lake_is_asked_once_and_not_at_every_look(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    look = CdcArchiveEventTrigger._look
    monkeypatch.setattr(CdcArchiveEventTrigger, "_look", lambda self, *, is_whole: asked.append(is_whole) or look(self, is_whole=is_whole))
    assert watched(watcher(Store(), repeat_after=0.01)) == [[]]
    assert asked[0] is True
    assert not any(asked[1:])
    assert len(asked) > 2


def test_watchers_of_one_asset_remember_each_its_own_where_they_have_names(scene: Any) -> None:
    store = Store()
    scene.land("0000000000")
    scene.land("0000000000", topic=OTHER_TOPIC)
    assert watched(watcher(store, name="a", tables=["*.orders"])) == [[news(1, orders=1)]]
    assert watched(watcher(store, name="b", tables=["*.customers"])) == [[news(1, customers=1)]]
    assert watched(watcher(store, name="a", tables=["*.orders"])) == [[]]


def test_of_very_many_announced_files_the_last_are_known_by_name() -> None:
    files = [ArchivedFile(f"{number:05d}", 1, "t") for number in range(MOST_NAMED + 10)]
    announced = Announced.of(files, at=1.5)
    assert len(json.dumps(announced.to_json())) < 64 * 1024
    assert Announced.from_json(json.loads(json.dumps(announced.to_json()))) == announced
    assert announced.left_out(files) == ()
    more = ArchivedFile("99999", 1, "t")
    assert announced.left_out([*files, more]) == (*files[:10], more)
    assert announced.left_out(files[-5:]) == ()
