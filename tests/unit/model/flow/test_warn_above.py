"""The bounds that a flows file sets: each by its name, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.warn_above import WarnAbove


def bounds(value: Any) -> WarnAbove:
    return CdcFlow.from_mapping({"topic": "t", "warn_above": value}).warn_above


def test_what_is_not_set_has_its_default() -> None:
    assert CdcFlow(topic="t").warn_above == bounds({}) == WarnAbove()
    assert bounds({"rejected": 0.01, "schema_changes": None, "missing_offsets": 5}) == WarnAbove(
        rejected=0.01, schema_changes=None, missing_offsets=5
    )


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (0.01, "numbers by name"),
        ({"rejects": 0.01}, "numbers by name"),
        ({"rejected": 1.5}, "for rejected a share from 0 to 1"),
        ({"rejected": "1%"}, "for rejected a share"),
        ({"rows_not_found": -1}, "for rows_not_found a number from 0 on"),
        ({"rows_not_found": True}, "for rows_not_found a number"),
        ({"schema_changes": float("nan")}, "for schema_changes a number"),
    ],
)
def test_another_form_is_refused(value: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        bounds(value)
