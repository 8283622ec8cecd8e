"""JSON columns that a flow declares as VARIANT."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.support.events import postgresql, write_records
from tests.support.tables import read_quarantine, read_rows

TOPIC = "pg.public.carts"
PLACEHOLDER = "__debezium_unavailable_value"


ROWS = {number: {"id": number, "cart": cart} for number, cart in enumerate(('{"n": 1.10, "a": [true]}', "[]", "7", None, "{broken"), 1)}
FLOWS = {TOPIC: CdcFlow(TOPIC, columns={"cart": "VARIANT"})}


def test_json_texts_become_variants_and_what_is_no_json_is_set_aside(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    reads = [postgresql("r", commit=None, change=number, after=row, topic=TOPIC, offset=number) for number, row in ROWS.items()]
    write_records(archive / "1.jsonl", reads)
    apply(archive, lake, flows=FLOWS)

    found = read_rows(spark, str(lake), TOPIC)

    assert found.columns["cart"] == "VARIANT"
    assert {row["id"]: row["cart"] for row in found.rows} == {1: '{"a":[true],"n":1.1}', 2: "[]", 3: "7", 4: None}
    assert [(record["reason"], record["offset"]) for record in read_quarantine(spark, str(lake))] == [("value_does_not_fit_column", 5)]


@pytest.mark.deep
def test_json_texts_are_kept_as_values_that_queries_look_into(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    first = [postgresql("r", commit=None, change=number, after=row, topic=TOPIC, offset=number) for number, row in ROWS.items()]
    second = [
        postgresql("u", commit=20, change=21, after={"id": 2, "cart": '{"late": "not"}'}, topic=TOPIC, offset=21),
        postgresql("d", commit=22, change=23, before={"id": 1, "cart": None}, topic=TOPIC, offset=22),
        postgresql("c", commit=22, change=23, after={"id": 9, "cart": PLACEHOLDER}, topic=TOPIC, offset=23),
    ]
    late = [postgresql("u", commit=10, change=11, after={"id": 2, "cart": '{"late": true}'}, topic=TOPIC, offset=11)]
    lakes = [tmp_path / "lake", tmp_path / "other"]
    for number, records in enumerate((first, second, late)):
        write_records(tmp_path / "archive" / f"{number}.jsonl", records)
        apply(tmp_path / "archive", lakes[0], flows=FLOWS)
    apply(tmp_path / "archive", lakes[1], flows=FLOWS)

    found = read_rows(spark, str(lakes[0]), TOPIC)

    assert found.columns["cart"] == "VARIANT"
    carts = {2: '{"late":"not"}', 3: "7", 4: None, 9: '{"a":[true],"n":1.1}'}
    assert {row["id"]: row["cart"] for row in found.rows} == carts
    assert [(record["reason"], record["offset"]) for record in read_quarantine(spark, str(lakes[0]))] == [("value_does_not_fit_column", 5)]
    assert compare_lakes(spark, *map(str, lakes)).equal
