"""What keeping the last event per key gets wrong: each hazard is fed step by step, and the table must be the source's."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.conftest import Apply
from tests.support.events import Record, write_records
from tests.support.hazard_events import Row
from tests.support.hazards import HAZARDS
from tests.support.last_event import last_event_per_key, table_of_hazards
from tests.support.tables import read_rows

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


@dataclass(frozen=True)
class Applied:
    """By topic the table's rows, and how many values stayed unresolved."""

    rows: dict[str, list[dict[str, Any]]]
    unresolved: Counter[str]


def side_by_side(names: Collection[str], folder: Path, apply: Apply, spark: SparkSession) -> Applied:
    """Apply histories side by side, step by step."""
    hazards = {name: HAZARDS[name] for name in names}
    unresolved: Counter[str] = Counter()
    for step in range(max(len(hazard.steps) for hazard in hazards.values())):
        files: dict[str, list[Record]] = {}
        for name, hazard in hazards.items():
            for record in hazard.steps[step] if step < len(hazard.steps) else ():
                files.setdefault(topic_of(name), []).append(in_its_table(record, name))
        for topic, records in files.items():
            write_records(folder / "archive" / f"{step} {topic}.jsonl", records)
        report = apply(folder / "archive", folder / "lake")
        for flow in report.flows:
            unresolved[flow.flow] += sum(batch.unavailable_unresolved for batch in flow.batches)
    return Applied({topic: read_rows(spark, str(folder / "lake"), topic).rows for topic in {*map(topic_of, hazards)}}, unresolved)


IN_ONE_TABLE = [name for name in HAZARDS if topic_of(name) == SHARED]
IN_THEIR_OWN = [name for name in HAZARDS if topic_of(name) != SHARED]


@pytest.fixture(scope="module")
def shared(apply: Apply, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    return side_by_side(IN_ONE_TABLE, tmp_path_factory.mktemp("hazards"), apply, spark)


@pytest.fixture(scope="module")
def whole_tables(apply: Apply, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Applied:
    return side_by_side(IN_THEIR_OWN, tmp_path_factory.mktemp("hazards"), apply, spark)


@pytest.mark.parametrize("name", IN_ONE_TABLE)
def test_the_table_is_the_source_s(name: str, shared: Applied) -> None:
    number = list(HAZARDS).index(name)
    rows = [row for row in shared.rows[SHARED] if row["db"] == number]
    assert rows == [{"db": number, "price": 0, **row} for row in HAZARDS[name].rows], json.dumps(rows)


@pytest.mark.deep
@pytest.mark.parametrize("name", IN_THEIR_OWN)
def test_a_table_of_its_own_is_the_source_s(name: str, whole_tables: Applied) -> None:
    rows = whole_tables.rows[topic_of(name)]
    assert rows == [dict(row) for row in HAZARDS[name].rows], json.dumps(rows)


def test_what_was_nowhere_to_be_had_is_counted(shared: Applied) -> None:
    assert shared.unresolved[SHARED] == sum(hazard.unresolved for hazard in HAZARDS.values())


def test_the_last_event_per_key_gets_most_of_them_wrong() -> None:
    wrong = [name for name, hazard in HAZARDS.items() if last_event_per_key(hazard.records) != list(hazard.rows)]
    assert len(wrong) > len(HAZARDS) / 2, wrong


def test_the_docs_show_of_each_hazard_what_both_give() -> None:
    """What we give is the source's rows: the tests above."""
    page = Path(__file__).parents[2] / "docs" / "reference" / "hazards.md"
    assert table_of_hazards() in page.read_text(encoding="utf-8"), f"{page.name} should hold:\n{table_of_hazards()}"
