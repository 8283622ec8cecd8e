"""Flows whose keys are not the records': an update may change them, and a delete need not name them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.policies import ReplicaIdentity
from airflow_cdc.model.report.batch_report import BatchReport
from tests.conftest import Apply
from tests.properties.test_two_engines import DIALECTS, TOPIC, compare_flow
from tests.support.events import Record, Row, numbered, postgresql, tombstone, write_records
from tests.support.tables import read_quarantine

pytest.importorskip("duckdb")

COLUMNS = ("no", "region", "email", "v")
TYPES = {"no": "BIGINT", "region": "BIGINT", "email": "STRING", "v": "STRING"}
FLOW = CdcFlow(TOPIC, keys=("region", "email"), columns=TYPES, max_microbatch_bytes=1, replica_identity=ReplicaIdentity.FULL)
"""The records' key is ``no``; the images before are whole rows."""


class Source:
    """A table with a second unique index, whose columns its updates change; most of its values are also fillers."""

    def __init__(self, dialect: str, seed: int, *, partitions: int = 1) -> None:
        self._change, self._pick, self._at = DIALECTS[dialect], random.Random(seed), 1_000
        self._partitions = partitions
        self.rows: dict[int, Row] = {}

    def changes(self, count: int, *, swaps: bool) -> list[Record]:
        """Return changes of rows; ``swaps``: whether two rows may exchange their values of the index in one transaction."""
        return [record for _ in range(count) for record in self._transaction(swaps=swaps)]

    def _transaction(self, *, swaps: bool) -> Iterator[Record]:
        self._at += 10
        transaction = self._at
        no = self._pick.randrange(8)
        before = self.rows.get(no)
        other = self._pick.choice([*self.rows]) if self.rows else no
        if swaps and before and other != no and self._pick.random() < 0.3:
            yield from self._swap(no, other, transaction)
        elif before is None:
            self.rows[no] = self._row(no, self._free_place())
            yield self._event("c", transaction, after=self.rows[no])
        elif self._pick.random() < 0.2:
            yield self._event("d", transaction, before=self.rows.pop(no))
            yield tombstone({"no": no}, topic=TOPIC, partition=no % self._partitions)
        else:
            kept = (before["region"], before["email"])
            self.rows[no] = self._row(no, kept if self._pick.random() < 0.4 else self._free_place())
            yield self._event("u", transaction, before=before, after=self.rows[no])

    def _swap(self, one: int, other: int, transaction: int) -> Iterator[Record]:
        before = {no: self.rows[no] for no in (one, other)}
        for no, of in ((one, other), (other, one)):
            self.rows[no] = {**before[no], "region": before[of]["region"], "email": before[of]["email"]}
            yield self._event("u", transaction, before=before[no], after=self.rows[no])

    def _event(self, op: str, transaction: int, *, before: Row | None = None, after: Row | None = None) -> Record:
        self._at += 1
        no = (after or before or {})["no"]
        # The events of one key of the flow's may lie in several partitions.
        record = self._change(op, self._at, transaction, before=before, after=after, key={"no": no}, partition=no % self._partitions)
        source: dict[str, Any] = record["value"]["source"]
        if source["connector"] == "postgresql":
            source["txId"] = transaction
        return record

    def _free_place(self) -> tuple[int, str]:
        taken = {(row["region"], row["email"]) for row in self.rows.values()}
        return self._pick.choice([place for place in ((r, e) for r in (0, 1, 2) for e in ("", "0", "a", "b")) if place not in taken])

    def _row(self, no: int, place: tuple[int, str]) -> Row:
        return {"no": no, "region": place[0], "email": place[1], "v": self._pick.choice([None, "", "0", "false", "x"])}


def archived(folder: Path, files: Sequence[Sequence[Record]]) -> None:
    first = 0
    for number, records in enumerate(files):
        write_records(folder / f"{number}.jsonl", numbered(records, first=first))
        first += len(records)


def rows_in(lake: Path) -> list[Row]:
    found = pa.table(DeltaTable(str(lake / TOPIC)).to_pyarrow_table()).select(list(COLUMNS)).to_pylist()
    return sorted(found, key=lambda row: int(row["no"]))


def rows_of(source: Source) -> list[Row]:
    return [source.rows[no] for no in sorted(source.rows)]


def check_sums(batches: Sequence[BatchReport]) -> None:
    assert all(batch.events.read == batch.events.accounted() and not batch.events.rejected for batch in batches)


@pytest.mark.parametrize("dialect", DIALECTS)
def test_an_update_that_changes_the_flows_key_moves_the_row(dialect: str, archive: Path, lake: Path, apply_natively: Apply) -> None:
    """Natively, without Spark; the rows are the simulated source's own."""
    for seed in range(3):
        source = Source(dialect, seed)
        archived(archive / str(seed), [source.changes(30, swaps=False) for _ in range(3)])
        batches = list(apply_natively(archive / str(seed), lake / str(seed), flows={TOPIC: FLOW}).flows[0].batches)
        assert rows_in(lake / str(seed)) == rows_of(source)
        assert {batch.engine for batch in batches} == {"native"}
        check_sums(batches)


@pytest.mark.parametrize(
    "dialect", ["postgresql", *(pytest.param(name, marks=pytest.mark.deep) for name in DIALECTS if name != "postgresql")]
)
def test_both_engines_give_the_same_of_rows_that_swap_the_flows_key(
    dialect: str, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    source = Source(dialect, 7, partitions=3)
    archived(tmp_path / "archive", [source.changes(40, swaps=True) for _ in range(2)])
    batches = compare_flow(spark, apply, tmp_path, replace(FLOW, engine=Engine.NATIVE))
    check_sums(batches)
    assert rows_in(tmp_path / "native") == rows_of(source)


def test_updates_that_cannot_show_a_key_change_are_counted(archive: Path, lake: Path, apply_natively: Apply) -> None:
    """PostgreSQL's default identity: an update has no image before."""
    row = {"no": 1, "region": 1, "email": "a", "v": "x"}
    updates = [postgresql("u", commit=9 + at, change=10 + at, after={**row, "v": str(at)}, key={"no": 1}, topic=TOPIC) for at in range(2)]
    archived(archive, [[postgresql("c", commit=1, change=2, after=row, key={"no": 1}, topic=TOPIC), *updates]])
    (batch,) = apply_natively(archive, lake, flows={TOPIC: FLOW}).flows[0].batches
    assert batch.updates_without_old_key == 2


@dataclass(frozen=True)
class Deletion:
    """A delete of PostgreSQL, and whether its key is proven."""

    key: Row | None
    before: Row
    is_proven: bool
    keys: tuple[str, ...] = FLOW.keys
    earlier: Sequence[Record] = field(default_factory=list)
    defaults: Row | None = None
    """None: events without schemas."""
    identity: ReplicaIdentity = ReplicaIdentity.UNKNOWN


def change(op: str, at: int, key: Row | None, *, before: Row | None = None, after: Row | None = None) -> Record:
    return {**postgresql(op, commit=at, change=at + 1, topic=TOPIC, key={}, before=before, after=after), "key": key}


WITH_BEFORE = [
    change(
        "u",
        5,
        {"no": 3},
        before=dict.fromkeys(COLUMNS, None) | {"no": 3, "region": 1, "email": "z"},
        after={"no": 3, "region": 1, "email": "z", "v": "y"},
    )
]
WITHOUT = [change("u", 5, {"no": 3}, after={"no": 3, "region": 1, "email": "z", "v": "y"})]
FILLED = {"no": 9, "region": 0, "email": "", "v": None}
OTHERS = [change("d", at, {"no": at}, before={"no": at, "region": at, "email": f"e{at}", "v": None}) for at in (20, 30)]
DELETES = {
    "another index identifies the row": Deletion({"no": 0}, {"no": 0, "region": 0, "email": "a", "v": None}, is_proven=False, keys=("no",)),
    "the row with the filler's key": Deletion({"no": 0}, {"no": 0, "region": 0, "email": "", "v": None}, is_proven=True, keys=("no",)),
    "the row with the filler's key, as the flow says": Deletion(
        {"no": 0}, {"no": 0, "region": 0, "email": "a", "v": None}, is_proven=True, keys=("no",), identity=ReplicaIdentity.FULL
    ),
    "the row with the filler's key, whole": Deletion(
        {"no": 0}, {"no": 0, "region": 2, "email": "a", "v": "x"}, is_proven=True, keys=("no",)
    ),
    "the row with the filler's key, and a default": Deletion(
        {"no": 0}, {"no": 0, "region": 0, "email": "new", "v": None}, is_proven=True, keys=("no",), defaults={"email": "new"}
    ),
    "a column that the record's key lacks": Deletion({"no": 9}, {"no": 9, "region": 0, "email": "", "v": None}, is_proven=False),
    "its default": Deletion(
        {"no": 9}, {"no": 9, "region": 7, "email": "a", "v": None}, is_proven=False, defaults={"region": 7, "email": "a"}
    ),
    "its default, or a value": Deletion({"no": 9}, {"no": 9, "region": 7, "email": "a", "v": None}, is_proven=False),
    "a value": Deletion({"no": 9}, {"no": 9, "region": 7, "email": "a", "v": None}, is_proven=True, defaults={}),
    "a whole row by its schema": Deletion({"no": 9}, {"no": 9, "region": 0, "email": "", "v": "x"}, is_proven=True, defaults={}),
    "a whole row, as the flow says": Deletion({"no": 9}, FILLED, is_proven=True, earlier=WITH_BEFORE, identity=ReplicaIdentity.FULL),
    "an update contradicts the flow": Deletion({"no": 9}, FILLED, is_proven=False, earlier=WITHOUT, identity=ReplicaIdentity.FULL),
    # An index identifies the row, and only updates that change it have an image; or the identity changed in between.
    "an update with an image before": Deletion({"no": 9}, FILLED, is_proven=False, earlier=WITH_BEFORE),
    # The index that identifies the row may have gained its columns between the two.
    "columns that other deletes show": Deletion({"no": 9}, {"no": 9, "region": 0, "email": "", "v": None}, is_proven=False, earlier=OTHERS),
    "values, as other deletes show": Deletion({"no": 9}, {"no": 9, "region": 7, "email": "a", "v": None}, is_proven=True, earlier=OTHERS),
    "the index's columns": Deletion({"no": 0}, {"no": 0, "region": 3, "email": "a", "v": None}, is_proven=True),
    "a table without a key": Deletion(None, {"no": 0, "region": 0, "email": "", "v": None}, is_proven=True),
}


def with_schemas(record: Record, defaults: Row) -> Record:
    """Return a record whose value has its schema."""
    kinds = {"no": "int64", "region": "int64", "email": "string", "v": "string"}
    fields = [
        {"field": name, "type": kind, "optional": True} | ({"default": defaults[name]} if name in defaults else {})
        for name, kind in kinds.items()
    ]
    images = [{"field": image, "type": "struct", "fields": fields, "optional": True} for image in ("before", "after")]
    return {**record, "value": {"schema": {"type": "struct", "fields": images}, "payload": record["value"]}}


def records_of(delete: Deletion) -> list[Record]:
    born = [change("c", 2, delete.key and {"no": 77}, after={"no": 77, "region": 5, "email": "q", "v": "x"})]
    records = [*born, *delete.earlier, change("d", 100, delete.key, before=delete.before)]
    return records if delete.defaults is None else [with_schemas(record, delete.defaults) for record in records]


def flow_of(delete: Deletion) -> CdcFlow:
    columns = {} if delete.defaults is not None else TYPES
    return replace(FLOW, keys=delete.keys, columns=columns, replica_identity=delete.identity)


@pytest.mark.parametrize("name", DELETES)
def test_a_delete_whose_key_may_be_made_of_fillers_is_not_applied_natively(
    name: str, archive: Path, lake: Path, apply_natively: Apply
) -> None:
    delete = DELETES[name]
    archived(archive, [records_of(delete)])
    left_to_spark: AbstractContextManager[object] = (
        nullcontext()
        if delete.is_proven and delete.earlier is not OTHERS
        else pytest.raises(AssertionError, match="a session is asked for")
    )
    with left_to_spark:
        apply_natively(archive, lake, flows={TOPIC: flow_of(delete)})


def test_a_delete_whose_key_may_be_made_of_fillers_is_rejected(spark: SparkSession, archive: Path, lake: Path, apply: Apply) -> None:
    rejected = {}
    for number, (name, delete) in enumerate(DELETES.items()):
        archived(archive / str(number), [records_of(delete)])
        flow = replace(flow_of(delete), engine=Engine.SPARK)
        (batch,) = apply(archive / str(number), lake / str(number), flows={TOPIC: flow}).flows[0].batches
        rejected[name] = batch.rejects
        assert batch.events.read == batch.events.accounted()
    assert rejected == {name: {} if delete.is_proven else {"unproven_key": 1} for name, delete in DELETES.items()}
    assert "does not prove the key" in read_quarantine(spark, str(lake / "0"), [TOPIC])[0]["detail"]


def flattened(op: str, at: int, row: Row, before: Row | None = None) -> Record:
    """Return a record of MariaDB flattened with ``add.fields=op,source.…,before.region,before.email``."""
    place = {"__op": op, "__source_file": "bin.000001", "__source_pos": at, "__source_row": 0, "__source_ts_ms": 1_700_000_000_000 + at}
    old = {f"__before_{name}": (before or {}).get(name) for name in FLOW.keys}
    return {"topic": TOPIC, "partition": 0, "offset": at, "key": {"no": row["no"]}, "value": {**row, **place, **old}}


def test_a_flattened_record_shows_the_old_key_by_the_before_fields_it_carries(archive: Path, lake: Path, apply: Apply) -> None:
    rows = [{"no": 1, "region": 1, "email": "a", "v": "x"}, {"no": 2, "region": 1, "email": "b", "v": "y"}]
    moved = {**rows[0], "region": 0}
    records = [flattened("c", at, row) for at, row in enumerate(rows)]
    records += [flattened("u", 5, moved, rows[0]), flattened("u", 6, {**rows[1], "v": None}, rows[1])]
    write_records(archive / "0.jsonl", records)
    (batch,) = apply(archive, lake, flows={TOPIC: FLOW}).flows[0].batches
    assert rows_in(lake) == [moved, {**rows[1], "v": None}]
    assert (batch.events.read, batch.events.rejected, batch.updates_without_old_key) == (5, 0, 0)
