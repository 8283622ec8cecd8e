"""The archiving time in a file's folders, to the hour or the day.

As Kafka Connect's sinks and Hive name them: ``year=2026/month=11/day=22/hour=14``, ``dt=2026-11-22/hour=14``, ``2026/11/22/14``,
``2026-11-22``, ``20261122``. Read as UTC.
"""

from __future__ import annotations

import re
from datetime import datetime, timezone

_UNITS = ("year", "month", "day", "hour", "minute")
_DATE = re.compile(r"((?:19|20)\d{2})-?(\d{2})-?(\d{2})(?:[T_ -]?(\d{2})(?:[:-]?(\d{2}))?)?")
_DATE_NAMES = ("dt", "date", "ds", "day", "time")
_YEAR, _NUMBER = re.compile(r"(?:19|20)\d{2}"), re.compile(r"\d{1,2}")


def time_in_path(path: str) -> int | None:
    """Return the start of the period that a file's folders name, in seconds since 1970; None where they name none."""
    folders = path.split("/")[:-1]
    named = {name.lower(): value for name, sign, value in (folder.partition("=") for folder in folders) if sign}
    for parts in (_by_unit(named), _by_date(named), _bare(folders)):
        if parts:
            try:
                return int(datetime(*parts, tzinfo=timezone.utc).timestamp())  # type: ignore[misc,arg-type]
            except ValueError:
                # Such as a month 13.
                continue
    return None


def _by_unit(named: dict[str, str]) -> list[int]:
    parts: list[int] = []
    for unit in _UNITS:
        value = named.get(unit, "")
        if not (_YEAR if unit == "year" else _NUMBER).fullmatch(value):
            break
        parts.append(int(value))
    return _whole(parts)


def _by_date(named: dict[str, str]) -> list[int]:
    found = next((match for name in _DATE_NAMES if (match := _DATE.fullmatch(named.get(name, "")))), None)
    if not found:
        return []
    parts = [int(part) for part in found.groups() if part]
    hour = named.get("hour", named.get("hr", ""))
    return [*parts, int(hour)] if len(parts) == 3 and _NUMBER.fullmatch(hour) else parts


def _bare(folders: list[str]) -> list[int]:
    for place, folder in enumerate(folders):
        if match := _DATE.fullmatch(folder):
            return [int(part) for part in match.groups() if part]
        if _YEAR.fullmatch(folder):
            parts = [int(folder)]
            for below in folders[place + 1 : place + len(_UNITS)]:
                if not _NUMBER.fullmatch(below):
                    break
                parts.append(int(below))
            if len(parts) > 1:
                return _whole(parts)
    return []


def _whole(parts: list[int]) -> list[int]:
    """Return the parts with the first month and day where the folders name none."""
    return parts + [1] * (3 - len(parts)) if parts and len(parts) < 3 else parts
