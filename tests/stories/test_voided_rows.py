"""A row that a truncate or a snapshot took is about nothing any more: no later delete of the key is about it.

A connector with deferrable keys writes c(1) d(1) in one transaction both where a row was born and went, and where row 1 made room for
another. Which of them it was depends on whether a row lived under the key.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete
from tests.conftest import Apply
from tests.support.events import Record
from tests.support.stories import TOPIC, Table, event, truncate

BORN_AND_GONE = (event("c", 31, 1, "short", commit=30), event("d", 32, 1, commit=30))


def in_transaction(number: int, *events: Record) -> list[Record]:
    """Return the events as those of one transaction."""
    return [{**each, "value": {**each["value"], "source": {**each["value"]["source"], "txId": number}}} for each in events]


def read(key: int, at: int, marker: str) -> Record:
    return event("r", at, key, f"read at {at}", snapshot=marker)


@pytest.fixture(params=[OnDelete.REMOVE, pytest.param(OnDelete.FLAG, marks=pytest.mark.deep)], ids=["removed", "flagged"])
def table(apply: Apply, spark: SparkSession, tmp_path: Path, request: pytest.FixtureRequest) -> Table:
    return Table(apply, spark, tmp_path, CdcFlow(TOPIC, on_delete=request.param))


@pytest.mark.deep
def test_a_row_born_and_deleted_behind_a_truncate_of_the_same_microbatch_is_gone(table: Table) -> None:
    table.load(event("c", 10, 1, "old"), truncate(20), *in_transaction(7, *BORN_AND_GONE), event("c", 40, 2, "two"))
    assert table.live() == [(2, "two")]


def test_a_row_born_and_deleted_behind_a_truncate_of_the_target_s_row_is_gone(table: Table) -> None:
    table.load(event("c", 10, 1, "old"))
    table.load(truncate(20), *in_transaction(7, *BORN_AND_GONE), event("c", 40, 2, "two"))
    assert table.live() == [(2, "two")]


def test_a_row_that_made_room_in_the_transaction_behind_a_truncate_leaves_the_other_alive(table: Table) -> None:
    table.load(truncate(5), event("c", 20, 1, "old"), *in_transaction(7, *BORN_AND_GONE))
    assert table.live() == [(1, "short")]


@pytest.mark.deep
def test_a_row_born_and_deleted_behind_a_new_topic_s_snapshot_that_did_not_find_the_key_is_gone(table: Table) -> None:
    table.load(read(1, 10, "first"), read(3, 10, "last"), event("u", 15, 3, "three"))
    anew = [read(2, 20, "first"), read(3, 20, "last"), *in_transaction(7, *BORN_AND_GONE), event("c", 40, 4, "four")]
    table.load(*({**each, "offset": offset} for offset, each in enumerate(anew)))
    assert table.live() == [(2, "read at 20"), (3, "read at 20"), (4, "four")]


def placed(partition: int, *events: Record) -> list[Record]:
    """Return the events as a new partition holds them."""
    return [{**each, "partition": partition, "offset": offset} for offset, each in enumerate(events)]


@pytest.mark.deep
@pytest.mark.parametrize(("here", "there"), [("last", "first"), ("first", "last")], ids=["last read seen", "last read to come"])
def test_a_row_born_and_deleted_before_the_snapshot_is_proven_in_other_partitions_is_gone(table: Table, here: str, there: str) -> None:
    first = [*placed(0, read(1, 10, "first"), read(3, 10, "true"), event("u", 15, 3, "three")), *placed(1, read(2, 10, "last"))]
    table.load(*first, {**event("u", 16, 2, "two"), "partition": 1, "offset": 1})
    table.load(*placed(0, read(3, 20, here), *in_transaction(7, *BORN_AND_GONE), event("c", 40, 4, "four")))
    assert table.live() == [(2, "two"), (3, "read at 20"), (4, "four")]
    # The rest of the snapshot proves it.
    table.load(*placed(1, read(5, 20, there), event("u", 41, 5, "five")))
    assert table.live() == [(3, "read at 20"), (4, "four"), (5, "five")]


@pytest.mark.deep
def test_a_row_that_made_room_behind_a_snapshot_that_read_it_leaves_the_other_alive(table: Table) -> None:
    table.load(read(1, 10, "first"), read(3, 10, "last"), event("u", 15, 3, "three"))
    anew = [read(1, 20, "first"), read(3, 20, "last"), *in_transaction(7, *BORN_AND_GONE), event("c", 40, 4, "four")]
    table.load(*placed(0, *anew))
    assert table.live() == [(1, "short"), (3, "read at 20"), (4, "four")]
