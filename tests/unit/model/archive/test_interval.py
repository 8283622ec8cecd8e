"""When a file was archived, and which interval it belongs to."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile, classify
from airflow_cdc.model.archive.interval import Interval, parse_interval
from airflow_cdc.model.archive.time_in_path import time_in_path
from airflow_cdc.model.errors import ConfigurationError


def at(*parts: int) -> int:
    return int(datetime(*parts, tzinfo=timezone.utc).timestamp())  # type: ignore[misc,arg-type]


@pytest.mark.parametrize(
    ("folders", "expected"),
    [
        ("topics/t/year=2026/month=11/day=22/hour=14", at(2026, 11, 22, 14)),
        ("topics/t/year=2026/month=1/day=2/hour=3/minute=5", at(2026, 1, 2, 3, 5)),
        ("t/year=2026/month=11", at(2026, 11, 1)),
        ("t/dt=2026-11-22/hour=14", at(2026, 11, 22, 14)),
        ("t/dt=2026-11-22/partition=7", at(2026, 11, 22)),
        ("t/date=20261122", at(2026, 11, 22)),
        ("t/ds=2026-11-22T14:30", at(2026, 11, 22, 14, 30)),
        ("t/2026/11/22/14", at(2026, 11, 22, 14)),
        ("2026-11-22/t", at(2026, 11, 22)),
        ("2026-11-22-14", at(2026, 11, 22, 14)),
        # no times: a month 13, a year alone, numbers, a partition
        ("t/year=2026/month=13", None),
        ("t/2026", None),
        ("t/11/22", None),
        ("t/partition=20", None),
        ("", None),
    ],
)
def test_the_folders_show_when_a_file_was_archived(folders: str, expected: int | None) -> None:
    assert time_in_path(f"{folders}/t+0+1.json") == expected


def archived(path: str, modified: float | None) -> int | None:
    (file,) = classify([(path, 1)], {path: modified}).files
    assert ArchivedFile.from_json(file.to_json()) == file
    return file.archived_at


def test_a_copy_keeps_the_time_of_its_folders_and_no_file_is_of_the_future() -> None:
    hour = at(2026, 11, 22, 14)
    path = "t/year=2026/month=11/day=22/hour=14/t+0+1.json"
    assert archived(path, hour + 86_400.5) == hour
    assert archived(path, None) == hour
    # Folders of a zone eight hours ahead.
    assert archived(path, hour - 8 * 3600 + 600.9) == hour - 8 * 3600 + 600
    assert archived("t/t+0+1.json", hour + 0.5) == hour
    assert archived("t/t+0+1.json", None) is None


def test_an_interval_begins_with_its_first_moment_and_ends_before_its_last() -> None:
    interval = parse_interval("2026-11-22T14:00:00Z", "2026-11-22T15:00:00+00:00")
    held = [interval.holds(ArchivedFile("f", 1, "t", modified=at(2026, 11, 22, 13, 59) + second)) for second in (59, 60, 3659, 3660)]
    assert held == [False, True, True, False]
    unknown = ArchivedFile("f", 1, "t")
    assert [each.holds(unknown) for each in (interval, parse_interval("2026-11-22", None), Interval())] == [False, False, True]


@pytest.mark.parametrize(
    ("since", "until", "message"),
    [
        ("yesterday", None, "since is 'yesterday'"),
        (None, "22.11.2026", "until is"),
        ("2026-11-22", "2026-11-22T00:00Z", "no time in between"),
    ],
)
def test_what_is_no_interval_stops_at_once(since: str | None, until: str | None, message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        parse_interval(since, until)
