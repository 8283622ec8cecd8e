"""Keys that are a single value, as ``ExtractField$Key`` makes them: no table without a key, and no guess which column they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import FlowOutcome
from tests.conftest import Apply
from tests.support.events import Record, sqlserver, tombstone, write_records, write_sink_file
from tests.support.tables import read_rows

TOPIC = "server1.testDB.dbo.single"
SPELLED: dict[str, Callable[[int], Any]] = {
    "whole numbers": lambda number: number,
    "texts": lambda number: f'"{number}"',
    "text that is a number": str,
    "with schema": lambda number: {"schema": {"type": "int32", "optional": False}, "payload": number},
}
QUICK = {(False, "whole numbers"), (True, "with schema")}
"""Whether the keys lie in a companion, and how they are spelled: each of both in one test of every run."""


def keyed(key: Any, op: str, commit: int, **images: Any) -> Record:
    return {**sqlserver(op, commit=commit, topic=TOPIC, offset=commit, **images), "key": key}


def story(form: str) -> list[Record]:
    """Return creates of three rows, and deletes of two: one that carries the row, and one that carries only the key."""
    rows = [{"id": SPELLED["text that is a number"](n) if form.startswith("text") else n, "v": f"v{n}"} for n in (1, 2, 3)]
    if form == "texts":
        rows = [{**row, "id": f'"{row["id"]}"'} for row in rows]
    keys: list[Any] = [SPELLED[form](number) for number in (1, 2, 3)]
    creates = [keyed(key, "c", commit, after=row) for commit, (key, row) in enumerate(zip(keys, rows, strict=True), 1)]
    deletes = [keyed(keys[0], "d", 4, before=rows[0]), keyed(keys[1], "d", 5)]
    return [*creates, *deletes, tombstone(keys[1], topic=TOPIC, offset=6)]


@pytest.mark.parametrize(
    ("has_companion", "form"),
    [pytest.param(beside, form, marks=[] if (beside, form) in QUICK else pytest.mark.deep) for beside in (False, True) for form in SPELLED],
)
def test_one_declared_key_takes_its_value_from_a_single_key_where_the_image_lacks_it(
    has_companion: bool, form: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    events = story(form)
    if has_companion:
        write_sink_file(archive, events, keys=True)
    else:
        write_records(archive / "all.jsonl", events)
    events_of = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, keys=("id",))}).flows[0].events
    assert (events_of.merged, events_of.superseded, events_of.tombstones, events_of.rejected) == (3, 2, 0 if has_companion else 1, 0)
    assert [row["v"] for row in read_rows(spark, str(lake), TOPIC).rows] == ["v3"]


@pytest.mark.parametrize("form", ["whole numbers", "with schema"])
def test_without_a_declared_key_the_flow_stops_and_names_what_to_declare(form: str, apply: Apply, archive: Path, lake: Path) -> None:
    """It was taken for a table without a key: a multiset of rows, in which a delete finds nothing."""
    write_records(archive / "all.jsonl", story(form))
    (outcome,) = apply(archive, lake, may_fail=True).flows
    assert outcome.error
    assert outcome.error["type"] == "KeysUnknownError"
    assert "single values" in outcome.error["message"]
    assert "keys: [COLUMN]" in outcome.error["next_step"]
    assert not (lake / TOPIC).exists()


def refused(outcome: FlowOutcome) -> dict[str, int]:
    return dict(outcome.batches[-1].rejects)


@pytest.mark.deep
def test_a_single_key_is_not_taken_for_one_of_several_columns_nor_over_an_image_that_differs(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    """Records may be keyed by the column that decides about their partition."""
    row = {"id": 1, "part": 7, "v": "x"}
    events = [
        keyed(7, "c", 1, after=row),
        keyed(7, "c", 2, after={**row, "id": 7}),
        keyed(7, "d", 3, before=row),
    ]
    write_records(archive / "all.jsonl", events)
    apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, keys=("id",))})
    assert [found["id"] for found in read_rows(spark, str(lake), TOPIC).rows] == [7]
    write_records(archive / "all.jsonl", [*events, keyed(7, "d", 4)])
    several = apply(archive, lake / "several", flows={TOPIC: CdcFlow(TOPIC, keys=("id", "part"))}).flows[0]
    assert refused(several) == {"missing_key": 1}
    assert [found["id"] for found in read_rows(spark, str(lake / "several"), TOPIC).rows] == [7]
