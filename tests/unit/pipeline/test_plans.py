"""What Spark makes of the pipeline's queries."""

from __future__ import annotations

import re
from pathlib import Path

from pyspark.sql import SparkSession

from tests.conftest import Apply
from tests.events import numbered, postgresql, sqlserver, write_records


def _filters(spark: SparkSession, *, since: int) -> list[str]:
    """Return the filters in the plans of the queries that this session's Spark has run, each as text."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    runs = [found.apply(place) for place in range(found.size())]
    plans = [run.physicalPlanDescription() for run in runs if run.executionId() > since]
    return [condition for plan in plans for condition in re.findall(r"^Condition : (.*)$", plan, re.MULTILINE)]


def test_a_line_is_not_parsed_once_more_by_what_asks_for_its_members(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """Filters had moved below the parsing, and parsed a line anew wherever they mentioned a member of it: hundreds of times."""
    store = spark._jsparkSession.sharedState().statusStore().executionsList()
    since = max((store.apply(place).executionId() for place in range(store.size())), default=-1)
    topic = "pg.public.taken"
    # One row takes another's key: its events are read once more, with images.
    taken_over = [
        postgresql("c", commit=20, change=21, after={"id": 1, "v": "b"}, topic=topic),
        postgresql("d", commit=20, change=22, before={"id": 1, "v": "a"}, topic=topic),
    ]
    for event in taken_over:
        event["value"]["source"]["txId"] = 20
    read = postgresql("r", commit=None, change=10, after={"id": 1, "v": "a"}, topic=topic)
    changed = [sqlserver("r", commit=1, after={"id": 1, "v": "a"}), sqlserver("u", commit=2, serial=2, after={"id": 1, "v": "b"})]
    of_each = [*numbered(changed), *numbered([read, *taken_over])]
    write_records(tmp_path / "archive" / "1.jsonl", of_each)
    report = apply(tmp_path / "archive", tmp_path / "lake")
    assert [flow.rows.inserted for flow in report.flows] == [1, 1]

    filters = _filters(spark, since=since)

    assert any("__cdc_reject" in condition for condition in filters)
    assert not [condition for condition in filters if "from_json" in condition]
