"""What a table's log says of a commit, by its files alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.model.errors import StateTooNewError
from airflow_cdc.model.report.foreign_change import APPLICATION, UPKEEP
from airflow_cdc.model.state.commit_metadata import metadata_text
from airflow_cdc.pipeline.target.read_commits import read_commit

OURS = {APPLICATION: "shop.orders:0123456789ab", "microbatch": 7}


def committed(table: Path, metadata: str | None) -> str:
    log = table / "_delta_log"
    log.mkdir()
    info: dict[str, Any] = {"operation": "MERGE", "timestamp": 0, "userMetadata": metadata}
    log.joinpath(f"{3:020d}.json").write_text(json.dumps({"commitInfo": info}, separators=(",", ":")), encoding="utf-8")
    return str(table)


def test_our_commits_carry_the_format_of_their_metadata(tmp_path: Path) -> None:
    commit = read_commit(committed(tmp_path, metadata_text(OURS)), 3)
    assert commit
    assert (commit.metadata, commit.microbatch, commit.is_of("shop.orders")) == ({"format": 1, **OURS}, 7, True)


def test_our_commits_of_versions_without_formats_are_known_as_ours(tmp_path: Path) -> None:
    commit = read_commit(committed(tmp_path, json.dumps(OURS)), 3)
    assert commit
    assert (commit.microbatch, commit.is_of("shop.orders")) == (7, True)


@pytest.mark.parametrize("ours", [OURS, {UPKEEP: OURS[APPLICATION]}], ids=["merge", "upkeep"])
def test_a_commit_of_ours_in_a_newer_format_is_refused_by_table_version_and_flow(tmp_path: Path, ours: dict[str, Any]) -> None:
    table = committed(tmp_path, json.dumps({**ours, "format": 2}))
    with pytest.raises(StateTooNewError) as raised:
        read_commit(table, 3)
    assert f"The commit metadata of flow shop.orders ({table}, version 3) has format 2" in raised.value.message


@pytest.mark.parametrize("theirs", [{"format": 2}, {"format": "parquet", "microbatch": None}, ["format"], 3])
def test_a_format_in_the_metadata_of_others_is_none_of_ours(tmp_path: Path, theirs: Any) -> None:
    commit = read_commit(committed(tmp_path, json.dumps(theirs)), 3)
    assert commit
    assert (commit.operation, commit.application) == ("MERGE", "")


RENAMED = {"airflow_cdc.renamed_columns": '{"a.b": "c"}'}


def change_of(folder: Path, operation: str, parameters: dict[str, str], *, properties: dict[str, str] | None = None) -> bool:
    """Return whether a commit without files is a change."""
    metadata = [] if properties is None else [{"metaData": {"schemaString": "{}", "configuration": properties}}]
    lines = [{"commitInfo": {"operation": operation, "operationParameters": parameters}}, *metadata]
    log = folder / "_delta_log"
    log.mkdir()
    log.joinpath(f"{3:020d}.json").write_text("\n".join(json.dumps(line, separators=(",", ":")) for line in lines), encoding="utf-8")
    commit = read_commit(str(folder), 3)
    assert commit
    return commit.changes_rows


@pytest.mark.parametrize(
    ("operation", "parameters", "properties", "expected"),
    [
        ("RENAME COLUMN", {"oldColumnPath": "`a.b`", "newColumnPath": "c"}, RENAMED, False),
        ("RENAME COLUMN", {"oldColumnPath": "`a.b`", "newColumnPath": "d"}, RENAMED, True),
        ("RENAME COLUMN", {"oldColumnPath": "a", "newColumnPath": "c"}, {}, True),
        ("SET TBLPROPERTIES", {"properties": '{"airflow_cdc.keys":"[1]"}'}, {}, True),
        ("UNSET TBLPROPERTIES", {"properties": '["airflow_cdc.mode"]', "ifExists": "true"}, {}, True),
        ("SET TBLPROPERTIES", {"properties": '{"airflow_cdc.renamed_columns":"{}"}'}, {}, False),
        ("CREATE TABLE", {"properties": '{"airflow_cdc.keys":"[1]"}'}, {}, False),
        ("ADD COLUMN", {}, {}, False),
        ("REPLACE TABLE", {}, {}, True),
        ("MERGE", {}, None, False),
    ],
)
def test_a_commit_without_files_may_change_what_rows_mean(
    operation: str, parameters: dict[str, str], properties: dict[str, str] | None, expected: bool, tmp_path: Path
) -> None:
    assert change_of(tmp_path, operation, parameters, properties=properties) is expected
