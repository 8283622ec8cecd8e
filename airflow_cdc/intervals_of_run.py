"""The archived files that a Dag run takes, by archiving time: one rule for the sensor and the merge that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc.model.archive.interval import Interval, parse_interval

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_BACKFILL, _SCHEDULED = "backfill", "scheduled"
"""Dag run types."""


def interval_of_run(context: Context, *, since: str | None, until: str | None, by_data_interval: bool) -> Interval:
    """Return the archiving interval of the files that a run takes.

    Given times take precedence. Otherwise, with ``by_data_interval``, a backfill's run takes the files of its data interval, a scheduled
    run all from before the interval's end, and any other run all pending files.

    :param since: a time in ISO 8601, UTC where it has no offset.
    :param until: the first moment excluded.
    :raises ConfigurationError: when a time cannot be parsed.
    """
    given = parse_interval(since, until)
    if given != Interval() or not by_data_interval:
        return given
    run = context["dag_run"]
    # Attributes, because the context of a run without a logical date lacks these keys.
    begin, end = run.data_interval_start, run.data_interval_end
    if begin is None or end is None:
        return given
    kind = getattr(run.run_type, "value", run.run_type)
    if kind == _BACKFILL and begin < end:
        return Interval(begin, end)
    # A scheduled run must not leave late files behind. A manual run's date is only the time at which it was triggered.
    return Interval(until=end) if kind == _SCHEDULED else Interval()
