"""Decompress a file in memory, by its name."""

from __future__ import annotations

import bz2
import gzip
from io import BytesIO
from typing import Any

from airflow_cdc.model.archive.compressions import why_cut_off

ANY = -1
"""However much text a file holds."""


class TooMuchTextError(ValueError):
    """Raised where a file holds more text than may be read: a few bytes can be gigabytes of it."""


def decompressed(content: bytes, name: str, most: int = ANY) -> bytes:
    """Return a file's text: gzip, bzip2 or Zstandard by the name's ending, in any case of letters; else as it is.

    :param most: bytes of text; no more than one above is ever held.
    :raises TooMuchTextError: where it holds more.
    :raises OSError, EOFError, ValueError, zlib.error: where it is not compressed so, or is cut off.
    """
    if why := why_cut_off(name, BytesIO(content), len(content)):
        raise EOFError(why)
    with _stream(content, name.lower()) as stream:
        text = stream.read() if most == ANY else stream.read(most + 1)
    if most != ANY and len(text) > most:
        raise TooMuchTextError(f"it holds more than {most:,} bytes of text")
    return bytes(text)


def _stream(content: bytes, name: str) -> Any:
    if name.endswith(".gz"):
        return gzip.GzipFile(fileobj=BytesIO(content))
    if name.endswith(".bz2"):
        return bz2.BZ2File(BytesIO(content))
    if name.endswith((".zst", ".zstd")):
        import pyarrow as pa

        return pa.CompressedInputStream(pa.BufferReader(content), "zstd")
    return BytesIO(content)
