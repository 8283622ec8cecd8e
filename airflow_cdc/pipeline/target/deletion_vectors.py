"""Deletion vectors: the places of a file's deleted rows, as Delta stores them beside the file.

The format is that of Delta's protocol ("Deletion Vectors"): a 64-bit Roaring bitmap behind a magic number. In a file, its size stands
before it and its checksum behind it. The file's name is a UUID, which the log spells in Z85.
"""

from __future__ import annotations

import base64
import struct
import uuid
import zlib
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from airflow_cdc.pipeline.spark.storage import file_system

if TYPE_CHECKING:
    from pyroaring import BitMap64

_MAGIC = struct.pack("<I", 1681511377)
_VERSION = b"\x01"
_OF_RFC1924 = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
_OF_Z85 = b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
_TO_Z85, _FROM_Z85 = bytes.maketrans(_OF_RFC1924, _OF_Z85), bytes.maketrans(_OF_Z85, _OF_RFC1924)
"""Both alphabets spell four bytes by five digits of base 85, the first digit first."""
_OF_UUID = 20
"""Characters of a UUID in Z85. What stands before it is a prefix of the path."""


class UnreadableVectorError(ValueError):
    """Raised for a deletion vector that is stored in a way that is not read here, or that is damaged; its text is the reason."""


def has_vectors(table: Any) -> bool:
    """Return whether files of delta-rs's table may have deletion vectors."""
    return "deletionVectors" in (table.protocol().reader_features or ())


def bitmap(rows: Iterable[int] = ()) -> BitMap64:
    """Return a set of numbers of rows."""
    from pyroaring import BitMap64

    return BitMap64(rows)


def numbers_of(rows: BitMap64) -> Any:
    """Return numbers of rows as an Arrow array."""
    import pyarrow as pa

    return pa.array(rows, pa.int64(), size=len(rows))


def read_vector(uri: str, descriptor: Mapping[str, Any] | None) -> BitMap64:
    """Return the numbers of a file's deleted rows, from 0 on; empty without a descriptor.

    :param uri: of the table.
    :param descriptor: ``deletionVector`` of the file's ``add`` action.
    :raises UnreadableVectorError: where it is not read here, or is damaged.
    :raises OSError: when the store fails.
    """
    if descriptor is None:
        return bitmap()
    stored, size = str(descriptor["pathOrInlineDv"]), int(descriptor["sizeInBytes"])
    if descriptor["storageType"] == "i":
        content = _from_z85(stored)[:size]
    elif descriptor["storageType"] == "u":
        content = _content(uri, stored, offset=int(descriptor["offset"]), size=size)
    else:
        raise UnreadableVectorError("a deletion vector lies at a path outside of the table")
    if not content.startswith(_MAGIC):
        raise UnreadableVectorError(f"deletion vector {stored} begins with {content[:4]!r}, expected {_MAGIC!r}")
    try:
        rows = type(bitmap()).deserialize(content[len(_MAGIC) :])
    except ValueError as error:
        raise UnreadableVectorError(f"deletion vector {stored} is damaged: {error}") from error
    if len(rows) != descriptor["cardinality"]:
        raise UnreadableVectorError(f"deletion vector {stored} has {len(rows)} rows, the log says {descriptor['cardinality']}")
    return rows


def _content(uri: str, stored: str, *, offset: int, size: int) -> bytes:
    fs, root = file_system(uri)
    prefix, name = stored[:-_OF_UUID], uuid.UUID(bytes=_from_z85(stored[-_OF_UUID:]))
    path = "/".join(part for part in (root.rstrip("/"), prefix, _file_name(name)) if part)
    found: bytes = fs.cat_file(path, start=offset, end=offset + size + 8)
    content = found[4:-4]
    if found[:4] != struct.pack(">I", size) or found[-4:] != struct.pack(">I", zlib.crc32(content)):
        raise UnreadableVectorError(f"deletion vector {stored}: its size or its checksum is not the one in {path}")
    return content


def write_vectors(uri: str, vectors: Mapping[str, BitMap64]) -> dict[str, dict[str, Any]]:
    """Write deletion vectors into one new file of a table and return their descriptors.

    :param uri: of the table.
    :param vectors: by any name.
    :raises OSError: when the store fails.
    """
    if not vectors:
        return {}
    name, parts, descriptors = uuid.uuid4(), [_VERSION], dict[str, dict[str, Any]]()
    offset = len(_VERSION)
    for of, rows in vectors.items():
        rows.run_optimize()
        content = _MAGIC + rows.serialize()
        parts += [struct.pack(">I", len(content)), content, struct.pack(">I", zlib.crc32(content))]
        descriptors[of] = {
            "storageType": "u",
            "pathOrInlineDv": base64.b85encode(name.bytes).translate(_TO_Z85).decode("ascii"),
            "offset": offset,
            "sizeInBytes": len(content),
            "cardinality": len(rows),
        }
        offset += len(content) + 8
    fs, root = file_system(uri)
    fs.pipe_file(f"{root.rstrip('/')}/{_file_name(name)}", b"".join(parts))
    return descriptors


def _file_name(name: uuid.UUID) -> str:
    return f"deletion_vector_{name}.bin"


def _from_z85(text: str) -> bytes:
    try:
        return base64.b85decode(text.encode("ascii").translate(_FROM_Z85))
    except ValueError as error:
        raise UnreadableVectorError(f"a deletion vector is named {text!r}, which is no Z85") from error
