"""Whole bzip2 streams are told from cut ones at each byte, whatever stands around them."""

from __future__ import annotations

import bz2
import random
from io import BytesIO

import pytest

from airflow_cdc.model.archive import bzip2_streams
from airflow_cdc.model.archive.bzip2_streams import ends_with_its_last_stream

LINES = b'{"id": 1}\n' * 40
STREAMS = {"text": bz2.compress(LINES), "no content": bz2.compress(b""), "small blocks": bz2.compress(LINES, 1)}


def is_whole(content: bytes) -> bool:
    return ends_with_its_last_stream(BytesIO(content), len(content))


@pytest.mark.parametrize("name", STREAMS)
def test_streams_are_whole_at_their_ends_alone(name: str) -> None:
    last = STREAMS[name]
    for first in (b"", STREAMS["text"], STREAMS["text"] + STREAMS["no content"]):
        assert is_whole(first + last)
        for cut in range(1, len(last)):
            assert not is_whole(first + last[:cut]), cut
            # What follows is whole; Hadoop passes over a header in between.
            assert not is_whole(first + last[:cut] + STREAMS["text"]), cut
        assert not is_whole(first + last + b"\n")
        assert not is_whole(first + b"XX" + last)
    assert is_whole(b"")


def test_a_block_that_is_gone_shows_in_the_checksum_of_the_stream() -> None:
    """A stream that is cut between two blocks, with a whole one behind it: each block that is left is whole."""
    content = random.Random(5).randbytes(250_000)
    of_blocks = bz2.compress(content, 1)
    reader = bz2.BZ2Decompressor()
    second_block = next(at for at in range(len(of_blocks)) if reader.decompress(of_blocks[at : at + 1]))
    assert is_whole(of_blocks)
    assert is_whole(of_blocks + STREAMS["text"])
    for cut in range(second_block - 20, second_block + 40):
        assert not is_whole(of_blocks[:cut]), cut
        assert not is_whole(of_blocks[:cut] + STREAMS["text"]), cut


@pytest.mark.parametrize("at_once", [1, 11, 12, 100])
def test_what_is_read_at_once_does_not_matter(monkeypatch: pytest.MonkeyPatch, at_once: int) -> None:
    monkeypatch.setattr(bzip2_streams, "_AT_ONCE", at_once)
    several = b"".join(bz2.compress(random.Random(seed).randbytes(seed * 50), 1) for seed in range(20))
    assert is_whole(several)
    assert not is_whole(several[:-1])
    assert not is_whole(several[1:])
