"""Files are decompressed by their names, whole or not at all, and never beyond a bound."""

from __future__ import annotations

import bz2
import gzip
import tracemalloc
import zlib

import pyarrow as pa
import pytest

from airflow_cdc.pipeline.native.decompress import TooMuchTextError, decompressed

TEXT = b'{"id": 1}\n' * 10_000
ENDINGS = {
    "a.json": bytes,
    "a.json.gz": gzip.compress,
    "a.json.BZ2": bz2.compress,
    "a.zst": lambda text: pa.compress(text, "zstd", asbytes=True),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_a_file_gives_its_text_where_it_fits(name: str) -> None:
    content = ENDINGS[name](TEXT)
    assert decompressed(content, name) == decompressed(content, name, len(TEXT)) == TEXT
    with pytest.raises(TooMuchTextError, match="more than 99,999 bytes"):
        decompressed(content, name, len(TEXT) - 1)


@pytest.mark.parametrize("name", list(ENDINGS)[1:])
@pytest.mark.parametrize("most", [-1, 10**6])
def test_a_file_that_is_cut_off_is_refused_with_a_bound_and_without(name: str, most: int) -> None:
    with pytest.raises((EOFError, OSError, ValueError, zlib.error)):
        decompressed(ENDINGS[name](TEXT)[:-4], name, most)


def test_parts_that_stand_one_after_the_other_are_one_text() -> None:
    assert decompressed(gzip.compress(b"a") + gzip.compress(b"b"), "a.gz", 2) == b"ab"
    assert decompressed(bz2.compress(b"a") + bz2.compress(b"b"), "a.bz2", 2) == b"ab"


@pytest.mark.parametrize("name", list(ENDINGS)[1:])
def test_a_few_bytes_that_are_much_text_are_never_held(name: str) -> None:
    content = ENDINGS[name](bytes(64 * 1024**2))
    tracemalloc.start()
    with pytest.raises(TooMuchTextError):
        decompressed(content, name, 1024**2)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 * 1024**2
