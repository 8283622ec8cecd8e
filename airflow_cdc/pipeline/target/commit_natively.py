"""Commits without Spark.

A commit is one file of the log, made only if no other writer has made it. What it carries is that of Delta's protocol ("Actions").
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from airflow_cdc import __version__
from airflow_cdc.model.errors import ConcurrentRunError
from airflow_cdc.model.files import create_file
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.open_natively import open_table

Action = dict[str, Any]
_RUN_AGAIN = "Nothing is lost; run again. To keep runs apart give the flow a pool of one slot."
_FEATURE = "deletionVectors"
_INTERVAL, _USUAL_INTERVAL = "delta.checkpointInterval", 10


@dataclass(frozen=True, kw_only=True)
class CommitOf:
    """What a commit says of the run that makes it."""

    application: str
    """Delta application identifier."""
    version: int
    """Of the application's transaction."""
    metadata: str
    """``userMetadata``."""


MERGE: Mapping[str, Any] = {"operation": "MERGE", "operationParameters": {}, "isBlindAppend": False}
APPEND: Mapping[str, Any] = {"operation": "WRITE", "operationParameters": {"mode": "Append", "partitionBy": "[]"}, "isBlindAppend": True}
"""Kinds of :func:`commit_rows`."""
_STATISTICS: Mapping[str, Any] = {"operation": "COMPUTE STATS", "operationParameters": {}, "isBlindAppend": False}


def commit_rows(
    uri: str,
    table: Any,
    actions: Sequence[Mapping[str, Action]],
    *,
    of: CommitOf | None,
    metrics: Mapping[str, int],
    kind: Mapping[str, Any] = MERGE,
) -> None:
    """Make the commit behind the version that delta-rs's table has.

    :param actions: ``add`` and ``remove``, by kind.
    :param of: None where nothing is to be told.
    :param metrics: Delta's ``operationMetrics``.
    :param kind: :data:`MERGE` or :data:`APPEND`.
    :raises ConcurrentRunError: when another run committed first.
    :raises OSError: when the store fails.
    """
    info = {**kind, "operationMetrics": {name: str(count) for name, count in metrics.items()}}
    told: list[Mapping[str, Action]] = []
    if of:
        _refuse_second(table, of)
        info["userMetadata"] = of.metadata
        told = [{"txn": {"appId": of.application, "version": of.version, "lastUpdated": _now()}}]
    version = _commit(uri, table, info, actions=[*told, *actions])
    _checkpoint(uri, table, version)


def commit_statistics(uri: str, table: Any, adds: Sequence[Action]) -> None:
    """Make the commit by which files of the table get other statistics, as Delta's own of that name: no row changes.

    :param adds: of these files, all else as it was.
    :raises ConcurrentRunError: when another run committed first.
    :raises OSError: when the store fails.
    """
    unchanged = [{"add": {**action, "dataChange": False}} for action in adds]
    commit_rows(uri, table, unchanged, of=None, metrics={"numFiles": len(adds)}, kind=_STATISTICS)


def commit_properties(uri: str, table: Any, properties: Mapping[str, str]) -> None:
    """Make the commit by which a table gets properties that ask nothing of its writers, as Spark's ALTER TABLE.

    :raises ConcurrentRunError: when another run committed first.
    :raises OSError: when the store fails.
    """
    _commit(uri, table, _assigning(properties), actions=[{"metaData": _metadata_of(table, properties)}])


def commit_deletion_vectors(uri: str, table: Any) -> None:
    """Make the commit by which a table gets deletion vectors, as Spark's ALTER TABLE.

    :param table: delta-rs's table, of protocol 1 and 2, or with features.
    :raises ConcurrentRunError: when another run committed first.
    :raises OSError: when the store fails.
    """
    held = table.protocol()
    # With features a table has those alone that are named: two of them every table had before.
    features = {
        kind: sorted({*(names or ()), _FEATURE, *([] if held.writer_features else before)})
        for kind, names, before in (
            ("readerFeatures", held.reader_features, ()),
            ("writerFeatures", held.writer_features, ("appendOnly", "invariants")),
        )
    }
    property_set = {"delta.enableDeletionVectors": "true"}
    protocol = {"minReaderVersion": 3, "minWriterVersion": 7, **features}
    _commit(uri, table, _assigning(property_set), actions=[{"metaData": _metadata_of(table, property_set)}, {"protocol": protocol}])


def _assigning(properties: Mapping[str, str]) -> dict[str, Any]:
    """Return what a commit that assigns properties says of itself."""
    told = {"properties": json.dumps(dict(properties))}
    return {"operation": "SET TBLPROPERTIES", "operationParameters": told, "isBlindAppend": True, "operationMetrics": {}}


def _metadata_of(table: Any, properties: Mapping[str, str]) -> Action:
    """Return a table's metadata with more properties."""
    metadata = table.metadata()
    described = {
        "id": metadata.id,
        "name": metadata.name,
        "description": metadata.description,
        "format": {"provider": "parquet", "options": {}},
        "schemaString": table.schema().to_json(),
        "partitionColumns": metadata.partition_columns,
        "configuration": {**metadata.configuration, **properties},
        "createdTime": metadata.created_time,
    }
    return {name: value for name, value in described.items() if value is not None}


def _commit(uri: str, table: Any, info: Mapping[str, Any], *, actions: Sequence[Mapping[str, Action]]) -> int:
    """Make the commit behind the version that delta-rs's table has, and return its own."""
    version = int(table.version()) + 1
    made_by = {"engineInfo": f"airflow-cdc/{__version__}", "txnId": str(uuid.uuid4())}
    whole = {"timestamp": _now(), "readVersion": version - 1, "isolationLevel": "Serializable", **info, **made_by}
    lines = [{"commitInfo": whole}, *actions]
    text = "".join(f"{json.dumps(line, ensure_ascii=False, separators=(',', ':'))}\n" for line in lines)
    fs, root = file_system(uri)
    if not create_file(fs, f"{root.rstrip('/')}/_delta_log/{version:020d}.json", text.encode()):
        raise ConcurrentRunError(f"Another run committed version {version} of {uri} first.", next_step=_RUN_AGAIN)
    return version


def _now() -> int:
    return time.time_ns() // 1_000_000


def _refuse_second(table: Any, of: CommitOf) -> None:
    """Refuse a transaction that the table holds, as far as it was read: a commit is only made behind that version.

    Spark leaves such a commit out by itself. delta-rs records a transaction, and does not compare it.

    :raises ConcurrentRunError: when it does.
    """
    held = table.transaction_version(of.application)
    if held is not None and held >= of.version:
        raise ConcurrentRunError(
            f"Another run committed microbatch {of.version} of {of.application} to {table.table_uri} first: the table holds microbatch"
            f" {held} (version {table.version()}).",
            next_step=_RUN_AGAIN,
        )


def _checkpoint(uri: str, table: Any, version: int) -> None:
    """Write the checkpoint that is due, and remove the commits that the table no longer keeps."""
    from deltalake.exceptions import DeltaError

    if version % int(table.metadata().configuration.get(_INTERVAL, _USUAL_INTERVAL)):
        return
    # The commit is made: a later one writes the checkpoint where this one fails.
    with suppress(DeltaError, OSError):
        written = open_table(uri)
        written.create_checkpoint()
        written.cleanup_metadata()
