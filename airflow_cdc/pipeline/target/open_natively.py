"""Open a Delta table by delta-rs, in this process: its log's facts cost no Spark job, and the native engine merges into it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote

if TYPE_CHECKING:
    from pyspark.sql.types import StructField

from airflow_cdc.model.delta_rs_options import NotReached
from airflow_cdc.model.storage import store_of
from airflow_cdc.pipeline.spark.storage import delta_options, is_local
from airflow_cdc.pipeline.target.read_commits import has_commit

_FAILED: set[str] = set()
"""Object stores on which delta-rs failed in this process; Spark describes the tables there from then on."""
_PATIENCE = {"max_retries": "5", "retry_timeout": "30s"}
"""Its own ten attempts within three minutes would delay a run that Spark can do as well."""
_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")
_LINE = re.compile(r"\x1b\[[0-9;]*m|↳")
"""How delta-rs draws an error's causes."""


class Description(NamedTuple):
    """What Delta's log says of a table, as ``DESCRIBE DETAIL`` does."""

    properties: dict[str, str]
    fields: Sequence[StructField]
    files: int
    size: int
    """Bytes of the live files."""
    table: Any = None
    """delta-rs's table that says so; None where Spark does."""


def open_table(uri: str) -> Any:
    """Return the table at a URI, as delta-rs reads it.

    :raises NotReached: where delta-rs is not used.
    :raises DeltaError: where there is none, or delta-rs cannot read it.
    :raises OSError: when the store fails.
    """
    from deltalake import DeltaTable

    path, options = reach(uri)
    with without_answers(uri):
        return DeltaTable(path, storage_options=options)


def brought_up_to_date(uri: str, table: Any | None) -> Any:
    """Return a table as it is now. To read only what was committed since it was opened costs a tenth of opening it.

    :param table: delta-rs's table; None where it is not open yet.
    :raises NotReached: as :func:`open_table`.
    :raises DeltaError: as :func:`open_table`.
    :raises OSError: as :func:`open_table`.
    """
    # Where the folder was removed since, delta-rs would take the lack of newer commits for a table that nobody changed.
    if table is None or not has_commit(uri, table.version()):
        return open_table(uri)
    with without_answers(uri):
        table.update_incremental()
    return table


def describe_natively(uri: str) -> Description | None:
    """Return a table's description; None where there is none, or delta-rs is not installed, does not reach it, or cannot read it."""
    if find_spec("deltalake") is None or store_of(uri) in _FAILED:
        return None
    from deltalake.exceptions import DeltaError

    try:
        return _describe(uri)
    except (NotReached, DeltaError):
        return None
    except OSError:
        if not is_local(uri):
            # The next table would cost the same seconds of attempts: delta-rs may not trust the certificate that others trust.
            _FAILED.add(store_of(uri))
        return None


def live_files(table: Any) -> list[dict[str, Any]]:
    """Return the files of a table of delta-rs, each with ``path``, ``size_bytes``, and its statistics as ``min.column`` and so on."""
    import pyarrow as pa

    files: list[dict[str, Any]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return files


def _describe(uri: str) -> Description | None:
    # Imported here: commands that only look import this module, and read the types without PySpark.
    from pyspark.sql.types import StructType

    table = open_table(uri)
    try:
        fields = StructType.fromJson(json.loads(table.schema().to_json())).fields
    except ValueError:
        # A type that this version of PySpark or delta-rs does not know.
        return None
    sizes = table.get_add_actions(flatten=True).column("size_bytes").to_pylist()
    return Description(dict(table.metadata().configuration), fields, files=len(sizes), size=sum(sizes), table=table)


def why_not_reached(uri: str) -> str | None:
    """Return why delta-rs is not used on a URI's store; None where it reaches it as the job's own calls do."""
    try:
        reach(uri)
    except NotReached as reason:
        return str(reason)
    return None


def reach(uri: str) -> tuple[str, dict[str, str] | None]:
    """Return a URI as delta-rs takes it, and its ``storage_options``.

    :raises NotReached: where delta-rs is not used.
    """
    options = delta_options(uri)
    # Not by urlsplit, to which `#` and `?` end a path: Spark and fsspec take them for letters of a name.
    path = native_path(uri) if is_local(uri) else "/" + uri.partition("://")[2].partition("/")[2]
    if _ENCODED.search(path):
        raise NotReached("delta-rs reads another folder where a name holds % and two digits")
    if is_local(uri):
        return path, None
    if set("#?") & set(path):
        raise NotReached("delta-rs does not find a table's history where a name on an object store holds # or ?")
    return store_of(uri) + quote(path, safe="/"), {**options, **_PATIENCE}


@contextmanager
def without_answers(uri: str) -> Iterator[None]:
    """Raise delta-rs's errors without the store's answers: those may hold a signed URL or the text of a signature."""
    from deltalake.exceptions import DeltaError

    try:
        yield
    except (DeltaError, OSError) as error:
        if is_local(uri):
            raise
        kind = PermissionError if "lacked the necessary privileges" in str(error) else type(error)
        raise kind(f"{uri}: {_without_answer(str(error))}") from None


def _without_answer(text: str) -> str:
    lines = (_LINE.sub("", line).strip() for line in text.partition("<")[0].splitlines())
    return "; ".join(line for line in lines if line and "://" not in line)


def native_path(uri: str) -> str:
    """Return a local URI as a path."""
    return re.sub(r"^file:/+", "/", uri)
