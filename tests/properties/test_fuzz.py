"""Mutated records of every dialect: nothing crashes, no line is lost, every reject has a reason, and the good go on."""

from __future__ import annotations

import copy
import gzip
import json
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.connectors.registry import entries
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.model.places import quarantine_uri
from tests.conftest import Apply

pytestmark = pytest.mark.both_engines

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
PER_SEED = 3
"""Topics of a capture that are mutated, and their fewest records: of fewer, damaged keys would be more than one in twenty."""
FEWEST = 250
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


PLACES = {"offset", *(name for connector in entries() for name in connector.position.fields)}
"""Members that order the records. Another number in one of them is another moment of the source's log, no damage."""
NO_STAND_IN = "commit_scn"
"""Without it an Oracle event is placed by its ``scn``, as a snapshot's read is: another moment too."""
STRAY_NAMES = ("op", "source", "after", "before", "payload", "schema", "ID", "id", "", "__cdc_op", "a.b")


def mutated(record: Any, dice: random.Random) -> str:
    """Return the line of a record of which something, but not its place in the log, is no more as it was."""
    original = json.dumps(record)
    record = copy.deepcopy(record)
    for _ in range(dice.choice((1, 1, 1, 2, 5))):
        parent, name = dice.choice(list(_members(record)))
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
    return line if _is_of_moment(_places_in(line), _places_in(original)) else original


def _is_of_moment(places: set[tuple[str, str]], original: set[tuple[str, str]]) -> bool:
    """Return whether a damaged record can still be of no other moment than the original."""
    commits = {place for place in original if place[0] == NO_STAND_IN}
    return places <= original and (commits <= places or "scn" not in dict(places))


def _places_in(line: str) -> set[tuple[str, str]]:
    """Return the members of a line that may be a place in the log, with the values that can be one."""
    try:
        members = [(name, parent[name]) for parent, name in _members(json.loads(line)) if name in PLACES]
    except ValueError:
        return set()
    return {(name, str(value)) for name, value in members if isinstance(value, str | int | float) and re.search(r"\d", str(value))}


def _schemas(line: str) -> list[Any] | None:
    """Return the schemas that a line carries, None where it cannot be read."""
    try:
        record = json.loads(line)
    except ValueError:
        return None
    members = [record.get(name) for name in ("key", "value")] if isinstance(record, dict) else []
    return [member.get("schema") for member in members if isinstance(member, dict)]


def _members(value: Any) -> Iterator[tuple[Any, Any]]:
    children = list(value.items()) if isinstance(value, dict) else list(enumerate(value)) if isinstance(value, list) else []
    for name, child in children:
        # Which topic a record is of is the archive's business, not the event's; and a schema that can still be read is a change of schema.
        if name != "topic":
            yield value, name
            yield from _members(child) if name != "schema" else ()


def land(folder: Path, seed: int) -> dict[str, int]:
    """Write each topic's records once, about half of them mutated, in a file of its own; return the number of lines by topic."""
    dice = random.Random(seed)
    lines_of: dict[str, int] = {}
    for place, source in enumerate(sorted(path for form in SEEDS for path in sorted((CAPTURES / form).glob("*.jsonl.gz"))[:PER_SEED])):
        with gzip.open(source, "rt", encoding="utf-8") as opened:
            records = [json.loads(line) for line in opened]
        if len(records) < FEWEST:
            continue
        topic = f"{place}.{records[0]['topic']}"
        # Not twice: the second time the log would have gone back.
        numbered = ({**record, "topic": topic, "offset": number} for number, record in enumerate(records))
        lines = [json.dumps(record) if dice.random() < UNTOUCHED else mutated(record, dice) for record in numbered]
        path = folder / f"{topic}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
        lines_of[topic] = len([line for line in lines if line.strip()])
    return lines_of


def check(seed: int, apply: Apply, spark: SparkSession, folder: Path) -> None:
    lines_of = land(folder / "archive", seed)
    # Damaged names are new columns, whose values may look encoded.
    flows = {topic: CdcFlow(topic, on_unknown_types=OnUnknownTypes.TEXT) for topic in lines_of}
    report = apply(folder / "archive", folder / "lake", flows=flows, may_fail=True)
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
@pytest.mark.parametrize("seed", [7, 8])
def test_no_mutated_record_is_lost_or_stops_the_others_deep(seed: int, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    check(seed, apply, spark, tmp_path)
