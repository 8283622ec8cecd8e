"""Quarantined records in groups: one for each flow, reason and column, counted whole."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.upkeep.quarantine_groups import quarantine_groups, records_of
from airflow_cdc.print_quarantine import print_groups
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records

ODD = "a is INT, seen: b"
"""A column that is called like the beginning of a detail."""


@pytest.mark.deep
def test_records_are_counted_by_reason_and_column_with_the_first_of_each(
    spark: SparkSession, apply: Apply, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    fits = {"age": "1", "paid": "2.50", ODD: "3"}
    wrong = [{"age": f"old, column paid is INT, seen: {place}"} for place in range(1_500)]
    wrong += [{"paid": "3.333"}, {"paid": "much"}, {ODD: "none"}]
    # Were most of the events so, the flow would stop.
    good: list[dict[str, str]] = [{}] * 1_600
    rows = [{"id": place, **fits, **odd} for place, odd in enumerate([{}, *wrong, *good])]
    events = [sqlserver("c", commit=place + 1, after=row) for place, row in enumerate(rows)]
    nameless = sqlserver("c", commit=9_999, after={**rows[0], "id": None}, key={"id": None})
    write_records(tmp_path / "archive" / "1.jsonl", numbered([*events, nameless]))
    flow = CdcFlow(TOPIC, columns={"age": "INT", "paid": "DECIMAL(10,2)", ODD: "INT"})
    lake = tmp_path / "lake"
    apply(tmp_path / "archive", lake, flows={TOPIC: flow})

    groups = quarantine_groups(spark, str(lake))
    found = [(group.flow, group.reason, group.column, group.records, group.example["line"]) for group in groups]
    misfit = "value_does_not_fit_column"
    assert found == [
        (TOPIC, misfit, "age", 1_500, 2),
        (TOPIC, misfit, "paid", 2, 1_502),
        (TOPIC, "missing_key", None, 1, 3_105),
        # The shortest name is taken where two could be meant.
        (TOPIC, misfit, "a", 1, 1_504),
    ]
    assert groups[1].example["detail"] == "column paid is DECIMAL(10,2), seen: 3.333"
    assert quarantine_groups(spark, str(lake), ["*.orders"]) == []

    print_groups(groups, str(lake), limit=1)
    printed = capsys.readouterr().out
    assert "(1,504 records, groups 1 of 4)" in printed
    assert "│ age    │   1,500 │ 1.jsonl:2 │ column age is INT, seen: old" in printed
    assert "--limit 4 shows all groups" in printed

    records, total = records_of(spark, str(lake), TOPIC, limit=4)
    assert ([record["line"] for record in records], total) == ([2, 3, 4, 5], 1_504)
    with pytest.raises(ConfigurationError, match=f"knows no flow unknown; it knows {TOPIC}"):
        records_of(spark, str(lake), "unknown")
