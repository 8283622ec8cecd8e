"""Which archived files a Dag run takes, by when they were archived: one rule for the sensor that looks and the merge that follows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from airflow_cdc.model.archive.interval import Interval, parse_interval

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_BACKFILL, _SCHEDULED = "backfill", "scheduled"
"""Types of a Dag run."""


def interval_of_run(context: Context, *, since: str | None, until: str | None, by_data_interval: bool) -> Interval:
    """Return when the files were archived that a run takes.

    Times that are given go first. Else, with ``by_data_interval``, a backfill's run takes the files of its data interval, a scheduled one
    all from before the interval's end, and any other run whatever waits.

    :param since: a time in ISO 8601, UTC where it has no offset.
    :param until: the first moment behind it.
    :raises ConfigurationError: when a time cannot be read.
    """
    given = parse_interval(since, until)
    if given != Interval() or not by_data_interval:
        return given
    run = context["dag_run"]
    # The attributes: the context of a run without a logical date has no such keys.
    begin, end = run.data_interval_start, run.data_interval_end
    if begin is None or end is None:
        return given
    kind = getattr(run.run_type, "value", run.run_type)
    if kind == _BACKFILL and begin < end:
        return Interval(begin, end)
    # Behind a scheduled run nothing may be left that came late. Of one by hand its date says when somebody pressed the button.
    return Interval(until=end) if kind == _SCHEDULED else Interval()
