"""RejectLimit: how many records of a flow a run may reject and still succeed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.report.apply_report import ApplyReport

_NEVER, _ANY = "never", "any"


@dataclass(frozen=True)
class RejectLimit:
    """The share of a flow's read records above which its rejects are too many; None: never."""

    share: float | None = None

    @classmethod
    def parse(cls, given: str | float) -> RejectLimit:
        """Parse a setting: ``never``, ``any``, or a share from 0 to 1, as a number or a text.

        :raises ConfigurationError: for anything else.
        """
        text = str(given).strip().lower()
        if text == _NEVER:
            return cls()
        try:
            share = 0.0 if text == _ANY else float(text)
        except ValueError:
            share = -1.0
        if isinstance(given, bool) or not 0 <= share <= 1:
            raise ConfigurationError(
                f"fail_on_rejects is {given!r}, expected {_NEVER!r}, {_ANY!r} or a share from 0 to 1.",
                next_step="Correct it: 0.01 allows one record in a hundred.",
            )
        return cls(share)

    def broken(self, report: ApplyReport) -> Iterator[str]:
        """Yield a line for each flow above the limit, and for each held topic with records that this run rejected.

        Per flow, because a small table that is wholly rejected would not show in the total.
        """
        for flow in report.flows:
            events = flow.events
            if self.share is not None and events.rejected > self.share * events.read:
                yield f"{flow.flow}: {events.rejected} of {events.read} records are in the quarantine"
        for topic in report.held_topics:
            if self.share is not None and topic.added and topic.is_refused:
                yield str(topic)
