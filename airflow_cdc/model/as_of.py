"""AsOf: the moment in the source's life that a person asks for, as a position of its log or as a time."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position import commit_position, is_position

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
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


def parse_position(text: str) -> AsOf:
    """Read a position.

    :raises ConfigurationError: for any other text, a time too.
    """
    written = text.strip()
    if not is_position(written):
        raise ConfigurationError(f"{text!r} is no position.", next_step="Give a commit number, an LSN or file:pos (docs/reference/cli.md).")
    return AsOf(written)


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
