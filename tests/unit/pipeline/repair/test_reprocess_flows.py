"""Many flows are read again in one application: one that fails stops no other, and doing it again does what is left."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.model.report.batch_report import RowCounts
from airflow_cdc.model.report.reprocessing import FlowReprocess, ReprocessReport
from airflow_cdc.pipeline.repair.reprocess_flows import FlowsAgain, replay_flows, reprocess_flows
from airflow_cdc.pipeline.target.target_table import latest_version
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records

ORDERS = "server1.testDB.dbo.orders"
HISTORY = {ORDERS: CdcFlow(ORDERS, stored_as_scd_type=2)}


@pytest.mark.deep
def test_a_flow_that_fails_stops_no_other_and_a_retry_does_what_is_left(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    events = [sqlserver("c", commit=number, after={"id": number}, topic=topic) for number in (1, 2) for topic in (TOPIC, ORDERS)]
    write_records(archive / "1.jsonl", [*numbered(events), "{half a line"])
    apply(archive, lake)
    for topic in (TOPIC, ORDERS):
        spark.sql(f"DELETE FROM delta.`{lake}/{topic}` WHERE id = 2")
    seen: list[str] = []
    run = FlowsAgain(spark, str(archive), str(lake), ("*.customers", ORDERS), parse_as_of("2023-11-14T22:13:20.002Z"), progress=seen.append)

    def again(**settings: object) -> dict[str, FlowReprocess]:
        report = reprocess_flows(FlowsAgain(**{**vars(run), **settings}))  # type: ignore[arg-type]
        assert ReprocessReport.from_json(report.to_json()) == report
        return {flow.flow: flow for flow in report.flows}

    first = again(flows=HISTORY)
    assert first[TOPIC].rows == RowCounts(inserted=1)
    assert [batch.microbatch for batch in first[TOPIC].done] == [2]
    assert (first[ORDERS].error or {})["type"] == "ConfigurationError"
    version = latest_version(spark, f"{lake}/{TOPIC}")
    second = again()
    assert (second[TOPIC].done, second[TOPIC].rows, second[ORDERS].rows) == ((), RowCounts(), RowCounts(inserted=1))
    assert latest_version(spark, f"{lake}/{TOPIC}") == version
    assert f"{ORDERS}: done by microbatch 2" in seen

    # A name that matches nothing stops everything: silence would look like success.
    with pytest.raises(ConfigurationError, match=r"knows no flow \*\.odrers"):
        again(tables=("*", "*.odrers"))
    replayed = replay_flows(FlowsAgain(spark, str(archive), str(lake)), ["missing_key"])
    assert replayed.ok
    assert {(flow.found, flow.done) for flow in replayed.flows} == {(None, ())}
