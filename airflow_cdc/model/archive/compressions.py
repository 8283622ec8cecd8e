"""Compressions that are not read, by a file's name and by its first bytes."""

from __future__ import annotations

import re
from typing import BinaryIO

from airflow_cdc.model.archive.bzip2_streams import ends_with_its_last_stream
from airflow_cdc.model.archive.zstandard_frames import ends_with_its_last_frame

READ = (".gz", ".bz2", ".zst", ".zstd")
"""Endings of the compressions that are read."""
_CUT_OFF = {
    (".zst", ".zstd"): (ends_with_its_last_frame, "its last Zstandard frame is cut off, or no frame"),
    (".bz2",): (ends_with_its_last_stream, "one of its bzip2 streams is cut off, or no stream"),
}
"""By endings: what finds a file that is cut off, where readers take it for one that ends before. Those of gzip fail."""
_NOT_READ = re.compile(
    r"\.(snappy|snz|sz|lz4|lz4raw|deflate|zlib|zz|lzo|lzo_deflate|lzma|xz|br|brotli|lz|7z|rar|z|passthrough)$"
    r"|\.(?:json|jsonl|ndjson|txt|log|avro|parquet)\.zip$",
    re.IGNORECASE,
)
_MAGIC = {
    b"\x1f\x8b": "gzip",
    b"BZh": "bzip2",
    b"\x28\xb5\x2f\xfd": "Zstandard",
    b"\xff\x06\x00\x00sNaPpY": "Snappy",
    b"\x82SNAPPY\x00": "Snappy",
    b"\x04\x22\x4d\x18": "LZ4",
    b"LZ4Block": "LZ4",
    b"PK\x03\x04": "ZIP",
    b"\xfd7zXZ\x00": "XZ",
    b"7z\xbc\xaf\x27\x1c": "7-Zip",
    b"\x89LZO\x00": "LZO",
}
MOST_MAGIC = max(map(len, _MAGIC))
"""Bytes from a file's beginning that :func:`compression_of` looks at."""


def why_not_decompressed(path: str) -> str | None:
    """Return why a file cannot be read, by the ending of its name; None where it may be."""
    found = _NOT_READ.search(path)
    if found is None:
        return None
    ending = path[path.rindex(".") :]
    return f"{ending} is a compression that is not read; these are: {', '.join(READ)}"


def may_end_unseen(path: str) -> bool:
    """Return whether readers may take a cut file of this name for one that ends before it is cut."""
    return any(path.lower().endswith(endings) for endings in _CUT_OFF)


def why_cut_off(path: str, file: BinaryIO, size: int) -> str | None:
    """Return why a file is not whole though readers do not find it, by the ending of its name; None where it is, or they do.

    :param file: at its beginning.
    :param size: bytes of the file.
    """
    checks = (check for endings, check in _CUT_OFF.items() if path.lower().endswith(endings))
    return next((why for is_whole, why in checks if not is_whole(file, size)), None)


def compression_of(first: bytes) -> str | None:
    """Return the compression that a file's first bytes show; None where they show none."""
    return next((name for magic, name in _MAGIC.items() if first.startswith(magic)), None)
