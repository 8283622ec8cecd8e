"""The lag of flows as metrics."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from airflow_cdc.model.look.lag import Lag
from airflow_cdc.model.report.metrics import LAG_SECONDS, PENDING_BYTES, PENDING_FILES, Sample


def samples_of_lag(flows: Iterable[str], behind: Mapping[str, Lag]) -> Iterator[Sample]:
    """Yield the gauges of the lag.

    A flow that is not behind is set to 0: a gauge keeps its last value, so one that is left out would stay behind for ever. An unknown age
    has no value.

    :param flows: all flows that were asked about.
    :param behind: the lag of those that are behind.
    """
    for flow in sorted({*flows, *behind}):
        lag = behind.get(flow, Lag())
        yield Sample(PENDING_FILES, flow, lag.files)
        yield Sample(PENDING_BYTES, flow, lag.bytes)
        if lag.seconds is not None:
            yield Sample(LAG_SECONDS, flow, lag.seconds)
