"""The job's report: where nobody has made a folder, and where somebody looks while it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_cdc.jobs import write_report as module
from airflow_cdc.jobs.write_report import write_report


@pytest.mark.parametrize("prefix", ["", "file://"])
def test_the_reports_folder_is_made(tmp_path: Path, prefix: str) -> None:
    path = tmp_path / "lake" / "_cdc" / "reports" / "r.json"
    for ok in (True, False):
        write_report(f"{prefix}{path}", {"ok": ok})
        assert json.loads(path.read_text()) == {"ok": ok}
    assert [found.name for found in path.parent.iterdir()] == ["r.json"]


class _Distributed(LocalFileSystem):
    """As HDFS: its rename refuses to replace, and a file can be seen while it is written."""

    protocol = "hdfs"

    def mv(self, path1: str, path2: str, **_: Any) -> None:
        if Path(path2).exists():
            raise FileExistsError(path2)
        Path(path1).rename(path2)

    def pipe_file(self, path: str, value: bytes, **_: Any) -> None:
        assert not path.endswith("r.json"), "written in place"
        Path(path).write_bytes(value)


def test_no_part_of_a_report_is_ever_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "lake" / "r.json"
    monkeypatch.setattr(module, "file_system", lambda uri: (_Distributed(skip_instance_cache=True), uri))
    for ok in (True, False):
        write_report(str(path), {"ok": ok})
        assert json.loads(path.read_text()) == {"ok": ok}
    assert [found.name for found in path.parent.iterdir()] == ["r.json"]


def test_a_report_is_written_to_any_store_that_fsspec_knows() -> None:
    write_report("memory://lake/_cdc/reports/r.json", {"ok": True})
    with fsspec.open("memory://lake/_cdc/reports/r.json") as file:
        assert json.load(file) == {"ok": True}
