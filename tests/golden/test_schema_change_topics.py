"""A capture whose events carry no schema, typed by its schema-change topic, against the same events with their schemas."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.pipeline.survey.schema_changes import SchemaChanges
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply

pytestmark = pytest.mark.both_engines

CAPTURE = Path(__file__).parent / "captures/maria_types_precise"

EVOLVED = "mdb.shop.evolve"
"""``ALTER TABLE evolve MODIFY c decimal(20,4)``: the event does not show which scale its base64 digits have."""
UNDECLARED = {EVOLVED: ("c: string / decimal(20,4)",)}
AS_TEXT = {EVOLVED: CdcFlow(EVOLVED, on_unknown_types=OnUnknownTypes.TEXT)}


@pytest.mark.parametrize(
    "tables",
    [
        pytest.param(("*.typ", "*.pair"), id="every type", marks=pytest.mark.deep),
        pytest.param(("*.acct", "*.dflt", "*.evolve", "*.gen", "*.nn", "*.nopk", "*.odd_table", "*.trunc1"), marks=pytest.mark.deep),
    ],
)
def test_bare_events_beside_their_schema_change_topic_give_the_tables_that_events_with_schemas_give(
    tables: tuple[str, ...], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    for form in ("bare", "schema"):
        report = apply(CAPTURE / "archive" / form, tmp_path / form, tables=tables, flows=AS_TEXT)
        assert sum(flow.events.rejected for flow in report.flows) == 0

    found = compare_lakes(spark, str(tmp_path / "bare"), str(tmp_path / "schema"))

    assert len(found.tables) == len(tables)
    assert {table.flow: table.schema for table in found.tables if table.schema} == {
        flow: schema for flow, schema in UNDECLARED.items() if f"*.{flow.rsplit('.', 1)[-1]}" in tables
    }
    assert [table for table in found.tables if table.only_left or table.only_right] == []


@pytest.mark.deep
def test_a_column_whose_scale_changed_stops_the_flow_of_bare_events(apply: Apply, tmp_path: Path) -> None:
    report = apply(CAPTURE / "archive/bare", tmp_path / "lake", tables=("*.evolve",), may_fail=True)
    (error,) = (flow.error for flow in report.flows)
    assert error is not None
    assert error["type"] == "TypesUnknownError"
    assert re.findall(r"^  (\w+): ", error["message"], re.MULTILINE) == ["c"]


def test_events_with_schemas_do_not_ask_for_the_topic(apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_changes: SchemaChanges) -> dict[str, object]:
        raise AssertionError("read")

    monkeypatch.setattr(SchemaChanges, "_read", refuse)

    report = apply(CAPTURE / "archive/schema", tmp_path / "lake", tables=("*.pair",))

    assert "mdb" in report.control_topics
    assert report.flows[0].events.rejected == 0
