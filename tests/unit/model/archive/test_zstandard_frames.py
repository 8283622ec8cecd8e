"""Whole frames are told from cut ones as the format has them, at each byte."""

from __future__ import annotations

import random
from io import BytesIO

import pyarrow as pa
import pytest

from airflow_cdc.model.archive.zstandard_frames import ends_with_its_last_frame

PLAIN = random.Random(5).randbytes(300_000)
SKIPPABLE = b"\x57\x2a\x4d\x18" + (3).to_bytes(4, "little") + b"abc"


def frame(content: bytes) -> bytes:
    """Return a frame as a stream of writes makes it."""
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(content)
    return bytes(sink.getvalue())


def is_whole(content: bytes) -> bool:
    return ends_with_its_last_frame(BytesIO(content), len(content))


FRAMES = {
    "text": frame(b'{"id": 1}\n' * 40),
    "one byte again and again": frame(b"x" * 400_000),
    "no content": frame(b""),
    "written at once": bytes(pa.compress(b'{"id": 1}\n', codec="zstd", asbytes=True)),
    "skippable": SKIPPABLE,
}


@pytest.mark.parametrize("name", FRAMES)
def test_frames_are_whole_at_their_ends_alone(name: str) -> None:
    last = FRAMES[name]
    for first in (b"", FRAMES["text"], FRAMES["text"] + SKIPPABLE):
        assert is_whole(first + last)
        for cut in range(1, len(last)):
            assert not is_whole(first + last[:cut]), cut
        assert not is_whole(first + last + b"\n")


def test_frames_of_several_blocks() -> None:
    content = frame(PLAIN) + frame(PLAIN[:200_000])
    assert is_whole(content)
    for cut in (*range(1, 40), *range(199_000, 200_030, 7)):
        assert not is_whole(content[:-cut]), cut
    assert is_whole(b"")
