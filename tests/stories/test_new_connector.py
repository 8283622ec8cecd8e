"""A connector that nobody knew: its entry alone makes its events decoded, ordered, cut and flattened."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.transactions import end_place, transaction_key
from airflow_cdc.model.connectors.connector import (
    AS_TEXT,
    NUMBER,
    Connector,
    Cut,
    Flattened,
    PositionRule,
    Spelling,
    Transactions,
    Types,
)
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.pipeline.decode.types.connect_types import column_type
from tests.conftest import Apply
from tests.support.events import Record, Row, record, write_records
from tests.support.tables import read_rows

TOPIC = "pot.t"
DATE = "io.debezium.time.Date"
TEAPOT = Connector(
    names=("teapot",),
    title="Teapot",
    position=PositionRule(
        fields=("pot", "cup", "brew"),
        commit=f"try_cast(source.pot AS {NUMBER})",
        change=f"try_cast(source.cup AS {NUMBER})",
        spelling=Spelling(re.compile(r"pot \d+"), lambda text: int(text.removeprefix("pot ")), lambda number: f"pot {number}"),
        goes_back=False,
    ),
    transactions=Transactions(identity="source.brew"),
    types=Types(own={DATE: AS_TEXT}),
    topic=("table",),
    flattened=Flattened(fields=("pot", "cup")),
    cut=Cut(re.compile(r"(?P<key>brew-\d+)@(?P<place>\d+)"), int),
)


@pytest.fixture(autouse=True)
def teapot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONNECTORS, "teapot", TEAPOT)


def event(row: Row, *, pot: int, cup: int = 1, brew: int = 1, offset: int, order: int | None = None) -> Record:
    source = {"connector": "teapot", "pot": pot, "cup": cup, "brew": brew, "ts_ms": 1_800_000_000_000 + pot, "table": "t"}
    value: dict[str, Any] = {"op": "c", "before": None, "after": row, "source": source, "ts_ms": 1}
    if order:
        value["transaction"] = {"id": f"brew-{brew}@{pot}", "total_order": order, "data_collection_order": order}
    return record(TOPIC, {"id": row["id"]}, value, offset)


def flat(row: Row, *, pot: int, offset: int) -> Record:
    return record(TOPIC, {"id": row["id"]}, {**row, "__op": "c", "__pot": pot, "__source_cup": 1}, offset)


def end(brew: int, *, pot: int, events: int, offset: int) -> Record:
    counts = {"event_count": events, "data_collections": [{"data_collection": "t", "event_count": events}]}
    return record("pot.transaction", None, {"status": "END", "id": f"brew-{brew}@{pot}", **counts, "ts_ms": pot}, offset)


def test_events_of_a_new_connector_are_decoded_ordered_by_its_numbers_and_read_when_flattened(
    spark: SparkSession, apply: Apply, archive: Path, lake: Path
) -> None:
    envelopes = [event({"id": 1, "v": "newest"}, pot=10, offset=0), event({"id": 1, "v": "older"}, pot=9, offset=1)]
    flattened = [flat({"id": 2, "v": "newest"}, pot=100, offset=2), flat({"id": 2, "v": "older"}, pot=20, offset=3)]
    write_records(archive / "t.jsonl", [*envelopes, *flattened])

    (flow,) = apply(archive, lake).flows

    assert read_rows(spark, str(lake), TOPIC).rows == [{"id": 1, "v": "newest"}, {"id": 2, "v": "newest"}]
    assert (flow.events.read, flow.events.rejected) == (4, 0)


@pytest.mark.deep
def test_tables_of_a_new_connector_end_at_its_last_whole_transaction(spark: SparkSession, apply: Apply, archive: Path, lake: Path) -> None:
    first, second = ({"id": number, "v": "x"} for number in (1, 2))
    events = [event(first, pot=9, brew=1, offset=0, order=1), event(second, pot=10, brew=2, offset=1, order=1)]
    write_records(archive / "t.jsonl", events)
    # Of the second transaction one of two events is archived.
    write_records(archive / "transactions.jsonl", [end(1, pot=9, events=1, offset=0), end(2, pot=10, events=2, offset=1)])

    report = apply(archive, lake, consistent=True)

    assert read_rows(spark, str(lake), TOPIC).rows == [first]
    assert [(cut.prefix, cut.before) for cut in report.cuts] == [("pot", 10)]


def test_what_people_write_and_transactions_carry_of_a_new_connector_is_read() -> None:
    assert parse_as_of("pot 12").commit("teapot", TOPIC) == 12
    assert (transaction_key("brew-7@12"), end_place("brew-7@12", 5)) == ("brew-7", (12,))
    # No connector spells it so: the time, and the number behind a hyphen.
    assert (transaction_key("brew-7"), end_place("brew-7", 5)) == ("brew-7", (5, 7))


def test_a_new_connector_spells_a_connect_type_its_own_way() -> None:
    field = {"field": "d", "type": "int32", "name": DATE}
    assert [column_type(field, connector).sql_type for connector in ("teapot", "postgresql")] == ["STRING", "DATE"]
