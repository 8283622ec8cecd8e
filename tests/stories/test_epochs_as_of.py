"""Moments and ranges of a source whose log went back, or of a topic that was made anew: each in its own epoch and life."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnLogWentBack
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.model.position.position import EPOCH
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.batch_report import RowCounts
from airflow_cdc.pipeline.repair.rebuild import Rebuild, rebuild
from airflow_cdc.pipeline.repair.reprocess import Reprocessed, Reprocessing, reprocess
from tests.conftest import Apply
from tests.support.events import Record, lsn, sqlserver, write_records
from tests.support.life_story import change, snapshot
from tests.support.tables import read_rows

TOPIC = "pg.public.customers"
DAY = 86_400_000


def on_day(day: int, *events: Record) -> list[Record]:
    """Return the events as the source committed and the connector sent them some days later: a log goes back, clocks do not."""
    for event in events:
        source = event["value"]["source"]
        source["ts_ms"] += day * DAY
        event["value"]["ts_ms"] += day * DAY
    return list(events)


# Restored on the next day from a backup: positions begin low again, key 3 was deleted before, key 4 and 5 after.
BEFORE = on_day(
    0,
    *snapshot({1: "a", 2: "b", 3: "c", 4: "d"}, at=1000, first=0),
    change("u", 1, "a1", at=1010, offset=4),
    change("d", 3, "c", at=1020, offset=5),
    change("u", 2, "b1", at=1030, offset=6),
    change("c", 5, "e", at=1040, offset=7),
)
AFTER = on_day(
    1,
    *snapshot({1: "A", 2: "B", 6: "F"}, at=10, first=8),
    change("u", 1, "A1", at=20, offset=11),
    change("d", 2, "B", at=1035, offset=12),
    change("c", 7, "G", at=1045, offset=13),
)
STATES = {
    "1009@1": {1: "a", 2: "b", 3: "c", 4: "d"},
    "1020@1": {1: "a1", 2: "b", 4: "d"},
    "1040@1": {1: "a1", 2: "b1", 4: "d", 5: "e"},
    "2023-11-14T22:13:21.030Z": {1: "a1", 2: "b1", 4: "d"},
    # After the last event of the first epoch, before anything was captured of the second.
    "2023-11-15T12:00:00Z": {1: "a1", 2: "b1", 4: "d", 5: "e"},
    "9999@1": {1: "a1", 2: "b1", 4: "d", 5: "e"},
    "1/0@1": {1: "a1", 2: "b1", 4: "d", 5: "e"},
    # Before the second epoch's snapshot nothing is known of it.
    "9@2": {1: "a1", 2: "b1", 4: "d", 5: "e"},
    "10@2": {1: "A", 2: "B", 6: "F"},
    "20@2": {1: "A1", 2: "B", 6: "F"},
    # A position that both epochs hold.
    "1035@2": {1: "A1", 6: "F"},
    "1035/1035/0 (epoch 2 of the log)": {1: "A1", 6: "F"},
    str(EPOCH + 1035): {1: "A1", 6: "F"},
    "2023-11-15T22:13:20.020Z": {1: "A1", 2: "B", 6: "F"},
    "1045@2": {1: "A1", 6: "F", 7: "G"},
    "2030-01-01": {1: "A1", 6: "F", 7: "G"},
}
EVERYTHING = STATES["2030-01-01"]
QUICK = "2023-11-15T12:00:00Z"


class Scene:
    """An archive, a live lake, and lakes that are rebuilt from it."""

    def __init__(self, folder: Path, apply: Apply, spark: SparkSession) -> None:
        self.archive, self.lake, self.new = folder / "archive", folder / "lake", folder / "new"
        self._apply, self._spark, self._files = apply, spark, 0
        self.topic = TOPIC

    def lands(self, *records: Record) -> None:
        self._files += 1
        write_records(self.archive / f"{self._files:03d}.jsonl", records)

    def apply(self, lake: Path | None = None, **settings: Any) -> ApplyReport:
        return self._apply(self.archive, lake or self.lake, flows={self.topic: CdcFlow(self.topic, **settings)})

    def rebuilt(self, moment: str, **settings: Any) -> ApplyReport:
        flows = {self.topic: CdcFlow(self.topic, **settings)}
        order = Rebuild(self._spark, str(self.archive), str(self.lake), (self.topic,), into=str(self.new), flows=flows)
        return rebuild(replace(order, as_of=parse_as_of(moment)))

    def as_of(self, moment: str, **settings: Any) -> dict[int, str]:
        report = self.rebuilt(moment, **settings)
        assert report.ok, report.flows
        return self.rows(self.new)

    def again(self, first: str | None = None, last: str | None = None, *, dry_run: bool = False) -> Reprocessed:
        moments = [parse_as_of(text) if text else None for text in (first, last)]
        return reprocess(Reprocessing(self._spark, str(self.archive), str(self.lake), self.topic, *moments, dry_run=dry_run))

    def rows(self, lake: Path | None = None) -> dict[int, str]:
        return {row["id"]: row["name"] for row in read_rows(self._spark, str(lake or self.lake), self.topic).rows}

    def sql(self, statement: str) -> None:
        self._spark.sql(statement.replace("TABLE", f"delta.`{self.lake}/{self.topic}`"))


@pytest.fixture
def scene(tmp_path: Path, apply: Apply, spark: SparkSession) -> Scene:
    return Scene(tmp_path, apply, spark)


def restored(scene: Scene, *, in_one_file: bool = True) -> None:
    if in_one_file:
        scene.lands(*BEFORE, *AFTER)
    else:
        scene.lands(*BEFORE)
        scene.lands(*AFTER)


@pytest.mark.parametrize("moment", [pytest.param(each, marks=[] if each == QUICK else pytest.mark.deep) for each in STATES])
@pytest.mark.parametrize("in_one_file", [True, pytest.param(False, marks=pytest.mark.deep)])
def test_a_moment_of_a_source_that_was_restored_gives_its_rows_at_that_moment(scene: Scene, moment: str, *, in_one_file: bool) -> None:
    restored(scene, in_one_file=in_one_file)
    assert scene.as_of(moment) == STATES[moment]


def test_a_position_that_names_no_epoch_stops_with_the_epochs_there_are(scene: Scene) -> None:
    restored(scene)
    error = scene.rebuilt("1035").flows[0].error
    assert error is not None
    assert error["type"] == "ConfigurationError"
    for fact in (
        f"Flow {TOPIC}: the source's log went back, and position '1035' names no epoch",
        "epoch 1: commits 1000 to 1040 (2023-11-14T22:13:21Z to 2023-11-14T22:13:21Z)",
        "epoch 2: commits 10 to 1045 (2023-11-15T22:13:20Z to 2023-11-15T22:13:21Z)",
    ):
        assert fact in error["message"]
    assert "1035@1 or 1035@2" in error["next_step"]
    assert not (scene.new / TOPIC).exists()


def test_a_position_of_an_epoch_that_there_is_not_is_refused(scene: Scene) -> None:
    scene.lands(*BEFORE)
    error = scene.rebuilt("1035@2").flows[0].error
    assert error is not None
    assert "is of epoch 2 of the source's log, which the flow's files do not hold. Its log never went back." in error["message"]
    # Where there is one epoch it may be named, and need not be.
    assert scene.as_of("1020@1") == STATES["1020@1"]


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["1020@1", "20@2"])
def test_a_lake_that_ends_in_an_epoch_goes_on_through_the_next_one(scene: Scene, moment: str) -> None:
    restored(scene)
    assert scene.as_of(moment) == STATES[moment]

    (flow,) = scene.apply(scene.new).flows

    assert scene.rows(scene.new) == EVERYTHING
    assert flow.batches[-1].events.stale == 0
    assert scene.apply(scene.new).flows[0].status is FlowStatus.UP_TO_DATE


@pytest.mark.deep
def test_a_lake_that_ends_before_the_log_went_back_without_a_snapshot_stops_there_when_it_goes_on(scene: Scene, apply: Apply) -> None:
    changes = [event for event in AFTER if event["value"]["op"] != "r"]
    scene.lands(*BEFORE, *changes)
    assert scene.as_of("1020@1") == STATES["1020@1"]

    (flow,) = apply(scene.archive, scene.new, may_fail=True).flows

    assert flow.error is not None
    assert flow.error["type"] == "SourceLogWentBackError"
    assert scene.rows(scene.new) == STATES["1020@1"]
    scene.apply(scene.new, on_log_went_back=OnLogWentBack.ACCEPT)
    assert scene.rows(scene.new) == {1: "A1", 4: "d", 5: "e", 7: "G"}


@pytest.mark.deep
def test_what_a_restarted_connector_sent_again_begins_no_epoch_for_a_moment(scene: Scene) -> None:
    copies = [{**event, "offset": event["offset"] + 3} for event in BEFORE[5:]]
    scene.lands(*BEFORE, *copies)
    assert scene.as_of("1030") == {1: "a1", 2: "b1", 4: "d"}


@pytest.mark.deep
def test_a_sql_server_that_was_restored_is_rebuilt_as_of_either_epoch(scene: Scene) -> None:
    scene.topic = "server1.testDB.dbo.customers"

    def of(op: str, key: int, name: str, *, commit: int, offset: int) -> Record:
        image = {"id": key, "name": name}
        event = sqlserver(op, commit=commit, **({"before": image} if op == "d" else {"after": image}), offset=offset)
        if op == "r":
            event["value"]["source"]["snapshot"] = "last" if key == 2 else "true"
        return event

    first = [of("r", 1, "a", commit=10, offset=0), of("r", 2, "b", commit=10, offset=1), of("u", 1, "a1", commit=20, offset=2)]
    more = [of("d", 2, "b", commit=30, offset=3)]
    second = [of("r", 1, "A", commit=15, offset=4), of("r", 2, "B", commit=15, offset=5), of("u", 2, "B1", commit=20, offset=6)]
    scene.lands(*on_day(0, *first, *more), *on_day(1, *second))

    assert scene.as_of(f"{lsn(20)}@1") == {1: "a1", 2: "b"}
    scene.new = scene.new.with_name("second")
    assert scene.as_of(f"{sqlserver_lsn(lsn(19))}@2") == {1: "A", 2: "B"}


LIFE_1 = on_day(0, *snapshot({1: "a", 2: "b"}, at=10, first=0), change("u", 1, "a1", at=20, offset=2), change("d", 2, "b", at=30, offset=3))
LIFE_2 = on_day(1, *snapshot({1: "A", 3: "C"}, at=100, first=0), change("u", 3, "C1", at=110, offset=2))


@pytest.mark.deep
@pytest.mark.parametrize("in_one_file", [True, False])
@pytest.mark.parametrize(
    ("moment", "rows"),
    [
        ("20", {1: "a1", 2: "b"}),
        ("30", {1: "a1"}),
        ("2023-11-15T12:00:00Z", {1: "a1"}),
        ("100", {1: "A", 3: "C"}),
    ],
)
def test_a_moment_of_either_life_of_a_topic_gives_the_rows_of_that_moment(
    scene: Scene, moment: str, rows: dict[int, str], *, in_one_file: bool
) -> None:
    """The log goes on, so a position says which life it is of; the offsets are those of both."""
    for records in [[*LIFE_1, *LIFE_2]] if in_one_file else [LIFE_1, LIFE_2]:
        scene.lands(*records)
    assert scene.as_of(moment) == rows

    scene.apply(scene.new)
    assert scene.rows(scene.new) == {1: "A", 3: "C1"}


@pytest.mark.deep
@pytest.mark.parametrize("moment", ["2023-11-15T12:00:00Z", "1020@1", "20@2"])
def test_a_moment_of_a_source_that_was_restored_when_its_topic_was_made_anew(scene: Scene, moment: str) -> None:
    scene.lands(*BEFORE)
    scene.lands(*[{**event, "offset": event["offset"] - 8} for event in AFTER])
    assert scene.as_of(moment) == STATES[moment]


@pytest.mark.deep
@pytest.mark.parametrize("parts", [[8, 14], [14], [8, 11, 14]])
def test_a_source_that_was_restored_when_its_topic_was_made_anew_gives_its_rows(scene: Scene, parts: list[int]) -> None:
    """Another life of the topic and another epoch of the log begin at once; the snapshot may be a file, or a run, of its own."""
    events = [*BEFORE, *[{**event, "offset": event["offset"] - 8} for event in AFTER]]
    for first, last in zip([0, *parts], parts, strict=False):
        scene.lands(*events[first:last])
        report = scene.apply()
    assert scene.rows() == EVERYTHING
    assert report.flows[0].batches[-1].epochs.begins == {"65536": ((0, 1),)}
    # A late copy of the first life is stale; what comes behind is not.
    scene.lands(*BEFORE)
    assert scene.apply().flows[0].batches[-1].rows == RowCounts()
    scene.lands({**change("u", 7, "G1", at=1050, offset=6)})
    assert scene.apply().flows[0].batches[-1].events.stale == 0
    assert scene.rows() == {**EVERYTHING, 7: "G1"}


@pytest.mark.deep
def test_a_range_of_an_epoch_reads_the_events_of_that_epoch_alone(scene: Scene) -> None:
    restored(scene)
    scene.apply()
    assert scene.rows() == EVERYTHING
    scene.sql("DELETE FROM TABLE WHERE id IN (1, 7)")

    # Between 1011 and 1036 there are two events of the first epoch and one of the second.
    done = scene.again("1011@1", "1036@1", dry_run=True)
    assert (done.found.events.read, done.found.rows) == (2, RowCounts())
    # The first epoch's rows went with it: nothing of them comes back.
    done = scene.again(None, "1040@1")
    assert (done.found.events.read, done.found.rows) == (8, RowCounts())
    assert scene.rows() == {6: "F"}

    done = scene.again("11@2", "1036@2")
    assert (done.found.events.read, done.found.rows) == (2, RowCounts(inserted=1))
    assert scene.rows() == {1: "A1", 6: "F"}
    done = scene.again("1040@2")
    assert (done.found.events.read, done.found.rows) == (1, RowCounts(inserted=1))
    assert scene.rows() == EVERYTHING


@pytest.mark.deep
@pytest.mark.parametrize("in_one_file", [True, False])
def test_a_range_may_go_from_one_epoch_to_the_next_and_be_given_by_times(scene: Scene, *, in_one_file: bool) -> None:
    restored(scene, in_one_file=in_one_file)
    scene.apply()
    assert scene.again("1030@1", "20@2", dry_run=True).found.events.read == 3
    assert scene.again("2023-11-14T22:13:21.025Z", "2023-11-14T22:13:21.035Z", dry_run=True).found.events.read == 1
    assert scene.again("2023-11-15T22:13:20.015Z", "2023-11-15T22:13:20.500Z", dry_run=True).found.events.read == 1
    assert scene.again("2023-11-14T22:13:21.035Z", "2023-11-15T22:13:20.500Z", dry_run=True).found.events.read == 2


@pytest.mark.deep
def test_a_range_of_which_a_position_names_no_epoch_is_refused(scene: Scene) -> None:
    restored(scene)
    scene.apply()
    for first, last in (("1011", None), (None, "1011"), ("2023-11-14", "20")):
        with pytest.raises(ConfigurationError, match="the source's log went back, and position") as refused:
            scene.again(first, last)
        assert "epoch 1: commits 1000 to 1040" in refused.value.message
    with pytest.raises(ConfigurationError, match=r"from commit position 20 \(epoch 2 of the log\) to 1040 is empty"):
        scene.again("20@2", "1040@1")
    with pytest.raises(ConfigurationError, match="is of epoch 3"):
        scene.again("20@3")


@pytest.mark.deep
def test_files_that_no_run_has_applied_do_not_move_the_range_of_a_time(scene: Scene) -> None:
    """What the log has after it went back stands below; of it nothing is known before it is applied."""
    scene.lands(*BEFORE)
    scene.apply()
    scene.lands(*AFTER)
    scene._apply(scene.archive, scene.lake, only_survey=True)
    scene.sql("DELETE FROM TABLE WHERE id = 5")

    assert scene.again("2023-11-14T22:13:21.035Z").found.events.read == 1
    assert scene.rows()[5] == "e"


@pytest.mark.deep
def test_reprocessing_both_lives_of_a_topic_by_position_finds_each(scene: Scene) -> None:
    scene.lands(*LIFE_1)
    scene.lands(*LIFE_2)
    scene.apply()
    scene.sql("DELETE FROM TABLE WHERE id = 3")
    assert scene.again("15", "25", dry_run=True).found.events.read == 1
    assert scene.again("105").found.rows == RowCounts(inserted=1)
    assert scene.rows() == {1: "A", 3: "C1"}
