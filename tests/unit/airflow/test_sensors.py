"""The sensors that ask the lake's state: each answers in a worker and in the triggerer alike, with a real archive and lake."""

from __future__ import annotations

import asyncio
import inspect
import json
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowFailException, AirflowSensorTimeout, AirflowSkipException, TaskDeferred
from airflow.triggers.base import TriggerEvent

from airflow_cdc.model.position.position import Position
from airflow_cdc.model.position.snapshot import Snapshot
from airflow_cdc.sensors.archive import CdcArchiveSensor
from airflow_cdc.sensors.lag import CdcLagSensor
from airflow_cdc.sensors.look import ArchiveNotReadableError, CdcLookSensor
from airflow_cdc.sensors.snapshot import CdcSnapshotSensor
from airflow_cdc.sensors.transactions import CdcTransactionSensor

TOPIC = "server.db.orders"
CONNECTIONS = {"archive_conn_id": "cdc_archive_default", "lake_conn_id": "cdc_lake_default"}
SENSORS: dict[type[CdcLookSensor], tuple[dict[str, Any], dict[str, Any]]] = {
    # By sensor: arguments as a user gives them, and what the trigger is asked with.
    CdcArchiveSensor: ({"tables": "a.*, b", "min_files": 3}, {"tables": ["a.*", "b"], "min_files": 3}),
    CdcLagSensor: ({"max_files": 7}, {"tables": [], "max_files": 7, "max_bytes": None, "max_seconds": None}),
    CdcSnapshotSensor: ({"tables": ["x"]}, {"tables": ["x"]}),
    CdcTransactionSensor: ({"connectors": "s1 s2", "past": "2026-11-21"}, {"connectors": ["s1", "s2"], "past": "2026-11-21"}),
}


def sensor(kind: type[CdcLookSensor], **arguments: Any) -> CdcLookSensor:
    return kind(**{"task_id": "wait", "poke_interval": 0.01, "timeout": 0.05, **arguments})


def first_event(trigger: Any) -> Any:
    async def first() -> TriggerEvent:
        return await asyncio.wait_for(anext(trigger.run()), 10)

    return asyncio.run(first()).payload


def both_ways(waiting: CdcLookSensor) -> Any:
    """Return what the sensor hands on, which must be the same in the triggerer."""
    found = waiting.execute({})
    event = first_event(waiting.trigger_class(**waiting._asked({}), poke_interval=0.01))
    assert event == {"status": "success", "found": found}
    assert waiting.execute_complete({}, event) == found
    assert json.loads(json.dumps(found)) == found
    return found


def not_yet(waiting: CdcLookSensor) -> None:
    with pytest.raises(AirflowSensorTimeout):
        waiting.execute({})


def merge(scene: Any) -> None:
    """Commit what is pending, as a job would."""
    command = [scene.spark_submit, "--archive", scene.archive, "--lake", scene.lake, "--report", scene.folder / "report.json"]
    subprocess.run([str(part) for part in command], check=True, capture_output=True)


# -- what all of them do -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", SENSORS)
def test_it_defers_with_every_argument_and_its_trigger_comes_back_from_what_it_serializes(
    scene: Any, kind: type[CdcLookSensor], monkeypatch: pytest.MonkeyPatch
) -> None:
    given, asked = SENSORS[kind]
    monkeypatch.setattr(kind, "poke", lambda *_: False)
    with pytest.raises(TaskDeferred) as deferred:
        sensor(kind, deferrable=True, poke_interval=7, timeout=90, **given).execute({})
    path, arguments = deferred.value.trigger.serialize()
    assert path == f"{kind.trigger_class.__module__}.{kind.trigger_class.__name__}"
    assert arguments == {**CONNECTIONS, **asked, "poke_interval": 7.0}
    assert json.loads(json.dumps(arguments)) == arguments
    assert kind.trigger_class(**arguments).serialize() == (path, arguments)
    # What is asked is what look takes: a triggerer would find out too late.
    inspect.signature(kind.trigger_class.look).bind(**CONNECTIONS, **asked)
    assert (deferred.value.method_name, deferred.value.timeout) == ("execute_complete", timedelta(seconds=90))


@pytest.mark.parametrize("kind", SENSORS)
def test_its_connections_and_names_are_templated(kind: type[CdcLookSensor]) -> None:
    own = {CdcTransactionSensor: {"connectors", "past"}, CdcArchiveSensor: {"tables", "archived_since", "archived_until"}}
    texts = own.get(kind, {"tables"})
    assert set(kind.template_fields) == {*CONNECTIONS, *texts}


@pytest.mark.parametrize("kind", [CdcLagSensor, CdcTransactionSensor])
@pytest.mark.parametrize("soft_fail", [False, True])
def test_a_missing_archive_is_neither_waited_for_nor_skipped(scene: Any, kind: type[CdcLookSensor], soft_fail: bool) -> None:
    scene.archive.rmdir()
    waiting = sensor(kind, soft_fail=soft_fail, **SENSORS[kind][0])
    expected = ArchiveNotReadableError if soft_fail else AirflowFailException
    with pytest.raises(expected, match=r"There is no archive.*Next step"):
        waiting.execute({})
    event = first_event(waiting.trigger_class(**waiting._asked({}), poke_interval=0.01))
    assert (event["status"], event["transient"]) == ("error", False)
    with pytest.raises(expected, match="There is no archive"):
        waiting.execute_complete({}, event)


@pytest.mark.parametrize("kind", [CdcLagSensor, CdcSnapshotSensor, CdcTransactionSensor])
def test_with_no_time_to_wait_a_run_that_need_not_go_on_is_skipped(scene: Any, kind: type[CdcLookSensor]) -> None:
    scene.land("0000000000")
    given = {CdcLagSensor: {"max_files": 0}}.get(kind, {})
    with pytest.raises(AirflowSkipException):
        sensor(kind, deferrable=True, timeout=0, soft_fail=True, **given).execute({})


# -- what each asks ------------------------------------------------------------------------------------------------


def test_the_lag_is_below_its_bound_once_the_merge_has_caught_up(scene: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000001")
    not_yet(sensor(CdcLagSensor, max_files=1))
    not_yet(sensor(CdcLagSensor, max_bytes=10))
    not_yet(sensor(CdcLagSensor, max_seconds=10**9))
    lag = {"files": 2, "bytes": 24, "seconds": None}
    assert both_ways(sensor(CdcLagSensor, max_files=2)) == {**lag, "behind": 1, "flows": {TOPIC: lag}}
    merge(scene)
    assert both_ways(sensor(CdcLagSensor, max_files=0, max_seconds=0)) == {"files": 0, "bytes": 0, "seconds": 0.0, "behind": 0, "flows": {}}


def test_a_lag_without_a_bound_is_a_mistake(scene: Any) -> None:
    with pytest.raises(AirflowFailException, match=r"no bound.*max_files"):
        sensor(CdcLagSensor).execute({})


def test_a_snapshot_is_waited_for_to_its_last_read(scene: Any) -> None:
    scene.land("0000000000")
    merge(scene)
    not_yet(sensor(CdcSnapshotSensor, tables=TOPIC))
    # What the merge's report has of the last read.
    (marker,) = Path(scene.lake).glob(f"_cdc/flows/{TOPIC}/commits/00000001.json")
    commit = json.loads(marker.read_text())
    commit["report"]["snapshot"] = Snapshot(Position(1), is_first=True, is_complete=True).to_json()
    marker.write_text(json.dumps(commit))
    # Derived from the markers, and rebuilt from them.
    (marker.parents[1] / "checkpoint.json").unlink()
    assert both_ways(sensor(CdcSnapshotSensor)) == {"complete": [TOPIC], "missing": []}
    not_yet(sensor(CdcSnapshotSensor, tables=[TOPIC, "server.db.other"]))


def test_whole_transactions_are_waited_for(scene: Any) -> None:
    def archive(topic: str, *values: Any) -> None:
        (scene.archive / f"{topic}.jsonl").write_text("".join(json.dumps(value) + "\n" for value in values))

    not_yet(sensor(CdcTransactionSensor))
    common = {"id": "7:100", "ts_ms": 1_800_000_000_000}
    archive("server.transaction", {"status": "BEGIN", **common})
    archive(TOPIC, {"op": "c", "after": {}, "transaction": {"id": "7:90", "data_collection_order": 1}})
    not_yet(sensor(CdcTransactionSensor))
    counts = [{"data_collection": "db.orders", "event_count": 1}]
    archive("server.transaction", {"status": "BEGIN", **common}, {"status": "END", **common, "data_collections": counts})
    found = both_ways(sensor(CdcTransactionSensor))
    cut = {"is_past": True, "transaction": "7", "committed_at": "2027-01-15T08:00:00+00:00", "waits_for": [], "unread_bytes": 0}
    assert found == {"connectors": {"server": cut}}
    assert both_ways(sensor(CdcTransactionSensor, past="2027-01-15T08:00:00Z", connectors="server")) == found
    not_yet(sensor(CdcTransactionSensor, past="2027-01-15T08:00:01Z"))
    not_yet(sensor(CdcTransactionSensor, connectors=["server", "other"]))
    with pytest.raises(AirflowFailException, match="neither a position nor a time"):
        sensor(CdcTransactionSensor, past="soon").execute({})
