"""``airflow-cdc inspect``: what it prints of an archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.unit.cli.conftest import CLOSED_LATE, Run

pytestmark = CLOSED_LATE
ANN = {"id": 1, "name": "ann"}


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    write_records(folder / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    write_records(folder / "2.jsonl", numbered([sqlserver("u", commit=2, after={**ANN, "city": "x"})], 3))
    (folder / "3.parquet").write_bytes(b"PAR1")
    return folder


def test_topics_gaps_changes_and_unread_files_are_printed(archive: Path, run_alone: Run, no_spark: None) -> None:
    ended = run_alone("inspect", archive, "--samples")
    assert ended.code == 0
    lines = ended.stdout.splitlines()
    assert lines[0] == f"Archive {archive}: 3 files, 1 topics"
    assert any(f"{TOPIC} " in line and "sqlserver" in line and "0: 0–3" in line for line in lines)
    assert f"topic {TOPIC}, partition 0: offsets 1–2 are missing, between 1.jsonl and 2.jsonl" in lines
    assert f"topic {TOPIC}: from 2.jsonl on: added city" in lines
    assert "not read: 3.parquet: it is parquet" in lines
    assert any(line.startswith("to survey these by Spark: airflow-cdc apply") for line in lines)
    assert lines[-1].startswith(f'{TOPIC}: {{"topic"')


def test_the_document_has_every_topic(archive: Path, run_alone: Run, no_spark: None) -> None:
    document = run_alone("inspect", archive, "--json").document
    (topic,) = document["topics"]
    assert (topic["topic"], topic["records"], topic["missing"]) == (TOPIC, 2, 2)
    assert topic["changes"] == [{"file": "2.jsonl", "added": ["city"], "removed": [], "retyped": []}]
    assert document["unread"] == {"3.parquet": "it is parquet"}


def test_an_archive_that_is_not_there_is_a_usage_error(tmp_path: Path, run_alone: Run, no_spark: None) -> None:
    ended = run_alone("inspect", tmp_path / "nowhere")
    assert (ended.code, ended.stdout) == (2, "")
    assert "ArchiveNotFoundError" in ended.stderr
