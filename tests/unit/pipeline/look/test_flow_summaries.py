"""A lake's flows are summarised from their state and their tables' logs."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.position.position import EPOCH, Position
from airflow_cdc.model.state.archived_schema import ArchivedSchema
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.pipeline.look.flow_summaries import summarize_natively
from airflow_cdc.pipeline.look.native_table import NeedsSparkError
from tests.support.small_lakes import FLOW, field, our_properties, write_flow, write_table
from tests.support.surveys import ARCHIVE, FS, survey
from tests.unit.model.state.golden import write_lake


def test_a_summary_has_what_the_state_and_the_table_hold(tmp_path: Path) -> None:
    position = Position(2 * EPOCH + 7, 8, 1)
    write_flow(tmp_path, microbatches=2, through=position)
    stored = pa.table({"id": [1, 2], "__cdc_deleted": [False, True]})
    fields = [field("id", "long"), field("__cdc_deleted", "boolean")]
    write_table(tmp_path / FLOW, fields, [stored], properties=our_properties(["id"], TableMode.FLAGGED))
    assert ArchiveState(FS, str(tmp_path), ARCHIVE).add(survey(1, {f"{number}.jsonl": [FLOW] for number in (1, 2, 3)}))
    write_flow(tmp_path, "another")

    another, customers = summarize_natively(str(tmp_path))
    assert customers.to_json() == {
        "flow": FLOW,
        "table": f"{tmp_path}/{FLOW}",
        "rows": 1,
        "applied_position": {"0": "7/8/1 (epoch 3 of the log)"},
        "microbatches": 2,
        "pending_files": 1,
        "rejected": 2,
        "table_version": 0,
    }
    assert (customers.connector, customers.applied_through) == ("sqlserver", {"0": position})
    assert (another.flow, another.rows, another.table_version) == ("another", None, None)
    assert [each.flow for each in summarize_natively(str(tmp_path), ["server1*"])] == [FLOW]


def test_a_lake_that_is_not_there_has_no_flows(tmp_path: Path) -> None:
    assert summarize_natively(str(tmp_path / "none")) == []
    assert not (tmp_path / "none").exists()


def test_a_connector_is_known_where_the_events_name_one(tmp_path: Path) -> None:
    for flow, connector in ((FLOW, "sqlserver"), ("another", ""), ("pg.public.orders", "")):
        write_flow(tmp_path, flow, connector=connector)
    archive = ArchiveState(FS, str(tmp_path), ARCHIVE)
    assert archive.add(survey(1, {"1.jsonl": ["pg.public.orders"]}))
    archive.write_archived_schema(ArchivedSchema("pg.public.orders", 1, "postgresql", {}))
    found = {summary.flow: summary.connector for summary in summarize_natively(str(tmp_path))}
    assert found == {FLOW: "sqlserver", "another": None, "pg.public.orders": "postgresql"}


def test_a_table_on_another_store_is_left_to_spark(tmp_path: Path) -> None:
    write_lake(tmp_path)
    with pytest.raises(NeedsSparkError, match="s3://bucket/lake"):
        summarize_natively(str(tmp_path))
