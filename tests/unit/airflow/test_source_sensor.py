"""When a comparison with the source ends, and how: by what each look at the flows finds."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.model.errors import SourceFailedError
from airflow_cdc.model.pull.compared_rows import OpenRow
from airflow_cdc.model.state.comparison import FlowComparison
from airflow_cdc.sensors.source import CdcSourceSensor

NOW = int(time.time() * 1000)
ROW = OpenRow(7, 1, None, 0, NOW)
EQUAL = FlowComparison("equal", at=NOW, source_rows=3, table_rows=3)
OPEN = FlowComparison("orders", at=NOW, source_rows=3, table_rows=2, open=(ROW,))
DIFFERENT = replace(OPEN, open=(), different=1, sample=({"side": "missing", "id": "7"},))
SKIPPED = FlowComparison("log", skipped="the table has no row for each key")


class Flows:
    """Stands for the databases: each flow has what its next looks find, and keeps the last, as a lake does."""

    def __init__(self, **looks: list[FlowComparison]) -> None:
        self.looks = looks
        self.kept = {name: FlowComparison(name) for name in looks}
        self.asked: list[str] = []

    def flows(self) -> list[FlowComparison]:
        return sorted(self.kept.values(), key=lambda each: (each.at, each.flow))

    def compare(self, before: FlowComparison, run: str) -> FlowComparison:
        self.asked.append(f"all of {before.flow}")
        return self._next(before, run)

    def look_again(self, before: FlowComparison) -> FlowComparison:
        self.asked.append(f"rows of {before.flow}")
        return self._next(before, before.run)

    def _next(self, before: FlowComparison, run: str) -> FlowComparison:
        found = replace(self.looks[before.flow].pop(0), run=run, flow=before.flow)
        self.kept[before.flow] = found
        return found


@pytest.fixture
def sensor(monkeypatch: pytest.MonkeyPatch) -> Any:
    def make(flows: Any, **arguments: Any) -> CdcSourceSensor:
        made = CdcSourceSensor(task_id="compare", **arguments)
        monkeypatch.setattr(made, "_comparison", lambda: flows)
        return made

    return make


def test_open_rows_are_looked_at_again_until_they_are_alike_and_nothing_else_is(sensor: Any, context: Any) -> None:
    flows = Flows(orders=[OPEN, OPEN, replace(OPEN, open=())], equal=[EQUAL], log=[SKIPPED])
    task = sensor(flows)
    assert [task.poke(context).is_done for _ in range(2)] == [False, False]
    assert task.poke(context).xcom_value == {"equal": ["equal", "orders"], "undecided": {}, "not_compared": {"log": SKIPPED.skipped}}
    assert flows.asked == ["all of equal", "all of log", "all of orders", "rows of orders", "rows of orders"]


def test_a_difference_fails_the_task_for_good_once_all_is_decided(sensor: Any, context: Any) -> None:
    flows = Flows(orders=[OPEN, DIFFERENT], items=[OPEN, OPEN, replace(OPEN, open=())])
    task = sensor(flows)
    assert [task.poke(context).is_done for _ in range(2)] == [False, False]
    with pytest.raises(AirflowFailException, match="orders: 1 rows differ, for example side missing, id 7"):
        task.poke(context)


def test_who_clears_the_task_has_what_differed_compared_anew_and_a_retry_goes_on(sensor: Any, context: Any) -> None:
    flows = Flows(orders=[DIFFERENT, replace(EQUAL, flow="orders")], equal=[EQUAL])
    with pytest.raises(AirflowFailException):
        sensor(flows).poke(context)
    context["ti"].try_number = 2
    assert sensor(flows).poke(context).xcom_value["equal"] == ["equal", "orders"]
    assert flows.asked == ["all of equal", "all of orders", "all of orders"]
    context["ti"].run_id = "manual__2"
    flows.looks = {"orders": [EQUAL], "equal": [EQUAL]}
    assert sensor(flows).poke(context).is_done
    assert flows.asked[3:] == ["all of equal", "all of orders"]


def test_who_has_no_patience_any_more_says_what_is_undecided(sensor: Any, context: Any) -> None:
    flows = Flows(orders=[replace(OPEN, at=NOW - 7_300_000)], equal=[EQUAL])
    assert sensor(flows).poke(context).xcom_value == {"equal": ["equal"], "undecided": {"orders": 1}, "not_compared": {}}


def test_a_run_that_compared_nothing_is_not_green(sensor: Any, context: Any) -> None:
    for flows in (Flows(), Flows(log=[SKIPPED])):
        with pytest.raises(AirflowFailException, match="Nothing was compared"):
            sensor(flows).poke(context)


def test_a_database_that_does_not_answer_is_tried_again(sensor: Any, context: Any) -> None:
    class Away(Flows):
        def compare(self, before: FlowComparison, run: str) -> FlowComparison:
            raise SourceFailedError("Connection shop: no answer.", next_step="Try again.")

    with pytest.raises(AirflowException, match="no answer") as failure:
        sensor(Away(orders=[])).poke(context)
    assert isinstance(failure.value, AirflowFailException) is not SourceFailedError("x", next_step="y").transient


def test_a_table_that_the_source_refuses_keeps_no_other_from_being_compared_and_is_tried_again(sensor: Any, context: Any) -> None:
    refused = FlowComparison("items", at=NOW, error="Connection shop: permission denied for table items.")
    flows = Flows(items=[refused, refused], orders=[EQUAL])
    for again in (1, 2):
        context["ti"].try_number = again
        with pytest.raises(AirflowException, match="items: Connection shop: permission denied") as failure:
            sensor(flows).poke(context)
        assert not isinstance(failure.value, AirflowFailException)
    assert flows.asked == ["all of items", "all of orders", "all of items"]


def test_an_archive_that_names_no_source_is_refused_before_anything_is_asked(scene: Any, context: Any) -> None:
    with pytest.raises(AirflowFailException, match="names no source"):
        CdcSourceSensor(task_id="compare").poke(context)
