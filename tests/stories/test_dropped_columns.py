"""What a row keeps in a column that the source dropped, as the flow says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, OnDroppedColumn
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.support.events import postgresql, write_records
from tests.support.tables import read_rows

TOPIC = "pg.public.goods"


def amounts(spark: SparkSession, lake: Path) -> dict[int, Any]:
    return {row["id"]: (row["v"], row["amount"]) for row in read_rows(spark, str(lake), TOPIC, history=True).rows}


@pytest.mark.parametrize(
    ("policy", "left", "at_once_too"),
    [
        (OnDroppedColumn.CLEAR, None, False),
        pytest.param(OnDroppedColumn.CLEAR, None, True, marks=pytest.mark.deep),
        pytest.param(OnDroppedColumn.KEEP, 1, True, marks=pytest.mark.deep),
    ],
)
def test_a_row_that_changes_after_the_drop_has_what_the_flow_says(
    policy: OnDroppedColumn, left: int | None, at_once_too: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    flows = {TOPIC: CdcFlow(TOPIC, on_dropped_column=policy, on_delete=OnDelete.FLAG)}
    had = [{"id": number, "v": "had", "amount": number} for number in (1, 2, 3)]
    write_records(archive / "0.jsonl", [postgresql("r", commit=None, change=1, after=row, topic=TOPIC, offset=row["id"]) for row in had])
    apply(archive, lake, flows=flows)
    new = [("u", {"id": 1, "v": "changed"}), ("c", {"id": 4, "v": "new"})]
    ops = [postgresql(op, commit=30, change=30 + row["id"], after=row, topic=TOPIC, offset=30 + row["id"]) for op, row in new]
    gone = postgresql("d", commit=30, change=39, before={"id": 3, "v": None}, topic=TOPIC, offset=39)
    write_records(archive / "1.jsonl", [*ops, gone])
    apply(archive, lake, flows=flows)
    expected = {1: ("changed", left), 2: ("had", 2), 3: ("had", 3), 4: ("new", None)}
    assert amounts(spark, lake) == expected

    # What comes late is of a schema that still had it, and says nothing any more.
    late = [
        postgresql("u", commit=20, change=21, after={**had[0], "v": "between"}, topic=TOPIC, offset=21),
        postgresql("u", commit=20, change=22, after={**had[1], "v": "between", "amount": 7}, topic=TOPIC, offset=22),
    ]
    write_records(archive / "2.jsonl", late)
    apply(archive, lake, flows=flows)
    assert amounts(spark, lake) == {**expected, 2: ("between", 7)}

    if at_once_too:
        at_once = lake.with_name("at-once")
        apply(archive, at_once, flows=flows)
        assert amounts(spark, at_once) == amounts(spark, lake)
        assert compare_lakes(spark, str(lake), str(at_once)).equal
