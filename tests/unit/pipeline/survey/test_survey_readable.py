"""A machine without Java: what needs Spark waits, file by file, and keeps nothing else from being applied."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.set_aside import UNREADABLE, look_again
from airflow_cdc.pipeline.spark.late_session import late_session
from airflow_cdc.pipeline.survey.survey_readable import survey_readable
from airflow_cdc.runtime.java_home import JavaNotFoundError
from tests.support.events import sqlserver, write_records


def without_java() -> Any:
    raise JavaNotFoundError


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    write_records(tmp_path / "good.jsonl", [sqlserver("c", commit=1, after={"id": 1}, offset=0)])
    write_records(tmp_path / "other.jsonl", [sqlserver("c", commit=1, after={"id": 1}, offset=0, topic="server.db.dbo.other")])
    with (tmp_path / "other.jsonl").open("a") as other:
        other.write('{"cut')
    return tmp_path


def test_a_file_that_needs_spark_is_set_aside_until_there_is_a_java(archive: Path) -> None:
    fs = LocalFileSystem()
    found = survey_readable(late_session(without_java), str(archive), list_archive(fs, str(archive)).files, natively=True)
    assert [file.path for file in found.files] == ["good.jsonl"]
    (aside,) = found.set_aside
    assert (aside.path, aside.reason) == ("other.jsonl", UNREADABLE)
    assert "only Spark reads it; Spark 4" in aside.detail
    assert "set JAVA_HOME" in aside.detail
    # The file stays as it is, and is looked at again all the same.
    assert [file.path for file in look_again(fs, str(archive), found.set_aside).changed] == ["other.jsonl"]


def test_a_run_that_is_wholly_spark_s_stops(archive: Path) -> None:
    with pytest.raises(JavaNotFoundError):
        survey_readable(late_session(without_java), str(archive), list_archive(LocalFileSystem(), str(archive)).files)
