"""What only looks answers without Spark as it does with it: the same documents, for every kind of table and value."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.console import plain
from airflow_cdc.flows_file import read_flows
from airflow_cdc.pipeline.look.differences import compare_natively
from airflow_cdc.pipeline.look.flow_rows import read_rows_natively
from airflow_cdc.pipeline.look.flow_summaries import summarize_natively
from airflow_cdc.pipeline.look.quarantined import groups_of, read_quarantine_natively, records_of_natively
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from airflow_cdc.pipeline.upkeep.inspect_lake import read_quarantine, read_rows, summarize_flows
from airflow_cdc.pipeline.upkeep.quarantine_groups import quarantine_groups, records_of
from tests.conftest import Apply
from tests.support.events import Record, mongodb, numbered, postgresql, sqlserver, write_records

DBO, LOG, DOCUMENTS = "server1.testDB.dbo", "pg.public.log", "mg.shop.orders"
TYPES, FLAGGED, VERSIONS, EVENTS, ODD = (f"{DBO}.{name}" for name in ("types", "flagged", "versions", "events", "odd"))
FLOWS = f"""
flows:
  - topic: {TYPES}
    columns:
      exact: DECIMAL(38,10)
      day: DATE
      at: TIMESTAMP
      local: TIMESTAMP_NTZ
      photo: BINARY
      rate: DOUBLE
      short: FLOAT
      is_it: BOOLEAN
  - {{topic: {FLAGGED}, on_delete: flag}}
  - {{topic: {VERSIONS}, stored_as_scd_type: 2, scd_columns: {{is_current: 'is "now"', previous_key: früher}}}}
  - {{topic: {EVENTS}, write_disposition: append}}
  - {{topic: {DOCUMENTS}, document_columns: {{total: "DECIMAL(10,2)", city: {{path: address.city, type: STRING}}}}}}
"""
VALUES: list[dict[str, Any]] = [
    {
        "id": 1,
        "exact": "0E-10",
        "day": "0001-01-01",
        "at": "0001-01-01T00:00:00.5Z",
        "local": "0001-01-01T00:00:00",
        "photo": "AAE=",
        "rate": "NaN",
        "short": 0.1,
        "is_it": True,
        "text": "a\n\"'\\漢😀",
    },
    {
        "id": 2,
        "exact": "1234567890123456789012345678.0123456789",
        "day": "9999-12-31",
        "at": "9999-12-31T23:59:59.999999Z",
        "local": "2026-11-20T12:00:00.000001",
        "photo": "",
        "rate": "Infinity",
        "short": -0.0,
        "is_it": False,
        "text": "",
    },
]
VALUES.append({**dict.fromkeys(VALUES[0]), "id": 3})


def _story(topic: str, start: int) -> list[Record]:
    """Return creates, an update and a delete of a table."""
    ann, ben, bea = ({"id": number, "name": name} for number, name in ((1, "ann"), (2, "ben"), (2, "bea")))
    return [
        sqlserver("c", commit=start, after=ann, topic=topic),
        sqlserver("c", commit=start + 1, after=ben, topic=topic),
        sqlserver("u", commit=start + 2, before=ben, after=bea, topic=topic),
        sqlserver("d", commit=start + 3, before=ann, topic=topic),
    ]


def _events() -> list[Record]:
    types = [sqlserver("c", commit=place, after=row, topic=TYPES) for place, row in enumerate(VALUES, start=1)]
    odd = [{"id": 1, "a b": "x", "c;d": 1, "e=(f)": None}, {"id": 2, "a b": None, "c;d": 2, "e=(f)": "y"}]
    named = [sqlserver("c", commit=place, after=row, topic=ODD) for place, row in enumerate(odd, start=1)]
    copies = [{"v": 1, "note": "x"}, {"v": 1, "note": "x"}, {"v": None, "note": "y"}]
    keyless = [
        {**postgresql("c", commit=place, change=place + 1, after=row, key={}, topic=LOG), "key": None}
        for place, row in enumerate(copies, start=1)
    ]
    documents = [
        mongodb("c", "1", second=1, offset=None, after='{"_id": 1, "total": 12.50, "address": {"city": "Bern"}}'),
        mongodb("c", "2", second=2, offset=None, after='{"_id": 2, "total": "many"}'),
    ]
    nameless = [
        sqlserver("c", commit=90, after={"id": None, "name": "nobody"}, key={"id": None}, topic=FLAGGED),
        sqlserver("c", commit=91, after={**VALUES[0], "id": 9, "day": "never"}, topic=TYPES),
    ]
    stories = [event for topic, start in ((FLAGGED, 10), (VERSIONS, 20), (EVENTS, 30)) for event in _story(topic, start)]
    return numbered([*types, *named, *keyless, *documents, *stories, *nameless])


@pytest.fixture(scope="module")
def archived(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("archived")
    write_records(folder / "1.jsonl", _events())
    return folder


@pytest.fixture
def looked_at(apply: Apply, archived: Path, tmp_path: Path) -> str:
    """A lake with a table of every mode."""
    flows = tmp_path / "flows.yaml"
    flows.write_text(FLOWS)
    apply(archived, tmp_path / "lake", flows=read_flows(flows))
    return str(tmp_path / "lake")


def text(document: Any) -> str:
    """Return a document as commands print it."""
    return json.dumps(plain(document), ensure_ascii=False)


def documents(found: Any) -> Any:
    return {**vars(found), "tables": [vars(table) for table in found.tables]}


def check_rows(spark: SparkSession, lake: str, flow: str) -> Mapping[str, Any]:
    """Both ways show the same rows, with and without the past and a limit; return the live ones."""
    for limit in (None, 0, 1, 99) if flow == TYPES else (None,):
        # Events of one key have no order among themselves without their positions.
        for history in (True,) if flow == EVENTS else (False, True):
            native, by_spark = read_rows_natively(lake, flow, limit, history=history), read_rows(spark, lake, flow, limit, history=history)
            assert text(vars(native)) == text(vars(by_spark))
    return vars(read_rows_natively(lake, flow))


@pytest.mark.deep
def test_every_answer_is_the_same(spark: SparkSession, looked_at: str) -> None:
    native = summarize_natively(looked_at)
    assert native == summarize_flows(spark, looked_at)
    assert {summary.flow: summary.rows for summary in native} == {
        TYPES: 3,
        ODD: 2,
        LOG: 3,
        DOCUMENTS: 2,
        FLAGGED: 1,
        VERSIONS: 1,
        EVENTS: 4,
    }
    shown = {summary.flow: check_rows(spark, looked_at, summary.flow) for summary in native}
    assert [row["day"] and str(row["day"]) for row in shown[TYPES]["rows"]] == ["0001-01-01", "9999-12-31", None]

    records = read_quarantine_natively(looked_at)
    assert text(records) == text(read_quarantine(spark, looked_at))
    assert {record["flow"] for record in records} == {FLAGGED, TYPES}
    groups = [group.to_json() for group in quarantine_groups(spark, looked_at)]
    assert text([group.to_json() for group in groups_of(records)]) == text(groups)
    for flow in (FLAGGED, TYPES, ODD):
        for limit in (None, 1):
            assert text(records_of_natively(looked_at, flow, limit)) == text(records_of(spark, looked_at, flow, limit))
    assert text(documents(compare_natively(looked_at, looked_at))) == text(documents(compare_lakes(spark, looked_at, looked_at)))


OF_FEATURES = {
    "deletion vectors": (
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'true')",
        "DELETE FROM {table} WHERE id = 2",
    ),
    "wider types": (
        "ALTER TABLE {table} SET TBLPROPERTIES ('delta.enableDeletionVectors' = 'false', 'delta.enableTypeWidening' = 'true')",
        "ALTER TABLE {table} ALTER COLUMN day TYPE TIMESTAMP_NTZ",
        "DELETE FROM {table} WHERE id = 2",
    ),
}
"""Not both: delta-rs reads no deletion vectors of a table with wider types, and Spark answers."""


@pytest.mark.deep
@pytest.mark.parametrize("changes", OF_FEATURES.values(), ids=OF_FEATURES)
def test_what_somebody_changed_in_a_table_is_read_the_same(
    changes: tuple[str, ...], spark: SparkSession, looked_at: str, apply: Apply, archived: Path, tmp_path: Path
) -> None:
    table, instant = f"delta.`{looked_at}/{TYPES}`", "TIMESTAMP '1500-01-01 00:00:00'"
    for statement in (
        *(change.format(table=table) for change in changes),
        f"ALTER TABLE {table} SET TBLPROPERTIES ('delta.columnMapping.mode' = 'name')",
        f"ALTER TABLE {table} RENAME COLUMN text TO `new text`",
        f"ALTER TABLE {table} ADD COLUMNS (tags ARRAY<STRING>, place STRUCT<x: DOUBLE, y: STRING>)",
        f"INSERT INTO {table} (id, exact, at, tags, place) SELECT 4, 7.5, {instant}, array('a', NULL), named_struct('x', 1.5D, 'y', 'z')",
    ):
        spark.sql(statement)
    rows = check_rows(spark, looked_at, TYPES)["rows"]
    assert [row["id"] for row in rows] == [1, 3, 4]
    assert rows[2]["tags"] == ["a", None]

    flows = read_flows(tmp_path / "flows.yaml")
    apply(archived, tmp_path / "other", flows=flows, tables=(TYPES, ODD, "other"))
    spark.sql(f"UPDATE delta.`{tmp_path}/other/{ODD}` SET `a b` = 'z', `e=(f)` = NULL")
    native, by_spark = compare_natively(looked_at, str(tmp_path / "other")), compare_lakes(spark, looked_at, str(tmp_path / "other"))
    assert text(documents(native)) == text(documents(by_spark))
    assert not native.equal
