"""Stories of tables that are change logs: every event once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnTruncate, WriteDisposition
from tests.conftest import Apply
from tests.support.stories import PLACEHOLDER, TOPIC, Table, event, truncate

Logged = tuple[str, int, int | None, str | None]


@pytest.fixture
def table(apply: Apply, spark: SparkSession, tmp_path: Path) -> Table:
    return Table(apply, spark, tmp_path, CdcFlow(TOPIC, write_disposition=WriteDisposition.APPEND))


def logged(table: Table) -> list[Logged]:
    """Return operation, change position, key and value, in the order of the log."""
    rows = sorted(table.rows(), key=lambda row: (int(row["__cdc_position"]["commit"]), int(row["__cdc_position"]["change"])))
    return [(row["__cdc_op"], int(row["__cdc_position"]["change"]), row["id"], row["v"]) for row in rows]


@pytest.mark.deep
def test_every_event_is_a_row_also_deletes_and_truncates(table: Table) -> None:
    flow = table.load(event("r", 5, 1, "read"), event("u", 10, 1, "one"), event("u", 11, 1, "two", note=PLACEHOLDER))
    assert (flow.events.read, flow.events.merged, flow.rows.inserted) == (3, 3, 3)
    first = [("u", 10, 1, "one"), ("u", 11, 1, "two")]
    assert logged(table) == [("r", -1, 1, "read"), *first]
    table.load(event("d", 20, 1), truncate(30), event("c", 40, 1, "new"))
    assert logged(table)[1:] == [*first, ("d", 20, 1, None), ("t", 30, None, None), ("c", 40, 1, "new")]
    unavailable = {int(row["__cdc_position"]["change"]): row["__cdc_unavailable"] for row in table.rows()}
    assert {change for change, names in unavailable.items() if names} == {11}
    assert unavailable[11] == ["note"]


def test_an_event_that_comes_again_adds_nothing(table: Table) -> None:
    first = [{**event("c", 10, 1, "one"), "offset": 10}, {**event("u", 20, 1, "two"), "offset": 11}, {**truncate(25), "offset": 12}]
    flow = table.load(*first, {**event("u", 20, 1, "two"), "offset": 13}, {**event("c", 30, 2, "other"), "offset": 14})
    assert (flow.events.merged, flow.events.redelivered) == (4, 1)
    before = logged(table)
    assert before == [("c", 10, 1, "one"), ("u", 20, 1, "two"), ("t", 25, None, None), ("c", 30, 2, "other")]
    flow = table.load(*first, {**event("u", 15, 1, "late"), "offset": 5})
    assert (flow.events.merged, flow.events.stale, flow.rows.inserted) == (1, 3, 1)
    assert flow.batches[0].merge_plan == "append: known events left out"
    assert logged(table) == [before[0], ("u", 15, 1, "late"), *before[1:]]
    flow = table.load(*first)
    assert (flow.batches[0].merge_plan, flow.events.stale) == ("nothing to append", 3)
    assert len(logged(table)) == 5


@pytest.mark.deep
def test_a_column_that_appears_later_is_null_in_older_events(table: Table) -> None:
    table.load(event("c", 10, 1, "one"))
    wider = event("u", 20, 1, "two")
    wider["value"]["after"]["extra"] = "new"
    table.load(wider)
    assert [row["extra"] for row in table.rows()] == [None, "new"]


@pytest.mark.deep
def test_an_ignored_truncate_is_no_row_and_one_before_any_table_neither(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    ignoring = CdcFlow(TOPIC, write_disposition=WriteDisposition.APPEND, on_truncate=OnTruncate.IGNORE)
    table = Table(apply, spark, tmp_path / "ignoring", ignoring)
    flow = table.load(event("c", 10, 1, "one"), truncate(20))
    assert (flow.events.merged, flow.events.control) == (1, 1)
    assert logged(table) == [("c", 10, 1, "one")]
    empty = Table(apply, spark, tmp_path / "empty", CdcFlow(TOPIC, write_disposition=WriteDisposition.APPEND))
    flow = empty.load(truncate(5))
    assert (flow.events.read, flow.events.control) == (1, 1)


@pytest.mark.deep
def test_a_crash_behind_the_append_does_not_append_twice(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    table = Table(apply, spark, tmp_path, CdcFlow(TOPIC, write_disposition=WriteDisposition.APPEND))

    def crash(effect: str) -> None:
        if effect == "append":
            raise RuntimeError("lights out")

    settings: dict[str, Any] = {"flows": {TOPIC: table.flow}}
    table.archive(event("c", 10, 1, "one"), event("u", 20, 1, "two"))
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", may_fail=True, after_effect=crash, **settings).flows
    assert flow.error
    assert "lights out" in flow.error["message"]
    (flow,) = apply(tmp_path / "archive", tmp_path / "lake", **settings).flows
    assert (flow.events.merged, flow.rows.inserted) == (2, 2)
    assert logged(table) == [("c", 10, 1, "one"), ("u", 20, 1, "two")]
