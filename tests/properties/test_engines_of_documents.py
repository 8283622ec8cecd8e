"""MongoDB's documents: the native engine takes whole ones, and gives the same as Spark; what patches change is Spark's."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.properties.test_two_engines import compare_flow
from tests.support.events import Record, mongodb, numbered, tombstone, write_records
from tests.support.tables import read_rows

pytest.importorskip("duckdb")

TOPIC = "mg.shop.orders"
TEXTS = ("", "plain", 'a "quoted" \\ one', "naïve ☃", "two\nlines", "null", "{}", '{"$oid": "5"}')


class Collection:
    """Documents that change at random, some of them in transactions."""

    def __init__(self, seed: int) -> None:
        self._pick = random.Random(seed)
        self._second = 0
        self.documents: dict[str, str] = {}
        """As they are now, by key."""

    def snapshot(self, count: int) -> list[Record]:
        """Return the reads of new documents."""
        keys = [json.dumps(f"k{number}") if number % 2 else json.dumps({"$oid": f"{number:024x}"}) for number in range(count)]
        self.documents.update({key: self._document(key) for key in keys})
        return [mongodb("r", key, second=0, offset=None, after=text) for key, text in self.documents.items()]

    def changes(self, count: int, *, patches: bool = False) -> list[Record]:
        """Return the events of transactions; some come twice, one behind the other.

        :param patches: whether an update may carry only what changed.
        """
        records: list[Record] = []
        while len(records) < count:
            number = self._pick.choice([None, self._pick.randrange(1, 1_000)])
            self._second += 1
            # What stands alone has a tick of its own.
            made = [self._event(tick, number, patches=patches) for tick in range(1 if number is None else self._pick.randint(1, 4))]
            records += [record for each in made for record in each for _ in range(self._pick.choice([1, 1, 1, 1, 2]))]
        return records

    def read_again(self, count: int) -> list[Record]:
        """Return reads of documents as they are now: of an incremental snapshot, or of a connector's next one."""
        self._second += 1
        keys = self._pick.sample(sorted(self.documents), min(count, len(self.documents)))
        return [mongodb("r", key, second=self._second, offset=None, after=self.documents[key]) for key in keys]

    def _event(self, tick: int, number: int | None, *, patches: bool) -> Iterator[Record]:
        key = self._pick.choice([*self.documents, json.dumps(f"new {self._pick.randrange(30)}")])
        op = self._pick.choice("uuud") if key in self.documents else "c"
        before = self.documents.pop(key, None)
        place: dict[str, Any] = {"second": self._second, "ord_": 1 if number is not None else tick + 1, "offset": None}
        if op == "d":
            yield mongodb("d", key, transaction=number, before=self._pick.choice([None, before]), **place)
            if self._pick.random() < 0.7:
                yield tombstone({"id": key}, topic=TOPIC)
            return
        self.documents[key] = self._document(key)
        is_patch = patches and op == "u" and self._pick.random() < 0.5
        if is_patch:
            self.documents[key] = json.dumps({**json.loads(before or "{}"), "n": tick})
        updated = json.dumps({"n": tick}) if op == "u" else None
        yield mongodb(op, key, transaction=number, after=None if is_patch else self.documents[key], updated=updated, **place)

    def _document(self, key: str) -> str:
        values = {"_id": json.loads(key), "n": self._pick.randrange(-(2**60), 2**60), "text": self._pick.choice(TEXTS)}
        more = {f"member {self._pick.randrange(5)}": [1.5, None, {"a": True}]}
        return json.dumps({**values, **more}, ensure_ascii=self._pick.random() < 0.5)


def _text(name: str | None = None, *, optional: bool = True) -> dict[str, Any]:
    return {"type": "string", "optional": optional, **({"name": name, "version": 1} if name else {})}


def _struct(fields: Mapping[str, Mapping[str, Any]], *, optional: bool = False) -> dict[str, Any]:
    return {"type": "struct", "optional": optional, "fields": [{**field, "field": name} for name, field in fields.items()]}


_JSON, _LONG = _text("io.debezium.data.Json"), {"type": "int64", "optional": True}
_TEXTS_OF_SOURCE = ("version", "connector", "name", "snapshot", "db", "collection", "lsid")
_SCHEMAS = {
    "key": _struct({"id": _text(optional=False)}),
    "value": _struct(
        {
            **dict.fromkeys(("before", "after"), _JSON),
            "updateDescription": _struct(
                {
                    "removedFields": {"type": "array", "items": _text(optional=False), "optional": True},
                    "updatedFields": _JSON,
                    "truncatedArrays": {"type": "array", "items": _struct({"field": _text(), "size": _LONG}), "optional": True},
                },
                optional=True,
            ),
            "source": _struct(
                {**{name: _text() for name in _TEXTS_OF_SOURCE}, **dict.fromkeys(("ts_ms", "ord", "txnNumber", "wallTime"), _LONG)}
            ),
            "op": _text(),
            "ts_ms": _LONG,
        }
    ),
}


def with_schemas(record: Record) -> Record:
    """Return a record as the JSON converter writes it by default."""
    return {**record, **{name: {"schema": schema, "payload": record[name]} for name, schema in _SCHEMAS.items() if record[name]}}


FLOW = CdcFlow(TOPIC, max_microbatch_bytes=1)


def documents(spark: SparkSession, folder: Path) -> dict[str, object]:
    return {row["_id"]: json.loads(row["document"]) for row in read_rows(spark, str(folder / "native"), TOPIC).rows}


@pytest.mark.parametrize("seed", [2, *(pytest.param(seed, marks=pytest.mark.deep) for seed in (1, 3, 4, 5))])
def test_both_engines_give_the_same_of_whole_documents(seed: int, spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source, spelled = Collection(seed), with_schemas if seed % 2 == 0 else lambda record: record
    records = [source.snapshot(30), source.changes(150), source.changes(150)]
    archived = [spelled(record) for record in numbered([record for part in records for record in part])]
    first = len(records[0])
    for number, part in enumerate((archived[:first], archived[first : first + len(records[1])], archived[first + len(records[1]) :])):
        write_records(tmp_path / "archive" / f"{number}.jsonl", part)
    batches = compare_flow(spark, apply, tmp_path, FLOW)
    assert [(batch.engine, batch.engine_reason) for batch in batches] == [("native", "")] * 3
    assert documents(spark, tmp_path) == {key: json.loads(text) for key, text in source.documents.items()}


def test_patches_are_left_to_spark_and_late_documents_are_not(spark: SparkSession, apply: Apply, tmp_path: Path) -> None:
    source = Collection(7)
    first, second = numbered(source.snapshot(20)), source.changes(60, patches=True)
    behind = numbered(second, first=len(first))
    later = numbered(source.changes(60), first=len(first) + len(second))
    for number, part in enumerate((first, behind, later[::2], later[1::2])):
        write_records(tmp_path / "archive" / f"{number}.jsonl", part)
    batches = compare_flow(spark, apply, tmp_path, FLOW)
    found = [(batch.engine, batch.engine_reason) for batch in batches]
    assert found == [("native", ""), ("spark", "an event without a row"), ("native", ""), ("native", "")]
    assert documents(spark, tmp_path) == {key: json.loads(text) for key, text in source.documents.items()}


def test_a_late_read_does_not_hide_a_patch_that_stands_between_it_and_the_patch_beside_it(
    spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    """The position of the patch beside the read counted as that of both: what was applied between the two was lost."""
    lanes = {"same": (0, 0, 1, 0, 2), "two, by position": (1, 0, 5, 100, 9), "read behind": (0, 1, 5, 9, 7)}
    for name, (of_patch, of_read, applied, read, later) in lanes.items():
        key = json.dumps(name)

        def event(op: str, second: int, lane: int, offset: int, key: str = key, **texts: Any) -> Record:
            return {**mongodb(op, key, second=second, offset=offset, **texts), "partition": lane}

        first = event("u", 2, of_patch, applied, updated='{"b": 1}')
        second = event("r", 1, of_read, read, after=f'{{"_id": {key}, "a": 0}}'), event("u", 3, of_patch, later, updated='{"c": 2}')
        write_records(tmp_path / "archive" / f"1 {name}.jsonl", [first])
        write_records(tmp_path / "later" / f"2 {name}.jsonl", list(second))
    apply(tmp_path / "archive", tmp_path / "native")
    shutil.copytree(tmp_path / "later", tmp_path / "archive", dirs_exist_ok=True)
    apply(tmp_path / "archive", tmp_path / "native")
    assert documents(spark, tmp_path) == {json.dumps(name): {"_id": name, "a": 0, "b": 1, "c": 2} for name in lanes}


@pytest.mark.deep
@pytest.mark.parametrize("seed", range(101, 112))
def test_patched_documents_are_the_source_s_in_whatever_order_their_files_come(
    seed: int, spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    source, pick = Collection(seed), random.Random(seed)
    records = source.snapshot(30)
    for _ in range(6):
        records += [*source.changes(25, patches=True), *source.read_again(6)]
    archived = numbered(records)
    cuts = sorted(pick.sample(range(1, len(archived)), 5))
    files = [archived[first:last] for first, last in zip([0, *cuts], [*cuts, len(archived)], strict=True)]
    pick.shuffle(files)
    for number, part in enumerate(files):
        write_records(tmp_path / "archive" / f"{number}.jsonl", part)
        apply(tmp_path / "archive", tmp_path / "native")
    assert documents(spark, tmp_path) == {key: json.loads(text) for key, text in source.documents.items()}
