"""What DuckDB sees of columns without a schema is what Spark sees, or it leaves them to Spark."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordLayout
from airflow_cdc.model.state.microbatch import Microbatch
from airflow_cdc.pipeline.decode.types.infer_types import infer_types
from airflow_cdc.pipeline.decode.types.seen_values import SeenValues, look_at_values
from airflow_cdc.pipeline.settle.images_natively import NativeImages
from tests.conftest import Apply
from tests.support.events import sqlserver, write_records
from tests.support.tables import read_rows
from tests.unit.pipeline.decode.types.test_native_readings import LEAVES

pytest.importorskip("duckdb")

TOPIC = "server1.testDB.dbo.customers"
NUMBERS = [
    "0",
    "-0",
    "7",
    "1000",
    "1000000000",
    "9007199254740992",
    "-9007199254740993",
    "9223372036854775807",
    "9223372036854775808",
    "-12345678901234567890",
    "9" * 38,
    "9" * 39,
]
FRACTIONS = ["1.0", "1.5", "-0.25", "10.00", "0.1", "123.456", "1234567.12345678901", "0.30000000000000004", "12345678901234567890.0"]
LONG = ["0.123456789012345678", "1.00000000000000000001", "123456789012345678.5", "1e3", "-1.5E-7", "0.1234567890123456789"]
TEXTS = [
    "",
    "a",
    "12",
    "12\n",
    "-1.5",
    "2026-11-24T10:00:00Z",
    "2026-11-24T10:00:00Z\n",
    "ff00",
    "AAA=",
    "AAAA",
    "/8A=",
    "AA",
    "A A=",
    "e30==",
]
MORE = ["naïve☃", "aB", "AB1c", "1A", "x" * 100, 'a "quoted" \\ one', "two\nlines", "A" * 27 + "=", "null", "\u2028", "=", "/4A=\r\n"]
OTHERS = ["[1]", '{"scale": 1, "value": "AQ=="}', "{}", "true", "false", "null"]
ALL = [*NUMBERS, *FRACTIONS, *LONG, *map(json.dumps, (*TEXTS, *MORE)), *(json.dumps(each, ensure_ascii=False) for each in MORE), *OTHERS]


def groups() -> list[list[str]]:
    """Return values of columns: each alone, and some together."""
    pick = random.Random(5)
    plain = [*NUMBERS[:-1], *FRACTIONS[:-1], *map(json.dumps, TEXTS), "true", "null"]
    alone = [[leaf] for leaf in dict.fromkeys([*ALL, *LEAVES])]
    return [*alone, *([pick.choice(plain) for _ in range(pick.randrange(2, 6))] for _ in range(20))]


GROUPS = groups()


@pytest.fixture(scope="module")
def in_spark(spark: SparkSession) -> tuple[dict[str, str], dict[str, SeenValues]]:
    texts = [(f'{{"c{number}": {leaf}}}',) for number, group in enumerate(GROUPS) for leaf in group]
    images = spark.createDataFrame(texts, "image STRING").selectExpr("try_parse_json(image) AS image").coalesce(1).localCheckpoint()
    names = [f"c{number}" for number in range(len(GROUPS))]
    return infer_types(images, names), look_at_values(images, names)


class Spark:
    """Stands for Spark where DuckDB is not certain."""

    def types(self, columns: Any) -> dict[str, str]:
        raise LookupError

    values = types


def natively(folder: Path, images: Sequence[str], columns: Sequence[str]) -> NativeImages:
    """Return the images of a file with one record for each."""
    lines = [
        f'{{"topic": "{TOPIC}", "partition": 0, "offset": {place}, "key": {{"id": {place}}}, "value": {{"op": "c", "after": {image}}}}}\n'
        for place, image in enumerate(images)
    ]
    (folder / "1.jsonl").write_text("".join(lines), encoding="utf-8")
    return images_of(folder, ArchivedFile("1.jsonl", 1, TOPIC), RecordLayout.RECORD, columns)


def images_of(folder: Path, file: ArchivedFile, layout: RecordLayout, columns: Sequence[str]) -> NativeImages:
    shapes = [SimpleNamespace(layout=layout)]
    microbatch = cast("Microbatch", SimpleNamespace(text_size=0, archive=str(folder), files=[file], shapes=shapes))
    return NativeImages(microbatch, TOPIC, ["after"], columns, cast("Any", Spark()))


def test_each_column_is_seen_as_spark_sees_it_or_left_to_spark(
    in_spark: tuple[dict[str, str], dict[str, SeenValues]], tmp_path: Path
) -> None:
    types, values = in_spark
    wrong, certain = [], 0
    for number, group in enumerate(GROUPS):
        column = f"c{number}"
        images = natively(tmp_path, [f'{{"{column}": {leaf}}}' for leaf in group], [column])
        try:
            found = images.types([column]).get(column), images.values([column]).get(column)
        except LookupError:
            continue
        certain += 1
        if found != (types.get(column), values.get(column)):
            wrong.append((group, found, (types.get(column), values.get(column))))
    assert wrong == [], f"{len(wrong)} of {certain}"
    # The others hold objects, arrays, exponents, or numbers that a double does not hold.
    assert certain > 0.7 * len(GROUPS)


def test_other_topics_are_not_looked_at_and_keys_are(tmp_path: Path) -> None:
    images = natively(tmp_path, ['{"name": "a"}', '{"name": null}'], ["id", "name"])
    file = tmp_path / "1.jsonl"
    other = '{"topic": "other", "partition": 0, "offset": 9, "key": {"id": "text"}, "value": {"op": "c", "after": {"name": true}}}\n'
    deleted = f'{{"topic": "{TOPIC}", "partition": 0, "offset": 10, "key": {{"id": 7}}, "value": null}}\n'
    file.write_text(file.read_text(encoding="utf-8") + other + deleted, encoding="utf-8")
    assert images.types(["id", "name", "gone"]) == {"id": "BIGINT", "name": "STRING"}
    assert (images.values(["id"])["id"].count, images.values(["id"])["id"].most) == (3, 7)


@pytest.mark.parametrize(
    "line",
    ["no JSON", '{"topic": "t", "key": 1, "value": null}', '{"value": {"after": {"name": 1, "name": 2}}}', '{"value": {"after": [1]}}'],
)
def test_lines_that_are_not_plain_are_left_to_spark(tmp_path: Path, line: str) -> None:
    images = natively(tmp_path, ['{"name": "a"}'], ["name"])
    file = tmp_path / "1.jsonl"
    file.write_text(f"{file.read_text(encoding='utf-8')}{line}\n", encoding="utf-8")
    with pytest.raises(LookupError):
        images.types(["name"])


def test_a_line_with_a_comma_behind_its_last_member_counts_for_nothing(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    write_records(archive / "1.jsonl", [sqlserver("c", commit=key, after={"id": key, "n": key}, offset=key) for key in range(40)])
    odd = json.dumps(sqlserver("c", commit=99, after={"id": 99, "n": "text"}, offset=99))[:-1] + ",}\n"
    with (archive / "1.jsonl").open("a", encoding="utf-8") as file:
        file.write(odd)
    (batch,) = apply(archive, lake).flows[0].batches
    assert (batch.events.merged, batch.rejects) == (40, {"malformed_json": 1})
    assert read_rows(spark, str(lake), TOPIC).columns == {"id": "BIGINT", "n": "BIGINT"}


def test_names_that_differ_in_case_alone_are_left_to_spark(tmp_path: Path) -> None:
    with pytest.raises(LookupError):
        natively(tmp_path, ['{"name": "a", "NAME": 1}'], ["name", "NAME"]).types(["name"])


@pytest.mark.parametrize("keys", [True, False])
def test_values_and_their_companions_keys_are_seen_as_those_of_whole_records(keys: bool, tmp_path: Path) -> None:
    leaves = ["1", "2.50", "null", '"a"', "true"]
    images = [f'{{"name": {leaf}}}' for leaf in leaves]
    (tmp_path / "v.json").write_text("".join(f'{{"op": "c", "after": {image}}}\n' for image in images), encoding="utf-8")
    (tmp_path / "v.keys.json").write_text("".join(f'{{"id": {place}}}\n' for place in range(len(images))), encoding="utf-8")
    file = ArchivedFile("v.json", 1, TOPIC, 0, 0, "v.keys.json" if keys else None)
    found, expected = images_of(tmp_path, file, RecordLayout.VALUE, ["id", "name"]), natively(tmp_path, images, ["id", "name"])
    columns = ["id", "name"] if keys else ["name"]
    assert found.types(["id", "name"]) == expected.types(columns)
    assert found.values(["id", "name"]) == expected.values(columns)
    assert set(found.types(["id", "name"])) == set(columns)


def test_a_value_without_its_key_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / "v.json").write_text('{"op": "c", "after": {"name": 1}}\n' * 2, encoding="utf-8")
    (tmp_path / "v.keys.json").write_text('{"id": 1}\n', encoding="utf-8")
    with pytest.raises(LookupError):
        images_of(tmp_path, ArchivedFile("v.json", 1, TOPIC, 0, 0, "v.keys.json"), RecordLayout.VALUE, ["id", "name"]).types(["name"])
