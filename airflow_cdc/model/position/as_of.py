"""AsOf: a moment that a person asks for, as a position of the source's log or as a time."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position.position import EPOCH, commit_position, is_position, position_patterns

_TIME = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?")
_EPOCH_PATTERN = r"(@[1-9]\d*| \(epoch [1-9]\d* of the log\))?"
AS_OF_PATTERN = f"^(|({'|'.join(position_patterns())}){_EPOCH_PATTERN}|{_TIME.pattern})$"
"""JSON schema pattern of a position, a time, or an empty field, as browsers read it."""
_IN_EPOCH = re.compile(r"(?P<position>.+?)(@(?P<short>[1-9]\d*)| \(epoch (?P<long>[1-9]\d*) of the log\))")
_FRACTION = re.compile(r"\.(\d+)")


@dataclass(frozen=True)
class EpochSpan:
    """The range of one epoch of the source's log in an archive."""

    epoch: int
    """Number of the epoch; 0 is the first."""
    first: int
    """Lowest commit position, as the source has it."""
    last: int
    """Highest one."""
    since_ms: int | None = None
    """When the source committed the earliest event, in milliseconds since 1970; None where no event carries a time."""
    through_ms: int | None = None
    """As above, for the latest."""

    def __str__(self) -> str:
        """Return the epoch for people, numbered from 1."""
        times = "" if self.since_ms is None or self.through_ms is None else f" ({_iso(self.since_ms)} to {_iso(self.through_ms)})"
        return f"epoch {self.epoch + 1}: commits {self.first} to {self.last}{times}"


def _iso(milliseconds: int) -> str:
    return datetime.fromtimestamp(milliseconds / 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True)
class AsOf:
    """A position of the source's log, that transaction included, or a time."""

    text: str
    """The text as given."""
    time: datetime | None = None
    """In UTC; None for a position."""
    epoch: int | None = None
    """For a position: number of the epoch of the log that it names, 0 is the first; None where it names none."""

    @property
    def milliseconds(self) -> int | None:
        """The time as Debezium writes it: milliseconds since 1970 in UTC; None for a position."""
        # In integers: a float of this size cannot represent every millisecond.
        return None if self.time is None else (self.time - datetime(1970, 1, 1, tzinfo=timezone.utc)) // timedelta(milliseconds=1)

    def commit(self, connector: str, flow: str, spans: Sequence[EpochSpan] = ()) -> int:
        """Return the commit position that the text means for a connector, in its epoch of the log.

        :param spans: the epochs of the flow's log, where there are several; a position must then name one of them.
        :raises ConfigurationError: when the text is not a position of the connector, when it names no epoch and there are several, or when
            it names an unknown epoch.
        """
        named = _IN_EPOCH.fullmatch(self.text)
        found = commit_position(named["position"] if named else self.text, connector)
        if found is None:
            raise ConfigurationError(
                f"Flow {flow}: {self.text!r} is no position of its connector {connector}.",
                next_step="Give the position as `airflow-cdc tables` shows it, or its commit number (docs/reference/cli.md).",
            )
        # As in `__cdc_position.commit`, where a later epoch's number is part of the value.
        written, commit = divmod(found, EPOCH)
        epoch = self.epoch if self.epoch is not None else written or None
        if epoch is None and len(spans) > 1:
            raise ConfigurationError(
                f"Flow {flow}: the source's log went back, and position {self.text!r} names no epoch. {_listed(spans)}",
                next_step=f"Name the epoch behind the position, such as {self.text}@1 or {self.text}@{len(spans)}; or give a time.",
            )
        if epoch and epoch not in {span.epoch for span in spans}:
            raise ConfigurationError(
                f"Flow {flow}: position {self.text!r} is of epoch {epoch + 1} of the source's log, which the flow's files do not hold."
                f" {_listed(spans) or 'Its log never went back.'}",
                next_step="Name another epoch: a flow numbers those of which it has events. Or give a time.",
            )
        return (epoch or 0) * EPOCH + commit


def _listed(spans: Sequence[EpochSpan]) -> str:
    return f"The archive holds {'; '.join(map(str, spans))}." if spans else ""


def check_range(first: AsOf | None, last: AsOf | None) -> None:
    """Refuse a range of two times that ends before it begins; positions compare only within their connector.

    :raises ConfigurationError: for such a range.
    """
    if first and last and first.time and last.time and first.time > last.time:
        raise ConfigurationError(f"The range from {first.text} to {last.text} is empty.", next_step="Give the earlier time first.")


def parse_as_of(text: str) -> AsOf:
    """Parse a position, or a time in ISO-8601, in UTC where it has no zone.

    :raises ConfigurationError: for any other text.
    """
    written = text.strip()
    named = _IN_EPOCH.fullmatch(written)
    if is_position(named["position"] if named else written):
        return AsOf(written, epoch=int(named["short"] or named["long"]) - 1 if named else None)
    try:
        if not _TIME.fullmatch(written):
            raise ValueError("neither")
        # Python 3.10 parses neither Z nor fractions of other lengths than 3 and 6.
        spelled = _FRACTION.sub(lambda found: f".{found[1][:6]:0<6}", re.sub(r"[Zz]$", "+00:00", written))
        moment = datetime.fromisoformat(spelled)
    except ValueError as error:
        raise ConfigurationError(
            f"{text!r} is neither a position nor a time.",
            next_step="Give a commit number, an LSN, file:pos, or a time such as 2026-11-21T09:30:00Z (docs/reference/cli.md).",
        ) from error
    return AsOf(written, (moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).astimezone(timezone.utc))
