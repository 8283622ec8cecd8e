"""Read what a Delta table's newest commits tell of themselves from the log's files: Spark would start jobs to tell the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from airflow_cdc.pipeline.storage import file_system

_MOST_READ = 20


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


def _commit_info(text: bytes) -> dict[str, Any]:
    # The other lines tell of files, and there may be thousands of them.
    line = next((line for line in text.splitlines() if line.startswith(b'{"commitInfo"')), b"{}")
    told: dict[str, Any] = json.loads(line).get("commitInfo", {})
    return told
