"""The native engine applies microbatches where there is no Spark: neither a session nor a function of a column is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, WriteDisposition
from tests.conftest import Apply
from tests.support.connectors import DIALECTS, Dialect, LogPlace, Row, spell
from tests.support.events import Record, mongodb, numbered, write_records

pytest.importorskip("duckdb")

TOPIC, DOCUMENTS = "pg.public.orders", "mg.shop.orders"
RELATIONAL = [name for name in DIALECTS if name != "huawei cdl"]
KINDS: Mapping[str, Mapping[str, Any]] = {
    "flagged deletes": {"on_delete": OnDelete.FLAG},
    "change log": {"write_disposition": WriteDisposition.APPEND},
}
LOG_END = 100
"""Where the log ends when the snapshot is read."""


def change(dialect: Dialect, op: str, before: Row | None, after: Row | None, at: int = LOG_END) -> Record:
    """Return the event of a transaction of its own, at a place in the log."""
    place = LogPlace(None if op == "r" else at, at - 1, at, 1, 0, at)
    images = before if dialect.full_before or op == "d" else None, after
    return spell(dialect, op, *images, place, topic=TOPIC, partition=0, key={"id": (after or before or {})["id"]})


def row(number: int, value: str) -> Row:
    return {"id": number, "v": value}


def applied(root: Path, lake: Path, rounds: list[list[Record]], apply: Apply, flow: CdcFlow) -> None:
    """Archive each round as a file and apply it, as a microbatch."""
    offset = 0
    for number, records in enumerate(rounds):
        write_records(root / f"{number}.jsonl", numbered(records, offset))
        offset += len(records)
        apply(root, lake, flows={flow.topic: flow})


def rows_in(lake: Path, topic: str = TOPIC, columns: tuple[str, ...] = ("id", "v")) -> list[dict[str, Any]]:
    found = pa.table(DeltaTable(str(lake / topic)).to_pyarrow_table())
    live = found if "__cdc_deleted" not in found.column_names else found.filter(pa.compute.invert(found["__cdc_deleted"]))
    return sorted(live.select(list(columns)).to_pylist(), key=str)


@pytest.mark.parametrize(("name", "kind"), [*((name, "current rows") for name in RELATIONAL), *(("mariadb", kind) for kind in KINDS)])
def test_a_first_microbatch_of_snapshot_reads_alone(name: str, kind: str, archive: Path, lake: Path, apply_natively: Apply) -> None:
    """MySQL's reads prove an initial snapshot only where the source has GTIDs, and no event of the first microbatch says so."""
    dialect = DIALECTS[name]
    reads = [change(dialect, "r", None, row(number, "read")) for number in range(3)]
    changes = [
        change(dialect, "u", row(0, "read"), row(0, "new"), 101),
        change(dialect, "d", row(1, "read"), None, 102),
        change(dialect, "c", None, row(7, "made"), 103),
    ]
    flow = CdcFlow(TOPIC, **KINDS.get(kind, {}))
    applied(archive, lake, [reads, changes[:2], changes[2:]], apply_natively, flow)
    if kind == "change log":
        assert len(rows_in(lake)) == len(reads) + len(changes)
    else:
        assert rows_in(lake) == [row(0, "new"), row(2, "read"), row(7, "made")]


def test_a_first_microbatch_of_reads_of_documents_alone(archive: Path, lake: Path, apply_natively: Apply) -> None:
    reads = [mongodb("r", f'"{key}"', second=1, offset=None, after=f'{{"_id": "{key}", "v": 1}}') for key in "ab"]
    update = mongodb("u", '"a"', second=2, offset=None, after='{"_id": "a", "v": 2}', updated='{"v": 2}')
    gone = mongodb("d", '"b"', second=3, offset=None)
    applied(archive, lake, [reads, [update], [gone]], apply_natively, CdcFlow(DOCUMENTS))
    assert [each["document"] for each in rows_in(lake, DOCUMENTS, ("document",))] == ['{"_id": "a", "v": 2}']


@pytest.mark.parametrize("name", RELATIONAL)
def test_a_file_that_comes_late_changes_no_newer_row_and_brings_none_back(
    name: str, archive: Path, lake: Path, apply_natively: Apply
) -> None:
    """Its offsets were never archived, below those that were: positions show that it is no other life of the topic."""
    dialect = DIALECTS[name]
    created = [change(dialect, "c", None, row(number, "first"), at=10 + number) for number in range(4)]
    late = [
        change(dialect, "u", row(0, "first"), row(0, "late"), at=20),
        change(dialect, "u", row(1, "first"), row(1, "late"), at=21),
        change(dialect, "u", row(2, "first"), row(2, "late"), at=22),
        change(dialect, "d", row(3, "first"), None, at=23),
        change(dialect, "c", None, row(4, "late"), at=24),
    ]
    newer = [
        change(dialect, "u", row(0, "late"), row(0, "newer"), at=30),
        change(dialect, "d", row(1, "late"), None, at=31),
        change(dialect, "c", None, row(3, "again"), at=32),
        change(dialect, "d", row(4, "late"), None, at=33),
    ]
    in_order = numbered([*created, *late, *newer], 0)
    first, last = len(created), len(created) + len(late)
    for file, records in {"1": in_order[:first], "3": in_order[last:], "2": in_order[first:last]}.items():
        write_records(archive / f"{file}.jsonl", records)
        report = apply_natively(archive, lake, flows={TOPIC: CdcFlow(TOPIC)})

    assert rows_in(lake) == [row(0, "newer"), row(2, "late"), row(3, "again")]
    assert report.flows[0].events.stale == 4
