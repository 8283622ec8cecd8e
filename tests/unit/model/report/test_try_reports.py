"""Which report is a task's last one."""

from __future__ import annotations

from pathlib import Path

import fsspec
import pytest

from airflow_cdc.model.report.try_reports import newest_report, number_of, report_name


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    (tmp_path / "_cdc" / "reports").mkdir(parents=True)
    return tmp_path


def newest(lake: Path, name: str) -> str | None:
    return newest_report(fsspec.filesystem("file"), str(lake), name)


def test_the_last_try_is_the_greatest_number_and_not_the_last_name_by_letters(lake: Path) -> None:
    for number in (9, 10, 2):
        (lake / report_name("a", number)).touch()
    assert newest(lake, report_name("a")) == report_name("a", 10)
    assert number_of(report_name("a", 10)) == 10


def test_another_tasks_reports_and_those_of_other_jobs_are_not_taken(lake: Path) -> None:
    (lake / report_name("b", 1)).touch()
    (lake / "_cdc/reports/0123456789abcdef.json").touch()
    (lake / report_name("a", 1).replace(".json", ".tmp")).touch()
    assert newest(lake, report_name("a")) is None


def test_without_a_folder_there_is_no_report(tmp_path: Path) -> None:
    assert newest(tmp_path, report_name("a")) is None


def test_a_name_without_a_place_for_the_try_means_itself(tmp_path: Path) -> None:
    name = "_cdc/reports/0123456789abcdef.json"
    assert newest(tmp_path, name) == name


def test_a_store_that_does_not_answer_is_no_absence(lake: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise OSError("connection reset")

    monkeypatch.setattr(type(fsspec.filesystem("file")), "ls", broken)
    with pytest.raises(OSError, match="connection reset"):
        newest(lake, report_name("a"))
