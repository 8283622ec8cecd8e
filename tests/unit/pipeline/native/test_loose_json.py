"""Commas and numbers that are no JSON are found wherever a block of the text begins, and however a file is compressed and named."""

from __future__ import annotations

import gzip
import re
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from airflow_cdc.pipeline.native import loose_json
from airflow_cdc.pipeline.native.fetched_files import FetchedFiles
from airflow_cdc.pipeline.native.loose_json import count_null_values, with_loose_json


def is_loose(text: BytesIO) -> bool:
    return count_null_values(text) is None


BYTES = [b",", b" ", b"\t", b"\r", b"\n", b"}", b"]", b"{", b'"', b"a", b"M", b"\x0b", b"\xc3\x9d", b"\x00"]
"""M differs from a bracket in one bit, the last byte of Ý in two: not those of our mask."""


@given(parts=st.lists(st.sampled_from(BYTES), max_size=60), block=st.integers(1, 16))
@example(parts=[b"{", b",", *[b" "] * 40, b"}"], block=4)
@example(parts=[b"a", b",", b"}"], block=2)
@example(parts=[b"a", b"a", b",", b" "], block=2)
@settings(max_examples=2_000, deadline=None)
def test_a_comma_and_a_bracket_are_found_across_blocks(parts: list[bytes], block: int) -> None:
    text = b"".join(parts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loose_json, "_BLOCK", block)
        assert is_loose(BytesIO(text)) == (re.search(rb",\s*[}\]]", text) is not None)


NUMBERS = [b"NaN", b"nan", b"-inf", b"Infinity", b"-infinity", b"INF", b"na", b"n", b"nf", b"i", b"null", b"name", b"-", b":", b"\x0e"]
"""The last byte is N but for one bit."""


@given(parts=st.lists(st.sampled_from([*BYTES, *NUMBERS]), max_size=30), block=st.integers(1, 24))
@example(parts=[b'{"a"', b":", b"-infinity", b"}"], block=9)
@example(parts=[b"[", b"NaN", b"]"], block=1)
@settings(max_examples=2_000, deadline=None)
def test_numbers_that_are_none_are_found_across_blocks(parts: list[bytes], block: int) -> None:
    text = b"".join(parts)
    wanted = re.search(rb"(?i)[:,\[\s-](nan|inf|infinity)[\s,}\]]|,\s*[}\]]", text)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loose_json, "_BLOCK", block)
        assert is_loose(BytesIO(text)) == (wanted is not None)


def test_words_of_a_text_are_no_numbers() -> None:
    assert not is_loose(BytesIO(b'{"note": "nanny, information; inf. (nan)", "nan": 1, "infinity": "NaN"}\n' * 20_000))
    assert is_loose(BytesIO(b'{"note": "a"}\n' * 20_000 + b'{"note": NaN}\n'))


@given(
    parts=st.lists(st.sampled_from([b'"value":null}\n', b'"value":', b"null}", b"\n", b" ", b"x", b", "]), max_size=30),
    block=st.integers(1, 24),
)
@example(parts=[b"x", b'"value":null}\n', b'"value":null}\n'], block=15)
@settings(max_examples=2_000, deadline=None)
def test_null_values_are_counted_once_across_blocks(parts: list[bytes], block: int) -> None:
    text = b"".join(parts)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(loose_json, "_BLOCK", block)
        assert count_null_values(BytesIO(text)) == len(re.findall(rb'"value":null}\n', text))


def compressed(name: str, text: bytes) -> bytes:
    if name.endswith(".zst"):
        return pa.compress(text, codec="zstd", asbytes=True)  # type: ignore[no-any-return]
    return gzip.compress(text[:40]) + gzip.compress(text[40:]) if name.endswith(".gz") else text


@pytest.mark.parametrize("ending", [".json", ".json.gz", ".json.zst"])
@pytest.mark.parametrize("name", ["plain", "st*r", "per%20cent", "ünï☃"])
def test_files_are_read_as_they_are_named(tmp_path: Path, name: str, ending: str) -> None:
    good, bad = f"good {name}{ending}", f"bad {name}{ending}"
    line = b'{"note":"one, two,\\n three","numbers":[1, 2]}\n'
    (tmp_path / good).write_bytes(compressed(good, line * 10_000))
    (tmp_path / bad).write_bytes(compressed(bad, line * 10_000 + b'{"note":1 , \t}\n' + line))
    files = FetchedFiles(tmp_path.as_uri(), [good, bad])
    assert with_loose_json(files) == {files.uris[1]}


def test_a_file_that_cannot_be_decompressed_is_named_too(tmp_path: Path) -> None:
    whole = gzip.compress(b'{"a":1}\n' * 100_000)
    contents = {"good.json.gz": whole, "cut.json.gz": whole[: len(whole) // 2], "other.json.gz": b"{}\n", "other.json.zst": b"{}\n"}
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    files = FetchedFiles(tmp_path.as_uri(), list(contents))
    assert with_loose_json(files) == set(files.uris[1:])
