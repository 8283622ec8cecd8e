"""``confirm-snapshot``: what a person decides about the rows that a snapshot did not find, done once and written down."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, OnSnapshot
from airflow_cdc.model.position.snapshot import SnapshotChoice
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.repair.confirm_snapshot import SnapshotConfirmation, confirm_snapshot
from airflow_cdc.pipeline.spark.storage import file_system
from tests.conftest import Apply
from tests.support.events import Record, postgresql, write_records
from tests.support.stories import CHOSEN
from tests.support.tables import read_rows
from tests.unit.cli.conftest import CLOSED_LATE, Run

pytestmark = CLOSED_LATE

TOPIC = "pg.public.customers"
PLAIN = CdcFlow(TOPIC)
SETTINGS = {
    "rows": (PLAIN, {}),
    "flagged": (replace(PLAIN, on_delete=OnDelete.FLAG), {"on_delete": "flag"}),
    "versions": (
        replace(PLAIN, stored_as_scd_type=2, scd_columns=CHOSEN),
        {"stored_as_scd_type": 2, "scd_columns": CHOSEN.to_json()},
    ),
}


class CrashError(BaseException):
    """The process ends."""


def read(key: int, *, at: int, offset: int, last: bool = False, partition: int = 0) -> Record:
    """Return a read of a blocking snapshot: the connector knows a last commit."""
    event = postgresql("r", commit=at, change=at, after={"id": key, "name": "read"}, offset=offset, partition=partition)
    event["value"]["source"]["snapshot"] = "last" if last else "true"
    return event


def create(key: int, *, at: int, offset: int, partition: int = 0) -> Record:
    return postgresql("c", commit=at, change=at, after={"id": key, "name": "created"}, offset=offset, partition=partition)


FIRST = [create(key, at=10 + key, offset=key) for key in range(1, 5)]
# Of a part of the table: key 4 is not read.
PARTIAL = [read(key, at=100, offset=10 + key - 6, last=key == 3) for key in (1, 2, 3)]


@dataclass
class Lake:
    """A lake that is filled from one archive."""

    archive: Path
    lake: Path
    flows: Path
    flow: CdcFlow
    apply_to: Apply
    spark: SparkSession
    files: int = 0

    def apply(self, *records: Record, flow: CdcFlow | None = None, **more: Any) -> Any:
        if records:
            self.files += 1
            write_records(self.archive / f"{self.files}.jsonl", records)
        return self.apply_to(self.archive, self.lake, flows={TOPIC: flow or self.flow}, **more).flows[0]

    @property
    def ids(self) -> list[int]:
        return [row["id"] for row in read_rows(self.spark, str(self.lake), TOPIC).rows]

    @property
    def state(self) -> FlowState:
        return FlowState(*file_system(str(self.lake)), TOPIC)

    def rows(self, lake: Path | None = None) -> list[str]:
        given = self.spark.sql(f"SELECT * EXCEPT (__cdc_microbatch) FROM delta.`{(lake or self.lake) / TOPIC}`")
        return sorted(map(str, given.collect()))


@pytest.fixture
def begin(tmp_path: Path, apply: Apply, spark: SparkSession) -> Callable[..., Lake]:
    def made(mode: str = "rows") -> Lake:
        flow, given = SETTINGS[mode]
        flows = tmp_path / "flows.json"
        flows.write_text(json.dumps({"flows": [{"topic": TOPIC, **given}]}))
        lake = Lake(tmp_path / "archive", tmp_path / "lake", flows, flow, apply, spark)
        lake.apply(*FIRST)
        lake.apply(*PARTIAL)
        return lake

    return made


@pytest.mark.deep
def test_a_snapshot_that_was_kept_is_listed_with_its_facts(begin: Callable[..., Lake], run: Run, no_spark: None) -> None:
    lake = begin()
    assert lake.ids == [1, 2, 3, 4]
    ended = run("confirm-snapshot", TOPIC, "--lake", lake.lake, "--json")
    assert ended.code == 0, ended.stderr
    assert ended.document == {
        "flow": TOPIC,
        "snapshots": [
            {
                "position": "100",
                "kind": "blocking, ad-hoc or not recognised",
                "reads": 3,
                "rows_unconfirmed": 1,
                "lanes": {"0": [5, 7]},
                "proof": "whole",
            }
        ],
    }
    for_people = run("confirm-snapshot", TOPIC, "--lake", lake.lake)
    assert (for_people.code, "partition 0: offsets 5–7" in for_people.stdout) == (0, True)
    assert lake.state.checkpoint().number == 2


@pytest.mark.parametrize("mode", [pytest.param(mode, marks=[] if mode == "rows" else pytest.mark.deep) for mode in SETTINGS])
def test_replace_removes_the_rows_once_as_the_setting_would_have(
    mode: str, begin: Callable[..., Lake], run: Run, tmp_path: Path, apply: Apply
) -> None:
    lake = begin(mode)
    given = ("--lake", lake.lake, "--flows", lake.flows)
    ended = run("confirm-snapshot", TOPIC, *given, "--replace")
    assert ended.code == 0, ended.stderr
    assert lake.ids == [1, 2, 3]
    if mode == "rows":
        assert f"{TOPIC}: 1 rows removed that the snapshot did not find" in ended.stdout
    intent = lake.state.intent(3)
    assert intent
    assert intent.decides
    assert (intent.decides.choice, str(intent.decides.position), intent.files) == (SnapshotChoice.REPLACE, "100", ())

    again = run("confirm-snapshot", TOPIC, *given, "--replace")
    assert (again.code, "those that do: none" in " ".join(again.stderr.split())) == (2, True)
    assert lake.state.checkpoint().number == 3
    assert run("confirm-snapshot", TOPIC, *given, "--json").document["snapshots"] == []
    # As if the snapshot had been applied under on_snapshot: replace.
    other = tmp_path / "other"
    apply(lake.archive, other, flows={TOPIC: replace(lake.flow, on_snapshot=OnSnapshot.REPLACE)})
    assert lake.rows() == lake.rows(other)
    # What comes late from before the snapshot stays void; what comes behind it goes on.
    lake.apply(create(4, at=9, offset=0), create(5, at=200, offset=8))
    assert lake.ids == [1, 2, 3, 5]


@pytest.mark.deep
def test_keep_is_written_down_and_goes_over_the_setting(begin: Callable[..., Lake], run: Run) -> None:
    lake = begin()
    given = ("--lake", lake.lake, "--flows", lake.flows)
    ended = run("confirm-snapshot", TOPIC, *given, "--keep")
    assert (ended.code, f"{TOPIC}: the rows that the snapshot did not find are kept" in ended.stdout) == (0, True), ended.stderr
    assert run("confirm-snapshot", TOPIC, *given, "--json").document["snapshots"] == []
    lake.apply(create(5, at=200, offset=8), flow=replace(PLAIN, on_snapshot=OnSnapshot.REPLACE))
    assert lake.ids == [1, 2, 3, 4, 5]
    snapshot = lake.state.checkpoint().snapshot
    assert snapshot
    assert snapshot.decision is SnapshotChoice.KEEP


@pytest.mark.deep
def test_replace_waits_for_the_proof_and_takes_no_row_that_came_behind_the_snapshot(begin: Callable[..., Lake], run: Run) -> None:
    lake = begin()
    # The other partition has no read; its events came before anybody decided.
    lake.apply(create(7, at=20, offset=0, partition=1), create(8, at=150, offset=1, partition=1))
    assert lake.ids == [1, 2, 3, 4, 7, 8]
    given = ("--lake", lake.lake, "--flows", lake.flows)
    ended = run("confirm-snapshot", TOPIC, *given, "--replace")
    assert ended.code == 0, ended.stderr
    assert "rows go once the snapshot is proven to be whole; no event behind it yet in partition 1" in ended.stdout
    assert lake.ids == [1, 2, 3, 4, 7, 8]
    lake.apply(create(9, at=200, offset=8), create(10, at=201, offset=2, partition=1))
    # 4 and 7 stood before it and were not found; 8 came behind it, in the partition that it did not read.
    assert lake.ids == [1, 2, 3, 8, 9, 10]


@pytest.mark.deep
@pytest.mark.parametrize("effect", ["intent", "merge", "commit"])
def test_a_decision_that_a_crash_cut_off_is_done_once_by_whoever_comes_next(effect: str, begin: Callable[..., Lake], run: Run) -> None:
    lake = begin()

    def crash(done: str) -> None:
        if done == effect:
            raise CrashError

    order = SnapshotConfirmation(lake.spark, str(lake.lake), TOPIC, SnapshotChoice.REPLACE, after_effect=crash)
    with pytest.raises(CrashError):
        confirm_snapshot(order)
    if effect == "merge":
        # The flow's next run does it too.
        lake.apply(create(5, at=200, offset=8))
        assert lake.ids == [1, 2, 3, 5]
        return
    ended = run("confirm-snapshot", TOPIC, "--lake", lake.lake, "--replace")
    assert ended.code == (2 if effect == "commit" else 0), ended.stderr
    assert (lake.ids, lake.state.checkpoint().number) == ([1, 2, 3], 3)


def test_what_cannot_be_decided_is_refused_and_changes_nothing(begin: Callable[..., Lake], run: Run) -> None:
    lake = begin()
    for arguments, words in (
        (("--replace", "--keep"), "exclude each other"),
        (("--replace", "--position", "99"), "0 snapshots at position 99 wait for a decision; those that do: 100"),
    ):
        ended = run("confirm-snapshot", TOPIC, "--lake", lake.lake, *arguments)
        assert (ended.code, words in " ".join(ended.stderr.split())) == (2, True), ended.stderr
    unknown = run("confirm-snapshot", "pg.public.unknown", "--lake", lake.lake)
    assert (unknown.code, "knows no flow pg.public.unknown" in " ".join(unknown.stderr.split())) == (2, True)
    assert lake.state.intent(3) is None

    def crash(done: str) -> None:
        if done == "intent":
            raise CrashError

    with pytest.raises(CrashError):
        lake.apply(create(5, at=200, offset=8), after_effect=crash)
    ended = run("confirm-snapshot", TOPIC, "--lake", lake.lake, "--replace")
    assert (ended.code, "microbatch 3 is planned and not done" in " ".join(ended.stderr.split())) == (1, True), ended.stderr
    assert lake.ids == [1, 2, 3, 4]
