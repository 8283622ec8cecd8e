"""A range of the source's log is given by positions, by times, or by one of each."""

from __future__ import annotations

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position.as_of import AsOf, parse_as_of
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.pipeline.locate.find_range import find_range
from airflow_cdc.pipeline.survey.survey_files import survey_files
from tests.support.events import TOPIC, Record, lsn, numbered, sqlserver, write_records

OTHER = "server1.testDB.dbo.orders"
POSITIONS = {sqlserver_lsn(lsn(number)): number for number in range(10)}


def event(commit: int, *, at: int, op: str = "c", topic: str = TOPIC) -> Record:
    """Return an event that the source committed at a millisecond of its own."""
    event = sqlserver(op, commit=commit, after={"id": commit}, topic=topic)
    event["value"]["source"]["ts_ms"] = 1_700_000_000_000 + at
    return event


# The source's clock steps back at 4. The read and the other topic's event would bound a range if they counted.
EVENTS = [
    event(1, at=3, op="r"),
    event(1, at=1),
    event(2, at=2),
    event(3, at=3),
    event(4, at=2),
    event(5, at=5),
    event(9, at=9, topic=OTHER),
]


@pytest.fixture(scope="module")
def state(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ArchiveState:
    """An archive that was looked into."""
    folder, fs = tmp_path_factory.mktemp("range"), fsspec.filesystem("file")
    archive = str(write_records(folder / "archive" / "1.jsonl", numbered(EVENTS)).parent)
    state = ArchiveState(fs, str(folder / "lake"), archive)
    files, shapes = survey_files(spark, archive, list_archive(fs, archive).files)
    assert state.add(Survey(archive, 1, files, shapes))
    return state


def time(milliseconds: int) -> AsOf:
    return parse_as_of(f"2023-11-14T22:13:20.{milliseconds:03}Z")


def position(number: int) -> AsOf:
    return parse_as_of(lsn(number))


@pytest.mark.parametrize(
    ("first", "last", "since", "through"),
    [
        (time(3), None, 3, None),
        (None, time(3), None, 4),
        # Where a clock steps back, the log decides about the middle: from a time on nothing is left out …
        (time(2), None, 2, None),
        # … and to a time nothing is in that stands behind a later one.
        (None, time(2), None, 2),
        (time(2), time(2), 2, 2),
        (None, time(5), None, None),
        (position(2), time(3), 2, 4),
        (time(3), position(4), 3, 4),
        (position(2), position(3), 2, 3),
        (None, None, None, None),
    ],
)
def test_a_range_goes_from_a_transaction_to_another(
    first: AsOf | None, last: AsOf | None, since: int | None, through: int | None, spark: SparkSession, state: ArchiveState
) -> None:
    found = find_range(spark, state, TOPIC, first, last)
    assert found is not None
    assert found.connector == "sqlserver"
    assert (POSITIONS.get(found.since or -1), None if found.before is None else _last_before(found.before)) == (since, through)


def _last_before(position: int) -> int:
    return max(number for at, number in POSITIONS.items() if at < position)


@pytest.mark.parametrize(("first", "last"), [(time(6), None), (time(5), position(4)), (position(4), time(2))])
def test_a_range_in_which_nothing_stands_is_none(first: AsOf, last: AsOf | None, spark: SparkSession, state: ArchiveState) -> None:
    assert find_range(spark, state, TOPIC, first, last) is None


@pytest.mark.parametrize(("first", "last"), [(time(3), time(2)), (position(3), position(2))])
def test_a_range_that_is_turned_round_is_refused(first: AsOf, last: AsOf, spark: SparkSession, state: ArchiveState) -> None:
    with pytest.raises(ConfigurationError, match="is empty"):
        find_range(spark, state, TOPIC, first, last)
