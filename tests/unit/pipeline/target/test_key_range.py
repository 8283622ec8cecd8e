"""A merge into a large table names the range of its keys, by which Delta passes over files; what becomes of the rows is the same."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.target import alter_table, key_range
from airflow_cdc.pipeline.target.key_range import KeyRange, key_ranges, ranged
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records


@pytest.fixture(autouse=True)
def every_table_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_range, "ASKED_FROM_BYTES", 0)


def _change(op: str, key: Any, commit: int, name: str) -> dict[str, Any]:
    image = {"id": key, "name": name}
    return sqlserver(op, commit=commit, **({"before": image} if op == "d" else {"after": image}))


@pytest.mark.deep
@pytest.mark.parametrize("keys", [(-3, 5, 9, 100), ("", "a'\\b", "ä\n${x}", "z")], ids=["numbers", "texts"])
def test_rows_are_changed_as_without_a_range(keys: tuple[Any, ...], apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", numbered([_change("c", key, number, "old") for number, key in enumerate(keys[:3], start=1)]))
    apply(archive, lake)
    later = [_change("u", keys[0], 10, "new"), _change("d", keys[1], 11, ""), _change("c", keys[3], 12, "more")]
    write_records(archive / "2.jsonl", numbered(later, first=10))

    (batch,) = apply(archive, lake).flows[0].batches

    rows = spark.read.format("delta").load(str(lake / TOPIC)).select("id", "name").collect()
    assert sorted((row["id"], row["name"]) for row in rows) == sorted([(keys[0], "new"), (keys[2], "old"), (keys[3], "more")])
    assert vars(batch.rows) == {"inserted": 1, "updated": 1, "deleted": 1}


@pytest.mark.deep
@pytest.mark.parametrize(("engine", "by_range"), [(Engine.SPARK, ", range of id"), (Engine.NATIVE, "")], indirect=["engine"])
def test_files_outside_the_range_are_passed_over(
    engine: Engine, by_range: str, apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    flows = {TOPIC: CdcFlow(TOPIC, engine=engine)}
    for number, first in enumerate((0, 100, 200)):
        events = [_change("c", first + place, 1 + first + place, "old") for place in range(3)]
        write_records(archive / f"{number}.jsonl", numbered(events, first=first))
        apply(archive, lake, flows=flows)
    write_records(archive / "9.jsonl", numbered([_change("u", key, 900 + key, "new") for key in (100, 102)], first=900))
    report = apply(archive, lake, flows=flows)

    assert report.flows[0].batches[0].merge_plan == f"merge (copy-on-write{by_range}, 1 of 3 files)"
    history = spark.sql(f"DESCRIBE HISTORY delta.`{lake / TOPIC}` LIMIT 1").collect()[0]
    if by_range:
        assert "BETWEEN" in json.dumps(history["operationParameters"]) or ">=" in json.dumps(history["operationParameters"])
    removed = {"numTargetFilesRemoved": "1", "num_target_files_removed": "1"}
    assert history["operationMetrics"].items() & removed.items()


def test_the_report_counts_the_files_that_got_a_deletion_vector(
    apply: Apply, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_table, "DELETION_VECTORS_FROM_BYTES", 0)
    by_spark = {TOPIC: CdcFlow(TOPIC, engine=Engine.SPARK)}
    for number, first in enumerate((0, 100)):
        events = [_change("c", first + place, 1 + first + place, "old") for place in range(3)]
        write_records(archive / f"{number}.jsonl", numbered(events, first=first))
        apply(archive, lake, flows=by_spark)

    for number, key in enumerate((100, 101)):
        # The first gives a file its deletion vector, the second takes that for another; both leave the file's third row where it is.
        write_records(archive / f"9{number}.jsonl", numbered([_change("u", key, 900 + number, "new")], first=900 + number))
        report = apply(archive, lake, flows=by_spark)
        files = 2 + number
        assert report.flows[0].batches[0].merge_plan == f"merge (deletion vectors, range of id, 1 of {files} files)"


def test_ranges_are_joined_over_partitions_and_left_out_where_a_key_is_null_or_too_long() -> None:
    rows = [Row(**{"min a": 7, "max a": 9, "min b": None, "max b": None}), Row(**{"min a": -1, "max a": 8, "min b": None, "max b": None})]
    assert key_ranges({"a": "BIGINT", "b": "STRING"}, rows) == (KeyRange("a", "BIGINT", -1, 9),)
    assert key_ranges({"a": "STRING"}, [Row(**{"min a": "a", "max a": "z" * 500})]) == ()


def test_only_types_whose_statistics_and_texts_agree_in_order_have_ranges() -> None:
    types = {"a": "BIGINT", "b": "DOUBLE", "c": "DECIMAL(38,9)", "d": "TIMESTAMP", "e": "STRING", "f": "BINARY"}
    assert ranged(types, types, table_bytes=1).keys() == {"a", "c", "e"}
    scaled = KeyRange("c", "DECIMAL(38,9)", Decimal("1E+3"), Decimal("0.000000001") + 2000)
    # Wider by what a float may be off.
    assert scaled.of_rows("t") == "t.`c` BETWEEN CAST('999.999999999' AS DECIMAL(38,9)) AND CAST('2000.000000002' AS DECIMAL(38,9))"


def test_a_range_of_the_longest_numbers_stays_within_their_type_and_meets_those_that_were_cut_to_64_bits() -> None:
    nines = Decimal("9" * 20)
    assert KeyRange("c", "DECIMAL(20,0)", nines, nines).of_rows("t") == (
        f"t.`c` BETWEEN CAST('9223372036854775807' AS DECIMAL(20,0)) AND CAST('{nines}' AS DECIMAL(20,0))"
    )
    assert KeyRange("c", "DECIMAL(20,0)", -nines, -nines).of_rows("t") == (
        f"t.`c` BETWEEN CAST('-{nines}' AS DECIMAL(20,0)) AND CAST('-9223372036854775808' AS DECIMAL(20,0))"
    )
