"""Read the transaction metadata of new files without Spark: JSON lines only, and of limited size."""

from __future__ import annotations

import bz2
import gzip
import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from airflow_cdc.model.archive.archived_files import ArchivedFile, FileFormat
from airflow_cdc.model.archive.transactions import Place, Transaction, end_place, transaction_key, united
from airflow_cdc.model.errors import ConfigurationError, StorageFailedError
from airflow_cdc.model.files import FileSystem

MOST_BYTES = 64 * 1024**2
"""Most bytes of lines that one look reads; beyond that a merge run must read them."""

_OPEN = {".gz": gzip.decompress, ".bz2": bz2.decompress}


@dataclass(frozen=True)
class TransactionRecord:
    """The transaction metadata of one archived record."""

    topic: str
    transaction: Transaction
    ended_ms: int | None = None
    """When its END was written, in milliseconds since 1970; None for all other records."""
    time_ms: int | None = None
    """When the source committed it, in milliseconds since 1970; None where the record does not carry it."""


def read_transaction_records(fs: FileSystem, root: str, files: Iterable[ArchivedFile], survey: int) -> Iterator[TransactionRecord]:
    """Yield the transaction metadata of some files' records, skipping snapshot reads and unreadable lines.

    :param survey: number of the survey to record it under.
    :raises ConfigurationError: when a file is Avro, Parquet or Zstandard.
    :raises StorageFailedError: when a file cannot be read.
    """
    for file in files:
        for document in _documents(fs, root, file):
            if record := _record(document, file.topic, survey):
                yield record


def _documents(fs: FileSystem, root: str, file: ArchivedFile) -> Iterator[Any]:
    if file.format in (FileFormat.AVRO, FileFormat.PARQUET) or file.path.endswith((".zst", ".zstd")):
        raise ConfigurationError(
            f"File {file.path} of the archive is no plain, gzip or bzip2 JSON: its transactions cannot be read without Spark.",
            next_step="Wait for files (CdcArchiveSensor), and let the merge run with consistent=True find the cut.",
        )
    try:
        data = fs.cat_file(f"{root.rstrip('/')}/{file.path}")
        text = _OPEN.get(file.path[file.path.rfind(".") :], bytes)(data).decode(errors="replace")
    except (OSError, EOFError) as error:
        raise StorageFailedError(
            f"File {file.path} of the archive cannot be read: {type(error).__name__}: {error}.", next_step="It is tried again."
        ) from error
    # Not by splitlines: a text may hold other characters that end lines, such as U+2028.
    lines = [text] if text.lstrip().startswith("[") else text.split("\n")
    for line in lines:
        for document in _documents_of(line):
            yield from document if isinstance(document, list) else [document]


def _documents_of(line: str) -> Iterator[Any]:
    """Yield the documents of a line, up to what is none: files may be joined."""
    decoder, rest = json.JSONDecoder(), line.strip()
    while rest:
        try:
            document, end = decoder.raw_decode(rest)
        except ValueError:
            # The survey handles unreadable lines; a sensor only counts what it can read.
            return
        yield document
        rest = rest[end:].strip()


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _record(document: Any, topic: str, survey: int) -> TransactionRecord | None:
    if not isinstance(document, dict):
        return None
    value: Any = document
    if "value" in document and "op" not in document:
        value, topic = document["value"], document.get("topic") or topic
    value = _json(value) if isinstance(value, str) else value
    if isinstance(value, dict) and isinstance(value.get("payload"), dict):
        value = value["payload"]
    if not isinstance(value, dict):
        return None
    if topic.endswith(".transaction") and isinstance(value.get("id"), str):
        return _boundary(value, topic, survey)
    return _event(value, topic, survey)


def _boundary(value: dict[str, Any], topic: str, survey: int) -> TransactionRecord:
    key = transaction_key(value["id"])
    if value.get("status") != "END":
        return TransactionRecord(topic, Transaction(key, survey=survey), time_ms=int(value.get("ts_ms") or 0))
    counts = {part["data_collection"]: int(part["event_count"]) for part in value.get("data_collections") or ()}
    ended_ms = int(value.get("ts_ms") or 0)
    place = Place(end_place(value["id"], ended_ms))
    return TransactionRecord(topic, Transaction(key, counts, survey=survey, place=place), ended_ms, ended_ms)


def _event(value: dict[str, Any], topic: str, survey: int) -> TransactionRecord | None:
    transaction, source = value.get("transaction"), value.get("source")
    if not isinstance(transaction, dict) or not transaction.get("id"):
        return None
    order = int(transaction.get("data_collection_order") or 0)
    seen = Transaction(transaction_key(transaction["id"]), None, {topic: united([(order, order)])}, survey)
    time = source.get("ts_ms") if isinstance(source, dict) else None
    return TransactionRecord(topic, seen, time_ms=int(time) if time is not None else None)
