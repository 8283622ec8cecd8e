"""What Spark makes of the pipeline's queries."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.engine import Engine
from tests.conftest import Apply
from tests.support.events import numbered, postgresql, sqlserver, write_records

ANN, BEN, CAT = ({"id": number, "name": name} for number, name in enumerate(("ann", "ben", "cat"), start=1))


def _executions(spark: SparkSession) -> dict[int, Any]:
    """Return the queries that this session's Spark has run, by number."""
    found = spark._jsparkSession.sharedState().statusStore().executionsList()
    return {run.executionId(): run for run in (found.apply(place) for place in range(found.size()))}


def joining_plans(spark: SparkSession, behind: int) -> dict[int, str]:
    """Return the plans with a join that this session's Spark has run outside of a MERGE, by number; only those behind a number.

    Spark forgets old queries one by one: of an older MERGE it may be forgotten that its parts are such.
    """
    runs = {number: run for number, run in _executions(spark).items() if number > behind}
    merges = {number for number, run in runs.items() if "MergeIntoCommand" in (run.physicalPlanDescription() or "")}
    joins = {number: plan for number, run in runs.items() if "Join" in (plan := run.physicalPlanDescription() or "")}
    return {number: plan for number, plan in joins.items() if not {number, runs[number].rootExecutionId()} & merges}


def test_the_guard_costs_one_join_in_a_batch_after_everything_applied(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    created = [sqlserver("c", commit=10, after=ANN), sqlserver("c", commit=11, after=BEN), sqlserver("c", commit=12, after=CAT)]
    write_records(archive / "1.jsonl", numbered(created, first=10))
    apply(archive, lake, engine=Engine.SPARK)
    last = max(_executions(spark))

    after = [sqlserver("u", commit=20, serial=2, after=ANN), sqlserver("d", commit=21, before=BEN), sqlserver("c", commit=22, after=BEN)]
    write_records(archive / "2.jsonl", numbered(after, first=13))
    report = apply(archive, lake, engine=Engine.SPARK)
    assert report.flows[0].batches[0].merge_plan.startswith("merge (")
    # One look at the rows' positions, whatever was applied before.
    assert len(joining_plans(spark, last)) == 1

    last = max(_executions(spark))
    write_records(archive / "3.jsonl", numbered([sqlserver("u", commit=15, serial=2, after=ANN)], first=5))
    assert apply(archive, lake, engine=Engine.SPARK).flows[0].events.stale == 1
    assert len(joining_plans(spark, last)) > 1


def test_a_line_is_not_parsed_once_more_by_what_asks_for_its_members(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """Filters had moved below the parsing, and parsed a line anew wherever they mentioned a member of it: hundreds of times."""
    earlier = _executions(spark).keys()
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
    report = apply(tmp_path / "archive", tmp_path / "lake", engine=Engine.SPARK)
    assert [flow.rows.inserted for flow in report.flows] == [1, 1]

    plans = [run.physicalPlanDescription() for number, run in _executions(spark).items() if number not in earlier]
    filters = [condition for plan in plans for condition in re.findall(r"^Condition : (.*)$", plan, re.MULTILINE)]

    assert any("__cdc_reject" in condition for condition in filters)
    assert not [condition for condition in filters if "from_json" in condition]
