"""Metrics of flows through Airflow's own: StatsD, Datadog or OpenTelemetry, whatever ``[metrics]`` of Airflow's configuration sets."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable, Iterable
from typing import Any

from airflow.providers.common.compat.sdk import Stats, conf

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.look.lag import Lag
from airflow_cdc.model.look.lag_metrics import samples_of_lag
from airflow_cdc.model.report.metrics import MetricKind, Sample

_log = logging.getLogger(__name__)
_BACKENDS = ("statsd_on", "otel_on", "statsd_datadog_enabled")
_FLUSH_MILLISECONDS = 5000


def metrics_are_on() -> bool:
    """Return whether Airflow sends metrics anywhere."""
    return any(conf.getboolean("metrics", backend, fallback=False) for backend in _BACKENDS)


def send(lake_conn_id: str, samples: Callable[[], Iterable[Sample]]) -> None:
    """Send samples to Airflow's metrics, where these are on. It raises nothing: a metric must not fail a task that did its work.

    :param lake_conn_id: connection of the lake, the metrics' label ``lake``.
    :param samples: called only where metrics are on.
    """
    try:
        if not metrics_are_on():
            return
        _configure()
        for sample in samples():
            name, tags = sample.metric.name, sample.labels(lake_conn_id)
            if sample.metric.kind is MetricKind.COUNTER:
                Stats.incr(name, int(sample.value), tags=tags)
            else:
                Stats.gauge(name, sample.value, tags=tags)
        _flush()
    except Exception as error:  # noqa: BLE001 - as promised above.
        _log.warning("Metrics of %s were not sent: %s: %s", lake_conn_id, type(error).__name__, error)


def send_lag(archive_conn_id: str, lake_conn_id: str, tables: Iterable[str]) -> None:
    """Look for the lag of the flows that globs match, and send it; without metrics it does not look."""

    def samples() -> Iterable[Sample]:
        archive, lake = CdcArchiveHook(archive_conn_id), CdcLakeHook(lake_conn_id)
        globs = tuple(tables)
        _, behind = archive.lag(lake, globs)
        return _of_lag(lake, globs, behind)

    send(lake_conn_id, samples)


def send_known_lag(lake: CdcLakeHook, tables: Iterable[str], behind: dict[str, Lag]) -> None:
    """Send a lag that was looked for.

    :param behind: the lag of the flows that are behind.
    """
    send(lake.conn_id, lambda: _of_lag(lake, tuple(tables), behind))


def _of_lag(lake: CdcLakeHook, globs: tuple[str, ...], behind: dict[str, Lag]) -> Iterable[Sample]:
    return samples_of_lag((flow for flow in lake.flows() if matches_any(flow, globs)), behind)


def _configure() -> None:
    """Configure the metrics where Airflow has not.

    The process that runs triggers configures another copy of this module than the one that providers import (3.2 and 3.3), and
    ``dag.test`` none. Unconfigured, it drops everything without a word.
    """
    module: Any = sys.modules[getattr(Stats, "__module__", "")]
    if getattr(module, "_factory", "") is not None:
        return
    from airflow.sdk.observability.metrics import stats_utils

    Stats.initialize(
        factory=stats_utils.get_stats_factory(), export_legacy_names=conf.getboolean("metrics", "legacy_names_on", fallback=True)
    )


def _flush() -> None:
    """Hand OpenTelemetry's metrics over now: a task's process ends without the hook that would do so, mostly before a minute is over."""
    if not conf.getboolean("metrics", "otel_on", fallback=False):
        return
    from opentelemetry import metrics

    if flush := getattr(metrics.get_meter_provider(), "force_flush", None):
        flush(_FLUSH_MILLISECONDS)
