"""AsOf: the moment in the source's life that a person asks for, as a position of its log or as a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position import POSITION_PATTERNS, commit_position, is_position

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
AS_OF_PATTERN = f"^(|{'|'.join((*POSITION_PATTERNS, _TIME.pattern))})$"
"""What a form takes for a position or a time, or for nothing told; as JSON schema and browsers read it."""
_FRACTION = re.compile(r"\.(\d+)")


@dataclass(frozen=True)
class AsOf:
    """A position of the source's log, that transaction included, or a time."""

    text: str
    """As it was written."""
    time: datetime | None = None
    """In UTC; None for a position."""

    @property
    def milliseconds(self) -> int | None:
        """The time as Debezium writes it: since 1970 in UTC; None for a position."""
        # In whole numbers: a float of this size does not hold every millisecond.
        return None if self.time is None else (self.time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)

    def commit(self, connector: str, flow: str) -> int:
        """Return the commit position that a connector means by the text.

        :raises ConfigurationError: when the connector spells no position so.
        """
        found = commit_position(self.text, connector)
        if found is None:
            raise ConfigurationError(
                f"Flow {flow}: {self.text!r} is no position of its connector {connector}.",
                next_step="Give the commit number as `airflow-cdc tables` shows it, or the source's own spelling (docs/reference/cli.md).",
            )
        return found


def check_range(first: AsOf | None, last: AsOf | None) -> None:
    """Refuse a range of two times that ends before it begins; of positions only their connector tells.

    :raises ConfigurationError: for such a range.
    """
    if first and last and first.time and last.time and first.time > last.time:
        raise ConfigurationError(f"The range from {first.text} to {last.text} is empty.", next_step="Give the earlier time first.")


def parse_as_of(text: str) -> AsOf:
    """Read a position, or a time in ISO-8601: with its zone, or in UTC.

    :raises ConfigurationError: for any other text.
    """
    written = text.strip()
    if is_position(written):
        return AsOf(written)
    try:
        if not _TIME.fullmatch(written):
            raise ValueError("neither")
        # Python 3.10 reads neither Z nor fractions of another length than 3 and 6.
        spelled = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", re.sub(r"[Zz]$", "+00:00", written))
        moment = datetime.fromisoformat(spelled)
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is neither a position nor a time.",
            next_step="Give a commit number, an LSN, file:pos, or a time such as 2026-11-21T09:30:00Z (docs/reference/cli.md).",
        ) from error
    return AsOf(written, (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc))
