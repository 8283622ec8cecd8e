"""Captures that break off, each topic elsewhere: a consistent run shows what the source committed before the first torn transaction."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.transactions import transaction_key
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.support.events import write_records

pytestmark = pytest.mark.both_engines

CAPTURES = Path(__file__).parent / "captures"
NEVER = 10**9

Topics = Mapping[str, Sequence[str]]
"""By topic: archived lines."""


def read(capture: str) -> Topics:
    found = {}
    for path in sorted((CAPTURES / capture / "archive" / "schema").glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            found[path.name.removesuffix(".jsonl.gz")] = [line.rstrip("\n") for line in lines]
    return found


def payload(line: str) -> dict[str, Any]:
    return ((json.loads(line)["value"] or {}).get("payload")) or {}


def ends(topics: Topics) -> dict[str, int]:
    """Return by transaction how many events of archived tables its END announces, in the order of the ENDs."""
    (topic,) = (name for name in topics if name.endswith(".transaction"))
    prefix, announced = topic.removesuffix("transaction"), dict[str, int]()
    for record in map(payload, topics[topic]):
        if record["status"] == "END":
            counts = [
                item["event_count"] for item in record["data_collections"] or () if is_archived(item["data_collection"], prefix, topics)
            ]
            key = transaction_key(record["id"])
            # After a crash the connector may repeat an END without counts.
            announced[key] = max(sum(counts), announced.get(key, 0))
    return announced


def is_archived(collection: str, prefix: str, topics: Iterable[str]) -> bool:
    return any(f".{collection}".endswith("." + topic.removeprefix(prefix)) for topic in topics)


def transaction_of(line: str) -> tuple[str, int] | None:
    transaction = payload(line).get("transaction")
    return (transaction_key(transaction["id"]), transaction["data_collection_order"]) if transaction else None


def whole_ones(kept: Topics, order: Sequence[str]) -> set[str]:
    """Return the transactions that the source committed before the first one that the kept lines do not hold whole."""
    seen: dict[str, set[tuple[str, int]]] = {}
    for topic, lines in kept.items():
        for found in filter(None, map(transaction_of, lines)):
            seen.setdefault(found[0], set()).add((topic, found[1]))
    announced = ends(kept)
    torn = (place for place, key in enumerate(order) if announced.get(key, NEVER) > len(seen.get(key, ())))
    return set(order[: next(torn, len(order))])


# The large captures take minutes.
@pytest.mark.deep
@pytest.mark.parametrize("capture", ["maria_types_precise", "sqlserver_synth", "oracle_synth"])
def test_all_tables_show_the_transactions_before_the_first_torn_one_wherever_their_topics_break_off(
    capture: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    everything = read(capture)
    order = list(ends(everything))
    shares = {topic: 0.8 if topic.endswith(".transaction") else (0.7, 0.9, 0.6)[place % 3] for place, topic in enumerate(everything)}
    kept = {topic: lines[: int(len(lines) * shares[topic])] for topic, lines in everything.items()}
    for topic, lines in kept.items():
        write_records(tmp_path / "archive" / "1" / f"{topic}.jsonl", lines)
    cut = apply(tmp_path / "archive", tmp_path / "lake", consistent=True)

    whole = whole_ones(kept, order)
    assert 0 < len(whole) < len(order)
    for topic, lines in kept.items():
        shown = [line for line in lines if (found := transaction_of(line)) is None or found[0] in whole]
        write_records(tmp_path / "expected" / f"{topic}.jsonl", shown)
    expected = apply(tmp_path / "expected", tmp_path / "expected_lake")
    assert_same(spark, tmp_path / "lake", tmp_path / "expected_lake", tables=len(expected.flows))
    assert [flow.events for flow in cut.flows] == [flow.events for flow in expected.flows]

    for topic, lines in everything.items():
        write_records(tmp_path / "archive" / "2" / f"{topic}.jsonl", lines[len(kept[topic]) :])
    rest = apply(tmp_path / "archive", tmp_path / "lake", consistent=True)
    taken = apply(tmp_path / "archive", tmp_path / "lake")
    reference = apply(CAPTURES / capture / "archive" / "schema", tmp_path / "reference")
    assert_same(spark, tmp_path / "lake", tmp_path / "reference", tables=len(reference.flows))
    assert sum(map(records_read, (cut, rest, taken))) == records_read(reference)


def assert_same(spark: SparkSession, left: Path, right: Path, *, tables: int) -> None:
    found = compare_lakes(spark, str(left), str(right))
    assert len(found.tables) == tables
    assert [table for table in found.tables if not table.equal] == []


def records_read(report: ApplyReport) -> int:
    return sum(flow.events.read for flow in report.flows)
