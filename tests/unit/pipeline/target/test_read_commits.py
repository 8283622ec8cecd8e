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
