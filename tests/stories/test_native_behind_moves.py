"""A flow with key changes that left values out: the native engine goes on, and leaves to Spark what a late event says of such a row."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from tests.conftest import Apply
from tests.support.stories import PLACEHOLDER, TOPIC, Table, event


def test_only_an_event_of_a_row_that_moved_leaves_the_native_engine(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    table = Table(apply, spark, tmp_path, CdcFlow(TOPIC))
    table.load({**event("c", 10, 1, "v", note="X"), "offset": 0}, {**event("c", 11, 5, "five"), "offset": 1})
    table.load({**event("d", 30, 1), "offset": 4}, {**event("c", 30, 2, "v", note=PLACEHOLDER), "offset": 5})
    assert table.rows(history=False)[0] == {"id": 2, "v": "v", "note": "X"}

    def engine(*events: dict[str, object]) -> tuple[str, str]:
        (batch,) = table.load(*events).batches
        return batch.engine, batch.engine_reason

    native = (Engine.NATIVE.value, "")
    assert engine({**event("u", 40, 5, "new"), "offset": 6}) == native
    # Late, of another row; of another row under the old key; and of the row that moved.
    assert engine({**event("u", 20, 5, "old"), "offset": 2}) == native
    assert engine({**event("c", 50, 1, "other"), "offset": 7}) == native
    assert engine({**event("u", 25, 1, "v", note="X2"), "offset": 3})[1] == "a late event of a row that has another key by now"
    assert table.rows(history=False) == [
        {"id": 1, "v": "other", "note": "-"},
        {"id": 2, "v": "v", "note": "X2"},
        {"id": 5, "v": "new", "note": "-"},
    ]
