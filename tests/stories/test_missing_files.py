"""A transaction goes on in the next file while the applied one before it has left the archive."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnMissingFile
from tests.conftest import Apply
from tests.support.events import TOPIC, mongodb, sqlserver, write_records
from tests.support.tables import read_rows

ANN, BEN = ({"id": number, "name": name} for number, name in ((1, "ann"), (2, "ben")))
KEEP = {TOPIC: CdcFlow(TOPIC, on_missing_file=OnMissingFile.KEEP)}


def rows(spark: SparkSession, lake: Path) -> list[dict[str, Any]]:
    return read_rows(spark, str(lake), TOPIC).rows


@pytest.fixture
def shifted(apply: Apply, archive: Path, lake: Path) -> Path:
    """UPDATE t SET id = id + 1, of which the first half was applied; its file is returned, the other half waits."""
    write_records(archive / "0.jsonl", [sqlserver("c", commit=number, after=row, offset=number) for number, row in ((1, ANN), (2, BEN))])
    apply(archive, lake)
    shift = [
        sqlserver("d", commit=10, serial=1, before=ANN, offset=3),
        sqlserver("c", commit=10, serial=2, after={**ANN, "id": 2}, offset=4),
        sqlserver("d", commit=10, serial=3, before=BEN, offset=5),
        sqlserver("c", commit=10, serial=4, after={**BEN, "id": 3}, offset=6),
    ]
    first = write_records(archive / "1.jsonl", shift[:2])
    apply(archive, lake)
    write_records(archive / "2.jsonl", shift[2:])
    return first


AFTER = [{"id": 2, "name": "ann"}, {"id": 3, "name": "ben"}]


def test_a_transaction_whose_first_file_is_gone_stops_its_flow_until_the_file_is_back(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, shifted: Path
) -> None:
    text = shifted.read_text()
    shifted.unlink()
    (flow,) = apply(archive, lake, may_fail=True).flows
    assert flow.error
    assert (flow.error["type"], flow.error["transient"]) == ("ArchivedFileMissingError", False)
    assert "1.jsonl" in flow.error["message"]
    assert "on_missing_file" in flow.error["next_step"]
    shifted.write_text(text)
    assert apply(archive, lake).flows[0].batches[0].transactions_unjoined == 0
    assert rows(spark, lake) == AFTER


@pytest.mark.deep
def test_a_transaction_whose_first_file_is_gone_deletes_no_row_where_the_flow_says_keep(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path, shifted: Path
) -> None:
    shifted.unlink()
    assert not apply(archive, lake, may_fail=True).ok
    report = apply(archive, lake, flows=KEEP)
    assert rows(spark, lake) == AFTER
    (flow,) = report.flows
    assert flow.batches[0].transactions_unjoined == 1
    assert (flow.events.read, flow.events.merged, flow.events.stale) == (2, 1, 1)
    assert any("1 keys of cut transactions were not put together" in line for line in flow.gap_lines())


@pytest.mark.deep
def test_a_transaction_that_deletes_nothing_goes_on_without_its_first_file(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    events = [sqlserver("c", commit=10, serial=number, after={"id": number, "name": "x"}, offset=number) for number in (1, 2)]
    more = sqlserver("u", commit=10, serial=3, before=events[0]["value"]["after"], after={"id": 1, "name": "y"}, offset=3)
    first = write_records(archive / "1.jsonl", events)
    apply(archive, lake)
    first.unlink()
    write_records(archive / "2.jsonl", [more])
    assert apply(archive, lake).flows[0].batches[0].transactions_unjoined == 0
    assert rows(spark, lake) == [{"id": 1, "name": "y"}, {"id": 2, "name": "x"}]


@pytest.mark.deep
def test_a_late_part_of_a_document_goes_on_without_the_applied_file_where_the_flow_says_keep(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    topic, key = "mg.shop.orders", '{"$oid": "1"}'
    whole = mongodb("c", key, second=1, offset=0, after='{"_id": {"$oid": "1"}, "a": 1}')
    late = mongodb("u", key, second=2, offset=1, updated='{"b": 2}')
    last = mongodb("u", key, second=3, offset=2, updated='{"c": 3}')
    first = write_records(archive / "1.jsonl", [whole, last])
    apply(archive, lake)
    first.unlink()
    write_records(archive / "2.jsonl", [late])
    (flow,) = apply(archive, lake, may_fail=True).flows
    assert flow.error
    assert flow.error["type"] == "ArchivedFileMissingError"
    (flow,) = apply(archive, lake, flows={topic: CdcFlow(topic, on_missing_file=OnMissingFile.KEEP)}).flows
    assert flow.batches[0].transactions_unjoined == 1
    assert len(read_rows(spark, str(lake), topic).rows) == 1
