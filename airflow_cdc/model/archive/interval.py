"""Interval: the range of archiving times by which files are chosen."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timezone

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.errors import ConfigurationError


@dataclass(frozen=True)
class Interval:
    """Files archived from one moment on and before another."""

    since: datetime | None = None
    """First moment included; None: from the beginning."""
    until: datetime | None = None
    """First moment excluded; None: to the end."""

    def holds(self, file: ArchivedFile) -> bool:
        """Return whether a file was archived in the interval. A file of unknown time is only in the unbounded one."""
        if self.since is None and self.until is None:
            return True
        if file.archived_at is None:
            return False
        at = datetime.fromtimestamp(file.archived_at, timezone.utc)
        return (self.since is None or self.since <= at) and (self.until is None or at < self.until)


def parse_interval(since: str | None, until: str | None) -> Interval:
    """Return the interval between two times in ISO 8601, in UTC where they have no offset.

    :raises ConfigurationError: when one of them is not a time, or they are not in order.
    """
    found = Interval(_moment("since", since), _moment("until", until))
    if found.since and found.until and found.since >= found.until:
        raise ConfigurationError(
            f"Files are asked for from {found.since.isoformat()} to {found.until.isoformat()}: there is no time in between.",
            next_step="Give the earlier time as since; until is the first moment behind it.",
        )
    return found


def _moment(name: str, text: str | None) -> datetime | None:
    if not text:
        return None
    try:
        # Python 3.10 does not parse Z.
        moment = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text.strip()))
    except ValueError as error:
        raise ConfigurationError(
            f"{name} is {text!r}, expected a time in ISO 8601.", next_step="Write it like 2026-11-22T14:00:00Z or 2026-11-22."
        ) from error
    return moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)
