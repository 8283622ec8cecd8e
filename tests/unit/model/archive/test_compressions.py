"""Compressions that are not read are known by a file's name, or by its first bytes."""

from __future__ import annotations

import lzma

import pytest

from airflow_cdc.model.archive.archived_files import classify
from airflow_cdc.model.archive.compressions import MOST_MAGIC, compression_of, why_not_decompressed


@pytest.mark.parametrize("ending", ["snappy", "SNAPPY", "lz4", "deflate", "lzo", "br", "xz", "7z", "zip", "lzma"])
def test_an_unread_compression_is_known_by_the_name(ending: str) -> None:
    name = f"t/dt=1/t-0-0.json.{ending}"
    assert f".{ending} is a compression that is not read" in str(why_not_decompressed(name))
    # It is data, and not left aside as a foreign file: it holds records that nobody reads.
    assert ([file.path for file in classify([(name, 5)]).files], classify([(name, 5)]).ignored) == ([name], ())


@pytest.mark.parametrize("name", ["t.json", "t.json.gz", "t.jsonl.zst", "t.log.bz2", "t.snappy.parquet", "t.avro", "snappy", "t.lz4.json"])
def test_other_names_may_be_read(name: str) -> None:
    assert why_not_decompressed(name) is None


def test_a_folder_that_is_zipped_is_left_aside_as_before() -> None:
    assert classify([("backup.zip", 5)]).ignored == ("backup.zip",)


def test_a_compression_is_known_by_the_first_bytes() -> None:
    assert compression_of(lzma.compress(b"{}")[:MOST_MAGIC]) == "XZ"
    assert compression_of(b"\xff\x06\x00\x00sNaPpY") == "Snappy"
    assert compression_of(b"\x04\x22\x4d\x18rest") == "LZ4"
    assert compression_of(b'{"a":1}') is None
    assert compression_of(b"") is None
