"""Read what a Delta table's log tells of its newest commits and version from the log's files: Spark would start jobs to tell the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql.types import StructType

from airflow_cdc.pipeline.storage import file_system

_MOST_READ = 20
_MANAGED_ELSEWHERE = ("catalogManaged", "coordinatedCommits")
"""Features, or how they begin, of tables whose last commits need not lie in the log's folder yet."""


@dataclass(frozen=True)
class TableVersion:
    """A version of a table, as the checksum tells that Delta writes beside its commit."""

    version: int
    schema: StructType
    properties: Mapping[str, str]
    size: int
    """Bytes of the live files."""


def commits_behind(uri: str, version: int) -> Iterator[dict[str, Any]]:
    """Yield what the commits behind a version tell of themselves, ascending: ``version``, ``userMetadata``, ``operationMetrics``.

    Ends where there is no next one, where the log cannot be read, and after a few: what is not among them, the table's history has to tell.
    """
    fs, path = file_system(uri)
    for number in range(version + 1, version + 1 + _MOST_READ):
        try:
            text = fs.cat_file(f"{path}/_delta_log/{number:020d}.json")
        except OSError:
            return
        told = _commit_info(text)
        yield {"version": number, "userMetadata": told.get("userMetadata"), "operationMetrics": told.get("operationMetrics")}


def newest_version(uri: str, known: int) -> TableVersion | None:
    """Return the newest version of a table, looked for from one on that is known.

    None where the log's files do not tell it: the checksum is missing or does not hold all, the table has gone or begun anew, many commits
    came behind the known one, or the newest lie elsewhere.
    """
    fs, path = file_system(uri)
    log = f"{path}/_delta_log"
    newest = next((number for number in range(known, known + _MOST_READ) if not fs.exists(f"{log}/{number + 1:020d}.json")), None)
    try:
        if newest is None or not fs.exists(f"{log}/{newest:020d}.json"):
            return None
        told = json.loads(fs.cat_file(f"{log}/{newest:020d}.crc"))
        features = [*(told["protocol"].get("readerFeatures") or ()), *(told["protocol"].get("writerFeatures") or ())]
        if any(feature.startswith(_MANAGED_ELSEWHERE) for feature in features):
            return None
        schema = StructType.fromJson(json.loads(told["metadata"]["schemaString"]))
        return TableVersion(newest, schema, told["metadata"].get("configuration") or {}, int(told["tableSizeBytes"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None


def _commit_info(text: bytes) -> dict[str, Any]:
    # The other lines tell of files, and there may be thousands of them.
    line = next((line for line in text.splitlines() if line.startswith(b'{"commitInfo"')), b"{}")
    told: dict[str, Any] = json.loads(line).get("commitInfo", {})
    return told
