"""Decompress a file in memory, by its name."""

from __future__ import annotations

import bz2
import gzip
from io import BytesIO

from airflow_cdc.model.archive.compressions import CUT_OFF
from airflow_cdc.model.archive.zstandard_frames import ends_with_its_last_frame


def decompressed(content: bytes, name: str) -> bytes:
    """Return a file's text: gzip, bzip2 or Zstandard by the name's ending, in any case of letters; else as it is.

    :raises OSError, EOFError, ValueError, zlib.error: where it is not compressed so, or is cut off.
    """
    ending = name.lower()
    if ending.endswith(".gz"):
        return gzip.decompress(content)
    if ending.endswith(".bz2"):
        return bz2.decompress(content)
    if ending.endswith((".zst", ".zstd")):
        import pyarrow as pa

        if not ends_with_its_last_frame(BytesIO(content), len(content)):
            raise EOFError(CUT_OFF)
        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
            return bytes(stream.read())
    return content
