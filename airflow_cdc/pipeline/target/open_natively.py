"""Open a Delta table by delta-rs, in this process: its log's facts cost no Spark job, and the native engine merges into it."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from pyspark.sql.types import StructField


class Description(NamedTuple):
    """What Delta's log says of a table, as ``DESCRIBE DETAIL`` does."""

    properties: dict[str, str]
    fields: Sequence[StructField]
    files: int
    size: int
    """Bytes of the live files."""


def open_natively(uri: str) -> Any | None:
    """Return the table at a URI; None where there is none, or delta-rs is not installed, does not reach it, or cannot read it."""
    if find_spec("deltalake") is None or not is_reached(uri):
        return None
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    try:
        return DeltaTable(native_path(uri))
    except (DeltaError, OSError):
        return None


def describe_natively(uri: str) -> Description | None:
    """Return a table's description; None where only Spark can give it."""
    table = open_natively(uri)
    if table is None:
        return None
    # Imported here: commands that only look import this module, and read the types without PySpark.
    from pyspark.sql.types import StructType

    try:
        fields = StructType.fromJson(json.loads(table.schema().to_json())).fields
    except ValueError:
        # A type that this version of PySpark or delta-rs does not know.
        return None
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return Description(dict(table.metadata().configuration), fields, files=len(sizes), size=sum(sizes))


def is_reached(uri: str) -> bool:
    """Return whether delta-rs and DuckDB reach a store: currently the local file system alone."""
    return "://" not in native_path(uri)


def native_path(uri: str) -> str:
    """Return a URI as delta-rs and DuckDB take it."""
    return re.sub(r"^file:/+", "/", uri)
