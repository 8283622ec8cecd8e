"""Metrics as OpenMetrics text: read back by a strict reader they are what was written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.report.metrics import EVENTS, LAG_SECONDS, METRICS, PENDING_BYTES, Sample
from airflow_cdc.model.report.open_metrics import open_metrics
from tests.support.open_metrics import read_open_metrics

SAMPLES = [
    Sample(PENDING_BYTES, "b", 2**40),
    Sample(EVENTS, "a", 3, "merged"),
    Sample(LAG_SECONDS, "a", 0.1),
    Sample(EVENTS, "b", 0, "stale"),
]

TEXT = """\
# TYPE cdc_flow_events counter
# HELP cdc_flow_events Records read of the flow, by what became of them.
cdc_flow_events_total{flow="a",lake="/lake",outcome="merged"} 3
cdc_flow_events_total{flow="b",lake="/lake",outcome="stale"} 0
# TYPE cdc_flow_lag_seconds gauge
# UNIT cdc_flow_lag_seconds seconds
# HELP cdc_flow_lag_seconds Age of the last applied event's commit in the source while anything is pending, 0 otherwise.
cdc_flow_lag_seconds{flow="a",lake="/lake"} 0.1
# TYPE cdc_flow_pending_bytes gauge
# UNIT cdc_flow_pending_bytes bytes
# HELP cdc_flow_pending_bytes Bytes of the archived files that are not applied.
cdc_flow_pending_bytes{flow="b",lake="/lake"} 1099511627776
# EOF
"""


def test_each_metrics_values_stand_together_behind_its_type_unit_and_meaning() -> None:
    assert open_metrics(SAMPLES, "/lake") == TEXT
    assert open_metrics([], "/lake") == "# EOF\n"


names = st.text('ab"\\\n ={},é', max_size=6)
samples = st.builds(Sample, st.sampled_from(METRICS), names, st.integers(0, 10**15) | st.floats(0, 1e12), names)


@given(st.lists(samples, unique_by=lambda sample: (sample.metric.name, sample.flow, sample.part if sample.metric.part else "")), names)
def test_whatever_flows_and_lakes_are_called_a_reader_gets_back_what_was_written(written: list[Sample], lake: str) -> None:
    expected: dict[str, dict[frozenset[tuple[str, str]], float]] = {}
    for sample in written:
        labels = frozenset(sample.labels(lake).items())
        expected.setdefault(sample.metric.name.replace(".", "_"), {})[labels] = pytest.approx(sample.value)
    assert read_open_metrics(open_metrics(written, lake)) == expected


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("# EOF\n", ""),
        ("# EOF\n", "# EOF"),
        ("_total", ""),
        ("lag_seconds seconds", "lag_seconds bytes"),
        (" 0.1\n", " 0.1\n\n"),
        ('lake="/lake"', 'lake="/la"ke"'),
        ('"b"', '"a"'),
        ("outcome=", "flow="),
        ('"stale"} 0', '"stale"} -1'),
    ],
)
def test_the_reader_refuses_what_the_format_does_not_allow(old: str, new: str) -> None:
    text = TEXT.replace(old, new).replace('"stale"', '"merged"') if new == '"a"' else TEXT.replace(old, new)
    with pytest.raises(AssertionError):
        read_open_metrics(text)
