"""Samples as OpenMetrics text, which Prometheus scrapes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from airflow_cdc.model.report.metrics import METRICS, MetricKind, Sample

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


def open_metrics(samples: Iterable[Sample], lake: str) -> str:
    """Return samples as one exposition: each metric's once, with its type, unit and meaning before its values, and the end marked.

    :param lake: value of the label ``lake``.
    """
    by_metric: dict[str, list[Sample]] = {}
    for sample in samples:
        by_metric.setdefault(sample.metric.name, []).append(sample)
    lines = [line for metric in METRICS for line in _family(by_metric.get(metric.name, ()), lake)]
    return "\n".join([*lines, "# EOF", ""])


def _family(samples: Iterable[Sample], lake: str) -> Iterator[str]:
    for number, sample in enumerate(samples):
        metric = sample.metric
        name = metric.name.replace(".", "_")
        if number == 0:
            yield f"# TYPE {name} {metric.kind.value}"
            if metric.unit:
                yield f"# UNIT {name} {metric.unit}"
            yield f"# HELP {name} {_escaped(metric.meaning)}"
        labels = ",".join(f'{label}="{_escaped(value)}"' for label, value in sample.labels(lake).items())
        # The format distinguishes a counter's value from its family by this ending.
        yield f"{name}{'_total' if metric.kind is MetricKind.COUNTER else ''}{{{labels}}} {_number(sample.value)}"


def _number(value: float) -> str:
    return str(int(value)) if value == int(value) else repr(float(value))


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")
