"""Mutated records of every dialect: nothing crashes, no line is lost, every reject has a reason, and the good go on."""

from __future__ import annotations

import copy
import gzip
import itertools
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.places import quarantine_uri
from tests.conftest import Apply

CAPTURES = Path(__file__).parents[1] / "golden" / "captures"
SEEDS = {
    "sqlserver_synth/archive/plain",
    "sqlserver_synth/archive/schema",
    "pg_pk/archive/plain",
    "pg_types_precise/archive/schema",
    "maria_types_precise/archive/schema",
    "oracle_synth/archive/schema",
    "mongo_patch_synth/archive/plain",
    "mongo_full_synth/archive/schema",
    "cdl1_pg_pk/archive/plain",
    "cdl2_pg_pk/archive/schema",
}
UNTOUCHED = 0.5
"""Share of the records; more than one record of twenty that is spelled like no other would be the source's own change."""
PER_SEED = 2
"""Topics of a capture that are mutated."""
ODD_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    2**63,
    10**40,
    1e308,
    0.1,
    "",
    "0",
    "d",
    "\u0000\ud7ff\uffff",
    "x" * 5_000,
    "__debezium_unavailable_value",
    "00000000:00000000:0000",
    "`; DROP TABLE x; --'\"\\",
    [],
    [[[]]],
    {},
    {"schema": {}, "payload": {}},
    {"$oid": "zz"},
    {"fields": 7},
)


STRAY_NAMES = ("op", "source", "after", "before", "payload", "schema", "ID", "id", "", "__cdc_op", "a.b")


def mutated(record: Any, dice: random.Random) -> str:
    """Return the line of a record of which something is no more as it was."""
    record = copy.deepcopy(record)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        parent, name = dice.choice(list(_places(record)))
        what = dice.random()
        if what < 0.3:
            del parent[name]
        elif what < 0.9:
            parent[name] = copy.deepcopy(dice.choice(ODD_VALUES))
        elif isinstance(parent, dict):
            parent[dice.choice(STRAY_NAMES)] = copy.deepcopy(dice.choice(ODD_VALUES))
    line = json.dumps(record)
    if dice.random() < 0.1:
        # A topic of another name would be a flow of its own, of one record.
        at = dice.randrange(len(json.dumps({"topic": record["topic"]})), len(line) + 1)
        torn = dice.choice((line[:at], line[at:], line[:at] + dice.choice('{}[]",:\\\t') + line[at:], line[: at - 1] + line[at:]))
        line = torn if _schemas(torn) in (None, _schemas(line)) else line
    return line


def _schemas(line: str) -> list[Any] | None:
    """Return the schemas that a line carries, None where it cannot be read."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    members = [record.get(name) for name in ("key", "value")] if isinstance(record, dict) else []
    return [member.get("schema") for member in members if isinstance(member, dict)]


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    children = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for name, child in children:
        # Which topic a record is of is the archive's business, not the event's; and a schema that can still be read is a change of schema.
        if name != "topic":
            yield value, name
            yield from _places(child) if name != "schema" else ()


def land(folder: Path, count: int, seed: int) -> dict[str, int]:
    """Write about so many mutated records, each topic's in a file of its own with its untouched ones; the number of lines by topic."""
    dice = random.Random(seed)
    sources = sorted(path for form in SEEDS for path in sorted((CAPTURES / form).glob("*.jsonl.gz"))[:PER_SEED])
    lines_of: dict[str, int] = {}
    for place, source in enumerate(sources):
        with gzip.open(source, "rt", encoding="utf-8") as opened:
            records = [json.loads(line) for line in itertools.islice(opened, 2_000)]
        topic = f"{place}.{records[0]['topic']}"
        lines = []
        for number in range(count * 2 // len(sources)):
            record = {**records[number % len(records)], "topic": topic, "offset": number}
            lines.append(json.dumps(record) if dice.random() < UNTOUCHED else mutated(record, dice))
        path = folder / f"{topic}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        lines_of[topic] = len([line for line in lines if line.strip()])
    return lines_of


def check(count: int, seed: int, apply: Apply, spark: SparkSession, folder: Path) -> None:
    lines_of = land(folder / "archive", count, seed)
    report = apply(folder / "archive", folder / "lake", may_fail=True)
    assert report.error is None
    errors = {flow.flow: flow.error for flow in report.flows if flow.error}
    assert not errors, json.dumps(errors, indent=1)
    read = {flow.flow: sum(batch.events.read for batch in flow.batches) for flow in report.flows}
    assert read.keys() == lines_of.keys()
    for topic, lines in lines_of.items():
        # An update of a key is two events where CDL sends it as one.
        assert lines <= read[topic] < 2 * lines if ".cdl" in topic else read[topic] == lines, topic
    for flow in report.flows:
        rejected = sum(batch.events.rejected for batch in flow.batches)
        quarantined = spark.read.format("delta").load(quarantine_uri(str(folder / "lake"), flow.flow))
        assert quarantined.count() == rejected > 0
        assert quarantined.filter("reason IS NULL OR raw IS NULL").isEmpty()


@pytest.mark.deep
def test_no_mutated_record_is_lost_or_stops_the_others_deep(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(100_000, 7, apply, spark, tmp_path)
