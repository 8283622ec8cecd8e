"""What keeping the last event per key gets wrong: each hazard is fed step by step, and the table must be the source's."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.upkeep.inspect_lake import read_rows
from tests.conftest import Apply
from tests.support.events import Record, write_records
from tests.support.hazards import HAZARDS, Row
from tests.support.last_event import last_event_per_key, table_of_hazards

OF_THE_WHOLE_TABLE = ("snapshot", "column")
"""Hazards that concern a table as a whole have one of their own; all others share one, each with a value of ``db`` to itself."""
SHARED = "pg.hazards.shared"


def topic_of(name: str) -> str:
    return "pg.hazards." + name.replace(" ", "_").replace(",", "") if any(word in name for word in OF_THE_WHOLE_TABLE) else SHARED


def owned(image: Row | None, number: int) -> Row | None:
    return None if image is None else {"db": number, "price": 0, **image}


def in_its_table(record: Record, name: str) -> Record:
    """Return the record as one of the table that the hazard lives in."""
    topic = topic_of(name)
    if topic != SHARED:
        return {**record, "topic": topic}
    number = list(HAZARDS).index(name)
    images = {side: owned(record["value"][side], number) for side in ("before", "after")}
    key = {"db": number, **record["key"]}
    source = record["value"]["source"]
    # One log, so no two events of it stand at one place.
    sequence = [None if part is None else str(1000 * number + int(part)) for part in json.loads(source["sequence"])]
    transaction = source["txId"] and 1000 * number + source["txId"]
    value = {**record["value"], **images, "source": {**source, "sequence": json.dumps(sequence), "txId": transaction}}
    return {**record, "topic": topic, "offset": 100 * number + record["offset"], "key": key, "value": value}


@pytest.fixture(scope="module")
def lake(apply: Apply, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, int]]:
    """Apply all histories side by side, step by step; the lake, and by topic how many values stayed unresolved."""
    folder = tmp_path_factory.mktemp("hazards")
    unresolved: Counter[str] = Counter()
    for step in range(max(len(hazard.steps) for hazard in HAZARDS.values())):
        files: dict[str, list[Record]] = {}
        for name, hazard in HAZARDS.items():
            for record in hazard.steps[step] if step < len(hazard.steps) else ():
                files.setdefault(topic_of(name), []).append(in_its_table(record, name))
        for topic, records in files.items():
            write_records(folder / "archive" / f"{step} {topic}.jsonl", records)
        report = apply(folder / "archive", folder / "lake")
        for flow in report.flows:
            unresolved[flow.flow] += sum(batch.unavailable_unresolved for batch in flow.batches)
    return folder / "lake", unresolved


@pytest.mark.parametrize("name", HAZARDS)
def test_the_table_is_the_source_s(name: str, lake: tuple[Path, dict[str, int]], spark: SparkSession) -> None:
    folder, _ = lake
    rows = read_rows(spark, str(folder), topic_of(name)).rows
    expected = [dict(row) for row in HAZARDS[name].rows]
    if topic_of(name) == SHARED:
        number = list(HAZARDS).index(name)
        rows = [row for row in rows if row["db"] == number]
        expected = [{"db": number, "price": 0, **row} for row in expected]
    assert rows == expected, json.dumps(rows)


def test_what_was_nowhere_to_be_had_is_counted(lake: tuple[Path, dict[str, int]]) -> None:
    assert lake[1][SHARED] == sum(hazard.unresolved for hazard in HAZARDS.values())


def test_the_last_event_per_key_gets_most_of_them_wrong() -> None:
    wrong = [name for name, hazard in HAZARDS.items() if last_event_per_key(hazard.records) != list(hazard.rows)]
    assert len(wrong) > len(HAZARDS) / 2, wrong


def test_the_docs_show_of_each_hazard_what_both_give(lake: tuple[Path, dict[str, int]]) -> None:
    """What we give is the source's rows: the tests above, on the same lake."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "hazards.md"
    assert table_of_hazards() in page.read_text(encoding="utf-8"), f"{page.name} should hold:\n{table_of_hazards()}"
