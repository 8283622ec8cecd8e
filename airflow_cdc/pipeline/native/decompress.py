"""Decompress a file in memory, by its name."""

from __future__ import annotations

import bz2
import gzip
from io import BytesIO

from airflow_cdc.model.archive.compressions import why_cut_off


def decompressed(content: bytes, name: str) -> bytes:
    """Return a file's text: gzip, bzip2 or Zstandard by the name's ending, in any case of letters; else as it is.

    :raises OSError, EOFError, ValueError, zlib.error: where it is not compressed so, or is cut off.
    """
    ending = name.lower()
    if why := why_cut_off(name, BytesIO(content), len(content)):
        raise EOFError(why)
    if ending.endswith(".gz"):
        return gzip.decompress(content)
    if ending.endswith(".bz2"):
        return bz2.decompress(content)
    if ending.endswith((".zst", ".zstd")):
        import pyarrow as pa

        with pa.CompressedInputStream(pa.BufferReader(content), "zstd") as stream:
            return bytes(stream.read())
    return content
