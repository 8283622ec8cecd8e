"""Files that have companions' names are told by what they hold: keys, headers, or the records of a topic that is called so."""

from __future__ import annotations

import bz2
import gzip
import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile, list_archive
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.survey.companions import SettledFiles, settle_companions
from tests.support.events import sqlserver

VALUES = b'{"op": "c", "after": {"id": 1}}\n'
RECORD = sqlserver("c", commit=1, after={"id": 1}, topic="shop.keys")
ENVELOPE = RECORD["value"]

KEYS: dict[str, list[Any]] = {
    "bare": [{"id": 1}, {"id": 2, "part": "a"}],
    "with a schema": [{"schema": {"type": "struct", "fields": [{"field": "id", "type": "int32"}]}, "payload": {"id": 1}}],
    "single": [1, "two", None],
    "a single one with a schema": [{"schema": {"type": "int32"}, "payload": 5}],
    "of variable scale": [{"id": {"scale": 2, "value": "AQ=="}}],
    "of columns that records have too": [
        {"topic": "t", "partition": 0, "offset": 7},
        {"op": "c", "after": "noon"},
        {"topic": "t", "value": 1},
    ],
    "nulls": [None, None],
    "no lines": [],
    "headers": [[{"key": "h", "value": "x"}], [], None],
    "headers of other values": [[{"key": "h", "value": {"a": 1}}]],
}
RECORDS: dict[str, list[Any]] = {
    "whole": [RECORD],
    "a tombstone first": [{**RECORD, "value": None}, RECORD],
    "with schemas": [{**RECORD, "value": {"schema": {}, "payload": ENVELOPE}}],
    "without offsets": [{"topic": "shop.keys", "value": ENVELOPE}],
    "values": [None, ENVELOPE],
    "values with schemas": [{"schema": {}, "payload": ENVELOPE}],
    "deletes": [{**ENVELOPE, "op": "d", "before": {"id": 1}, "after": None, "source": None}],
    "flattened": [{"id": 1, "__op": "c"}],
    "of another topic": [{**RECORD, "topic": "other"}],
}
UNCERTAIN: dict[str, list[Any]] = {
    "keys and records": [{"id": 1}, RECORD],
    "objects that are neither": [{"id": {"x": 1, "y": 2}}],
    "arrays that are no headers": [[{"id": {"a": 1}}]],
}


def lines(documents: list[Any]) -> bytes:
    return "".join(json.dumps(document) + "\n" for document in documents).encode()


def settled(archive: Path, **contents: bytes) -> SettledFiles:
    """Settle ``shop.json`` and a file beside it."""
    for name, content in {"shop_json": VALUES, **contents}.items():
        (archive / name.replace("_", ".")).write_bytes(content)
    return settle_companions(str(archive), list_archive(*file_system(str(archive))).files)


def pairs(files: tuple[ArchivedFile, ...]) -> dict[str, str | None]:
    assert not any(file.may_be_companion for file in files)
    return {file.path: file.keys_path for file in files}


@pytest.mark.parametrize("name", ["shop_keys_json", "shop_headers_json"])
@pytest.mark.parametrize("kind", KEYS)
def test_what_holds_keys_or_headers_is_a_companion(tmp_path: Path, kind: str, name: str) -> None:
    found = settled(tmp_path, **{name: lines(KEYS[kind])})
    path = name.replace("_", ".")
    assert pairs(found.files) == {"shop.json": path if "keys" in path else None}
    assert ([file.path for file in found.companions], found.uncertain) == ([path], {})


@pytest.mark.parametrize("name", ["shop_keys_json", "shop_headers_json"])
@pytest.mark.parametrize("kind", RECORDS)
def test_what_holds_records_is_a_file_like_others(tmp_path: Path, kind: str, name: str) -> None:
    found = settled(tmp_path, **{name: lines(RECORDS[kind])})
    assert pairs(found.files) == {"shop.json": None, name.replace("_", "."): None}
    assert (found.companions, found.uncertain) == ((), {})


@pytest.mark.parametrize("kind", UNCERTAIN)
def test_what_may_hold_both_is_refused_with_the_file_beside_it(tmp_path: Path, kind: str) -> None:
    found = settled(tmp_path, shop_keys_json=lines(UNCERTAIN[kind]))
    assert (found.files, found.companions, set(found.uncertain)) == ((), (), {"shop.json", "shop.keys.json"})
    assert all("shop.keys.json may hold the keys or headers of the file beside it" in why for why in found.uncertain.values())


def test_the_headers_of_a_file_that_are_not_certain_leave_it(tmp_path: Path) -> None:
    found = settled(tmp_path, shop_headers_json=lines(UNCERTAIN["keys and records"]))
    assert (pairs(found.files), set(found.uncertain)) == ({"shop.json": None}, {"shop.headers.json"})


@pytest.mark.parametrize(
    "form", [lambda text: b"\xef\xbb\xbf" + text, lambda text: text.replace(b"\n", b"\r\n"), lambda text: b"\n\n" + text]
)
@pytest.mark.parametrize("documents", [KEYS["bare"], RECORDS["whole"]])
def test_lines_may_have_any_ends(tmp_path: Path, form: Callable[[bytes], bytes], documents: list[Any]) -> None:
    found = settled(tmp_path, shop_keys_json=form(lines(documents)))
    assert (len(found.files), len(found.companions)) == ((1, 1) if documents is KEYS["bare"] else (2, 0))


def test_arrays_are_looked_into(tmp_path: Path) -> None:
    assert len(settled(tmp_path, shop_keys_json=json.dumps(KEYS["bare"], indent=1).encode()).companions) == 1
    assert len(settled(tmp_path, shop_keys_json=json.dumps(RECORDS["whole"], indent=1).encode()).files) == 2


def test_one_broken_line_decides_nothing_and_nothing_but_broken_lines_is_refused(tmp_path: Path) -> None:
    assert len(settled(tmp_path, shop_keys_json=b'{"id": 1}\n{"id": \n{"id": 2}\n').companions) == 1
    assert len(settled(tmp_path, shop_keys_json=lines([RECORD]) + b'{"topic": "sho').files) == 2
    assert len(settled(tmp_path, shop_keys_json=b"no JSON\n").uncertain) == 2


def test_a_long_line_is_not_guessed(tmp_path: Path) -> None:
    long = {"schema": {"fields": "x" * 2**20}, "payload": {"id": 1}}
    assert len(settled(tmp_path, shop_keys_json=lines([long])).uncertain) == 2
    assert len(settled(tmp_path, shop_keys_json=lines([{"id": 1}, long])).companions) == 1


def test_compressed_files_are_looked_into(tmp_path: Path) -> None:
    zst = pa.BufferOutputStream()
    with pa.CompressedOutputStream(zst, "zstd") as stream:
        stream.write(lines([RECORD]))
    packed = {"gz": gzip.compress(lines([RECORD])), "bz2": bz2.compress(lines([RECORD])), "zst": zst.getvalue().to_pybytes()}
    for ending, content in packed.items():
        (tmp_path / ending).mkdir()
        (tmp_path / ending / f"shop.json.{ending}").write_bytes(content)
        (tmp_path / ending / f"shop.keys.json.{ending}").write_bytes(content)
    found = settle_companions(str(tmp_path), list_archive(*file_system(str(tmp_path))).files)
    assert (len(found.files), found.companions, found.uncertain) == (6, (), {})


def parquet(**columns: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(pa.table({name: [value] for name, value in columns.items()}), sink)
    return sink.getvalue()


def test_parquet_and_avro_are_told_by_their_columns(tmp_path: Path) -> None:
    envelope = {"type": "record", "name": "Envelope", "fields": [{"name": "op", "type": "string"}, {"name": "after", "type": "string"}]}
    key = {"type": "record", "name": "Key", "fields": [{"name": "id", "type": "int"}]}
    avro = [b"Obj\x01\x04\x16avro.schema" + b"\xff\x01" + json.dumps(schema).encode() for schema in (envelope, key)]
    contents = {"parquet": (parquet(op="c", after={"id": 1}), parquet(id=1)), "avro": avro}
    for ending, (records, keys) in contents.items():
        for number, beside in enumerate((records, keys)):
            folder = tmp_path / f"{ending}{number}"
            folder.mkdir()
            (folder / f"shop.{ending}").write_bytes(records)
            (folder / f"shop.keys.{ending}").write_bytes(beside)
    found = settle_companions(str(tmp_path), list_archive(*file_system(str(tmp_path))).files)
    assert [file.path for file in found.companions] == ["avro1/shop.keys.avro", "parquet1/shop.keys.parquet"]
    assert {path for path, keys_path in pairs(found.files).items() if keys_path} == {"avro1/shop.avro", "parquet1/shop.parquet"}
    assert found.uncertain == {}


def test_a_sinks_names_are_believed_and_its_files_are_not_opened(tmp_path: Path) -> None:
    (tmp_path / "shop+0+0.json").write_bytes(VALUES)
    (tmp_path / "shop+0+0.keys.json").write_bytes(lines([RECORD]))
    (tmp_path / "shop+0+0.headers.json").write_bytes(lines([RECORD]))
    found = settle_companions(str(tmp_path), list_archive(*file_system(str(tmp_path))).files)
    assert pairs(found.files) == {"shop+0+0.json": "shop+0+0.keys.json"}
