"""The dashboard for Grafana asks for metrics and labels that there are, under each name that they come by."""

from __future__ import annotations

import re
from typing import Any

import pytest

from airflow_cdc.model.report.metrics import METRICS, MICROBATCHES, MetricKind
from tests.support.dashboard import DASHBOARD, queries

BY_NAME = {metric.name.removeprefix("cdc.flow."): metric for metric in METRICS}
SELECTOR = re.compile(r'\{__name__=~"\(airflow_\)\?cdc_flow_([a-z_]+?)(\(_total\)\?)?"((?:,\w+=~"\$\w+")*)\}')


@pytest.mark.parametrize(("title", "query"), queries().items())
def test_a_panel_asks_for_one_metric_by_all_its_names_and_by_labels_that_it_has(title: str, query: str) -> None:
    (found,) = SELECTOR.findall(query)
    metric = BY_NAME[found[0]]
    # Airflow's exporter keeps a counter's name, OpenTelemetry's and our own text end it with _total.
    assert bool(found[1]) is (metric.kind is MetricKind.COUNTER)
    assert bool(re.search(r"\b(rate|increase)\(", query)) is (metric.kind is MetricKind.COUNTER), title
    assert found[2] == ',lake=~"$lake",flow=~"$flow"'
    labels = {label.strip() for group in re.findall(r" by \(([^)]*)\)", query) for label in group.split(",")}
    assert labels <= {"lake", "flow", metric.part} - {""}


def test_every_metric_is_shown_and_panels_do_not_overlap() -> None:
    shown = {SELECTOR.findall(query)[0][0] for query in queries().values()}
    assert shown == {name for name, metric in BY_NAME.items() if metric is not MICROBATCHES}
    taken: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place: dict[str, Any] = panel["gridPos"]
        cells = {(x, y) for x in range(place["x"], place["x"] + place["w"]) for y in range(place["y"], place["y"] + place["h"])}
        assert not cells & taken, panel["title"]
        assert place["x"] + place["w"] <= 24
        taken |= cells
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"]) == len(queries())
