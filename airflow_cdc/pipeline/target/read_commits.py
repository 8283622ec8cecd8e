"""Read a Delta table's newest commits from the log's files; Spark would start jobs for the same facts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from airflow_cdc.model.report.foreign_change import INTENDED, TableCommit
from airflow_cdc.model.state.commit_metadata import metadata_of
from airflow_cdc.pipeline.spark.storage import file_system
from airflow_cdc.pipeline.target.table_properties import KEYS_PROPERTY, MODE_PROPERTY, RENAMED_PROPERTY, SCD_COLUMNS_PROPERTY

_MOST_READ = 20
_SETS_PROPERTIES = ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES")
_FROZEN = (KEYS_PROPERTY, MODE_PROPERTY, SCD_COLUMNS_PROPERTY)


def commits_behind(uri: str, version: int) -> Iterator[dict[str, Any]]:
    """Yield the commits after a version, ascending: ``version``, ``userMetadata``, ``operationMetrics``.

    Stops at the last commit, at a log that cannot be read, and after a fixed number; for anything beyond, read the table's history.
    """
    for number in range(version + 1, version + 1 + _MOST_READ):
        try:
            text = _read(uri, number)
        except OSError:
            return
        if text is None:
            return
        info = _commit_info(text)
        yield {"version": number, "userMetadata": info.get("userMetadata"), "operationMetrics": info.get("operationMetrics")}


def read_commit(uri: str, version: int) -> TableCommit | None:
    """Return a commit from its log file; None where the log does not have the file, or no longer has it.

    :raises OSError: when the store fails: a commit that could not be read must not pass for a missing one.
    """
    text = _read(uri, version)
    if text is None:
        return None
    info = _commit_info(text)
    by = info.get("userName") or info.get("userId") or info.get("engineInfo")
    commit = commit_of(uri, version, {**info, "by": by, "at_millis": info.get("timestamp")})
    properties = _properties(text)
    is_recorded = properties is not None and _follows_source(commit.parameters, properties)
    return replace(commit, has_new_data=_has_new_data(text), has_new_metadata=properties is not None, is_recorded=is_recorded)


def commit_of(uri: str, version: int, fields: Mapping[str, Any]) -> TableCommit:
    """Return a commit from its fields in a log or a history, under Delta's names, plus ``by`` and ``at_millis``.

    :raises StateTooNewError: when a newer version of airflow-cdc made it.
    """
    text = str(fields.get("userMetadata") or "")
    parameters = fields.get("operationParameters") or {}
    return TableCommit(
        version,
        operation=fields.get("operation") or TableCommit.operation,
        parameters=parameters,
        metadata=metadata_of(text, table=uri, version=version),
        is_intended=INTENDED in text,
        at_millis=fields.get("at_millis"),
        by=fields.get("by"),
        unfreezes=fields.get("operation") in _SETS_PROPERTIES and any(name in str(parameters.get("properties")) for name in _FROZEN),
    )


def has_log(uri: str) -> bool:
    """Return whether a Delta table exists."""
    fs, path = file_system(uri)
    return bool(fs.exists(f"{path}/_delta_log"))


def has_commit(uri: str, version: int) -> bool:
    """Return whether a table's log has the file of a commit.

    :raises OSError: when the store fails.
    """
    fs, path = file_system(uri)
    return bool(fs.exists(_file_of(path, version)))


def _file_of(path: str, version: int) -> str:
    return f"{path}/_delta_log/{version:020d}.json"


def _read(uri: str, version: int) -> bytes | None:
    fs, path = file_system(uri)
    try:
        text: bytes = fs.cat_file(_file_of(path, version))
    except FileNotFoundError:
        return None
    return text


def _commit_info(text: bytes) -> dict[str, Any]:
    # The other lines describe files, and there may be thousands of them.
    line = next((line for line in text.splitlines() if line.startswith(b'{"commitInfo"')), b"{}")
    info: dict[str, Any] = json.loads(line).get("commitInfo", {})
    return info


def _has_new_data(text: bytes) -> bool:
    """Return whether a commit changes data: rewrites such as OPTIMIZE mark their files as unchanged."""
    lines = (line for line in text.splitlines() if line.startswith((b'{"add"', b'{"remove"')))
    # Delta reads a missing mark as a change.
    return any(next(iter(json.loads(line).values())).get("dataChange", True) for line in lines)


def _properties(text: bytes) -> dict[str, str] | None:
    """Return the table's properties behind a commit; None where it sets neither properties nor the schema."""
    line = next((line for line in text.splitlines() if line.startswith(b'{"metaData"')), None)
    return None if line is None else dict(json.loads(line)["metaData"].get("configuration") or {})


def _follows_source(parameters: Mapping[str, Any], properties: Mapping[str, str]) -> bool:
    """Return whether a commit renames a column as the flow has recorded it, in the properties, before."""
    # Names with a dot are quoted.
    old, new = (str(parameters.get(name)).strip("`") for name in ("oldColumnPath", "newColumnPath"))
    recorded: dict[str, str] = json.loads(properties.get(RENAMED_PROPERTY, "{}"))
    return recorded.get(old) == new
