"""Every command that writes a flow takes the flow's lease first, and commits nothing once the lease is lost."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnForeignChange
from airflow_cdc.model.position.snapshot import SnapshotChoice
from airflow_cdc.model.report.maintenance import MaintenanceSettings
from airflow_cdc.model.state import lease as lease_module
from airflow_cdc.model.state.lease import Leases, leases_folder, newest_token
from airflow_cdc.pipeline.repair.confirm_snapshot import SnapshotConfirmation, confirm_snapshot
from airflow_cdc.pipeline.repair.replay_quarantine import replay_quarantine
from airflow_cdc.pipeline.repair.reprocess import Reprocessing, reprocess
from airflow_cdc.pipeline.repair.retype import Retyping, retype
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.target.target_table import latest_version
from airflow_cdc.pipeline.upkeep.maintain import MaintenanceRun, maintain
from tests.conftest import Apply
from tests.support.events import Record, postgresql, write_records
from tests.support.tables import read_rows

TOPIC = "pg.public.customers"
NARROW = CdcFlow(TOPIC, columns={"n": "INT"})
WIDE = CdcFlow(TOPIC, columns={"n": "BIGINT"})
REPAIRING = replace(WIDE, on_foreign_change=OnForeignChange.REPAIR)
LARGE = 2**40


def create(key: int, *, at: int, n: int = 0) -> Record:
    return postgresql("c", commit=at, change=at, after={"id": key, "n": n}, offset=key)


def read(key: int, *, offset: int, last: bool = False) -> Record:
    """Return a read of a blocking snapshot."""
    event = postgresql("r", commit=100, change=100, after={"id": key, "n": 0}, offset=offset)
    event["value"]["source"]["snapshot"] = "last" if last else "true"
    return event


def at_once(flow: CdcFlow) -> dict[str, Any]:
    """Return what all commands take alike: the flow's settings, and no time to wait for another run."""
    return {"flows": {TOPIC: flow}, "wait_seconds": 0.0}


@dataclass
class Live:
    """A flow with a row that a snapshot did not find, and a record in its quarantine."""

    spark: SparkSession
    archive: Path
    lake: Path

    def retype(self, **more: Any) -> list[Any]:
        retype(Retyping(self.spark, str(self.archive), str(self.lake), TOPIC, **at_once(NARROW), **more))
        return []

    def replay(self, **more: Any) -> list[Any]:
        order = Reprocessing(self.spark, str(self.archive), str(self.lake), TOPIC, **at_once(WIDE), **more)
        again = replay_quarantine(order).again
        assert again
        assert again.report
        return list(again.report.flows)

    def confirm_snapshot(self, **more: Any) -> list[Any]:
        order = SnapshotConfirmation(self.spark, str(self.lake), TOPIC, SnapshotChoice.KEEP, **at_once(WIDE), **more)
        return list(confirm_snapshot(order).flows)

    def reprocess(self, **more: Any) -> list[Any]:
        done = reprocess(Reprocessing(self.spark, str(self.archive), str(self.lake), TOPIC, **at_once(WIDE), **more))
        assert done.report
        return list(done.report.flows)

    def maintain(self) -> list[Any]:
        settings = MaintenanceSettings(compact_from=1)
        return list(maintain(MaintenanceRun(self.spark, str(self.lake), settings=settings, **at_once(WIDE))).flows)

    def apply(self, flow: CdcFlow = WIDE, **more: Any) -> list[Any]:
        run = ArchiveRun(self.spark, str(self.archive), str(self.lake), **at_once(flow), **more)
        return list(apply_archive(run).flows)

    def repair(self, **more: Any) -> list[Any]:
        return self.apply(REPAIRING, **more)

    @property
    def table(self) -> str:
        return f"{self.lake}/{TOPIC}"

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in read_rows(self.spark, str(self.lake), TOPIC).rows]

    def delete(self, key: int) -> None:
        """Delete a row as somebody else does."""
        self.spark.sql(f"DELETE FROM delta.`{self.table}` WHERE id = {key}")

    def files(self) -> dict[str, bytes]:
        """Return what the lake holds, but for leases, and for what is known of the archive, which is no flow's."""
        apart = [self.lake / "_cdc" / name for name in ("leases", "archives")]
        found = [path for path in self.lake.rglob("*") if path.is_file() and not any(folder in path.parents for folder in apart)]
        return {str(path.relative_to(self.lake)): path.read_bytes() for path in found}

    def committed(self) -> tuple[int | None, list[str]]:
        """Return the table's version and the commit markers."""
        markers = (self.lake / "_cdc" / "flows" / TOPIC / "commits").glob("*.json")
        return latest_version(self.spark, self.table), sorted(path.name for path in markers)


@pytest.fixture
def live(spark: SparkSession, apply: Apply, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch) -> Live:
    # A holder notices within a fifth of a second that another run has the lease, and a slow machine still loses none.
    monkeypatch.setattr(lease_module, "_RENEWALS", 300)
    write_records(archive / "1.jsonl", [*(create(key, at=10 + key) for key in (1, 2, 3, 4)), create(5, at=15, n=LARGE)])
    apply(archive, lake, flows={TOPIC: NARROW})
    write_records(archive / "2.jsonl", [read(1, offset=6), read(2, offset=7), read(3, offset=8, last=True)])
    apply(archive, lake, flows={TOPIC: NARROW})
    return Live(spark, archive, lake)


def error_of(command: Callable[..., list[Any]], **more: Any) -> str | None:
    """Return the type of the error with which a command, or its flow, ended."""
    try:
        flows = command(**more)
    except ConcurrentRunError as problem:
        return type(problem).__name__
    return next((str(flow.error["type"]) for flow in flows if flow.error), None)


def lose_the_lease_after(effect: str, lake: Path) -> Callable[[str], None]:
    """Return a hook that lets another run take the lease, and waits until the holder's own thread has noticed."""

    def take_over(done: str) -> None:
        if done != effect:
            return
        folder = Path(leases_folder(str(lake), TOPIC))
        token = newest_token(fsspec.filesystem("file"), str(folder))
        held = json.loads((folder / f"{token:08d}.json").read_text())
        (folder / f"{token + 1:08d}.json").write_text(json.dumps({**held, "released": True}))
        until = time.monotonic() + 60
        while any(thread.name == f"lease of {TOPIC}" for thread in threading.enumerate()):
            assert time.monotonic() < until, "the holder did not notice"
            time.sleep(0.05)

    return take_over


def refused(live: Live, name: str) -> None:
    """Check that a command writes nothing while another run holds the lease."""
    before = live.files()
    with Leases(fsspec.filesystem("file"), str(live.lake)).hold(TOPIC):
        assert error_of(getattr(live, name)) == "ConcurrentRunError", name
        assert live.files() == before, name


def fenced(live: Live, name: str, effect: str) -> None:
    """Check that a command commits nothing once its lease is lost."""
    before = live.committed()
    assert error_of(getattr(live, name), after_effect=lose_the_lease_after(effect, live.lake)) == "ConcurrentRunError", name
    assert live.committed() == before, name


def done(live: Live, name: str) -> None:
    """Check that a command that has the lease does its work."""
    before = live.files()
    assert error_of(getattr(live, name)) is None, name
    assert live.files() != before, name


def test_every_command_takes_the_lease_first_and_a_run_that_lost_it_commits_nothing(live: Live) -> None:
    write_records(live.archive / "3.jsonl", [create(9, at=200)])
    for name in ("retype", "replay", "confirm_snapshot", "reprocess", "maintain", "apply"):
        refused(live, name)
    fenced(live, "apply", "intent")
    done(live, "apply")
    assert live.ids == [1, 2, 3, 4, 9]


@pytest.mark.deep
def test_no_command_writes_while_another_run_holds_the_lease_or_commits_once_its_own_is_lost(live: Live) -> None:
    assert live.ids == [1, 2, 3, 4]
    refused(live, "retype")
    fenced(live, "retype", "note")
    done(live, "retype")

    refused(live, "replay")
    fenced(live, "replay", "intent")
    done(live, "replay")
    assert live.ids == [1, 2, 3, 4, 5]

    refused(live, "confirm_snapshot")
    fenced(live, "confirm_snapshot", "intent")
    done(live, "confirm_snapshot")

    live.delete(2)
    refused(live, "reprocess")
    fenced(live, "reprocess", "intent")
    done(live, "reprocess")
    assert live.ids == [1, 2, 3, 4, 5]

    refused(live, "maintain")
    done(live, "maintain")

    write_records(live.archive / "3.jsonl", [create(9, at=200)])
    refused(live, "apply")
    fenced(live, "apply", "intent")
    done(live, "apply")
    assert live.ids == [1, 2, 3, 4, 5, 9]

    live.delete(3)
    write_records(live.archive / "4.jsonl", [create(10, at=201)])
    refused(live, "repair")
    done(live, "repair")
    assert live.ids == [1, 2, 3, 4, 5, 9, 10]


@pytest.mark.deep
def test_a_rebuilt_table_does_not_replace_the_live_one_once_the_lease_is_lost(live: Live) -> None:
    # All files leave the table, and are removed: no version before the change can be restored.
    live.spark.sql(f"DELETE FROM delta.`{live.table}`")
    live.spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        live.spark.sql(f"VACUUM delta.`{live.table}` RETAIN 0 HOURS")
    finally:
        live.spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    write_records(live.archive / "3.jsonl", [create(9, at=200)])
    before = live.committed()

    def narrow(**more: Any) -> list[Any]:
        return live.apply(replace(NARROW, on_foreign_change=OnForeignChange.REPAIR), **more)

    assert error_of(narrow, after_effect=lose_the_lease_after("repeat", live.lake)) == "ConcurrentRunError"
    assert (live.committed(), live.ids) == (before, [])
    assert error_of(narrow) is None
    assert live.ids == [1, 2, 3, 4, 9]
