"""What was set aside is read again under better settings: it takes its place among the others, and the rest stays set aside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.places import delete_markers_uri, expired_markers_uri
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.repair.replay_quarantine import Replayed, replay_quarantine
from airflow_cdc.pipeline.repair.reprocess import Reprocessing, reprocess
from airflow_cdc.pipeline.upkeep.expire_markers import expire_markers
from tests.conftest import Apply
from tests.support.events import TOPIC, lsn, numbered, sqlserver, write_records
from tests.support.tables import read_quarantine, read_rows

LARGE = 2**40
UNFIT, MALFORMED = (reason.value for reason in (RejectReason.VALUE_DOES_NOT_FIT_COLUMN, RejectReason.MALFORMED_JSON))
FIRST = numbered(
    [
        sqlserver("c", commit=1, after={"id": 1, "n": 1}),
        # Set aside: a number that the declared type does not hold. One of them is overtaken by a later file.
        sqlserver("c", commit=2, after={"id": 2, "n": LARGE}),
        sqlserver("c", commit=3, after={"id": 3, "n": LARGE}),
        sqlserver("c", commit=4, after={"id": 4, "n": "no number"}),
    ]
)
SECOND = numbered([sqlserver("u", commit=5, after={"id": 3, "n": 33}), sqlserver("d", commit=6, before={"id": 1, "n": 1})], first=4)
NARROW, WIDE = ({TOPIC: CdcFlow(TOPIC, columns={"n": kind})} for kind in ("INT", "BIGINT"))


class Set:
    """A lake with four records in its quarantine, of one file of two."""

    def __init__(self, apply: Apply, spark: SparkSession, folder: Path) -> None:
        self.spark, self.apply, self.archive, self.lake = spark, apply, folder / "archive", folder / "lake"
        write_records(self.archive / "1.jsonl", FIRST)
        with (self.archive / "1.jsonl").open("a", encoding="utf-8") as file:
            file.write("{half a line\n")
        write_records(self.archive / "2.jsonl", SECOND)
        apply(self.archive, self.lake, flows=NARROW)

    def replay(self, *reasons: str, **options: Any) -> Replayed:
        options = {"flows": WIDE, **options}
        return replay_quarantine(Reprocessing(self.spark, str(self.archive), str(self.lake), TOPIC, **options), reasons)

    def rows(self) -> list[tuple[int, int]]:
        return [(row["id"], row["n"]) for row in read_rows(self.spark, str(self.lake), TOPIC).rows]

    def set_aside(self) -> list[tuple[int, str, int]]:
        return sorted((row["line"], row["reason"], row["microbatch"]) for row in read_quarantine(self.spark, str(self.lake)))


def test_what_can_be_merged_by_now_takes_its_place_and_the_rest_stays(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    quarantine = Set(apply, spark, tmp_path)
    before = [
        (2, UNFIT, 1),
        (3, UNFIT, 1),
        (4, UNFIT, 1),
        (5, MALFORMED, 1),
    ]
    assert (quarantine.rows(), quarantine.set_aside()) == ([(3, 33)], before)

    dry = quarantine.replay(dry_run=True)
    assert (dry.files, quarantine.rows(), quarantine.set_aside()) == (1, [(3, 33)], before)
    done = quarantine.replay(UNFIT)
    assert done.report is not None
    assert (done.files, done.report.rows.inserted, done.report.events.rejected) == (1, 1, 2)
    # The deleted row does not come back, nor does the older value of one that was changed since.
    assert quarantine.rows() == [(2, LARGE), (3, 33)]
    left = [(4, UNFIT, 2), (5, MALFORMED, 2)]
    assert quarantine.set_aside() == left

    # Nothing has changed since: nothing is written.
    assert quarantine.replay().again is not None
    assert quarantine.set_aside() == left
    assert quarantine.replay("missing_key").again is None
    with pytest.raises(ConfigurationError, match="no_such_reason"):
        quarantine.replay("no_such_reason")


@pytest.mark.deep
@pytest.mark.parametrize("way", ["replay", "reprocess"])
def test_rows_deleted_since_stay_deleted_whatever_became_of_their_markers(
    way: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    quarantine = Set(apply, spark, tmp_path)
    number = FlowState(fsspec.filesystem("file"), str(quarantine.lake), TOPIC).checkpoint().number
    places = (delete_markers_uri(str(quarantine.lake), TOPIC), expired_markers_uri(str(quarantine.lake), TOPIC))
    assert expire_markers(spark, *places, number, dry_run=False) == 1
    assert expire_markers(spark, *places, number, dry_run=False) == 0
    if way == "replay":
        quarantine.replay()
    else:
        reprocess(Reprocessing(spark, str(quarantine.archive), str(quarantine.lake), TOPIC, last=parse_as_of(lsn(4)), flows=WIDE))
    assert quarantine.rows() == [(2, LARGE), (3, 33)]


@pytest.mark.deep
def test_events_that_are_overtaken_leave_the_quarantine_too(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    quarantine = Set(apply, spark, tmp_path)
    write_records(quarantine.archive / "3.jsonl", numbered([sqlserver("u", commit=7, after={"id": 2, "n": 22})], first=6))
    apply(quarantine.archive, quarantine.lake, flows=NARROW)
    assert quarantine.rows() == [(2, 22), (3, 33)]
    done = quarantine.replay()
    assert done.report is not None
    assert done.report.events.stale > 0
    assert quarantine.rows() == [(2, 22), (3, 33)]
    assert [line for line, _, _ in quarantine.set_aside()] == [4, 5]


@pytest.mark.deep
def test_a_replay_that_is_cut_off_is_ended_by_the_next_run(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    quarantine = Set(apply, spark, tmp_path)

    def crash(effect: str) -> None:
        if effect == "merge":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        quarantine.replay(after_effect=crash)
    assert len(quarantine.set_aside()) == 6
    apply(quarantine.archive, quarantine.lake, flows=WIDE)
    assert quarantine.rows() == [(2, LARGE), (3, 33)]
    assert [line for line, _, _ in quarantine.set_aside()] == [4, 5]
