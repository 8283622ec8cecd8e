"""Verify: a table against another lake's by checksum, and against a real database by its rows."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import ConfigurationError, SourceFailedError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.scd_columns import ScdColumns
from airflow_cdc.model.report.verification import VerifyReport
from airflow_cdc.pipeline.look.doubled_keys import verify_keys_natively
from airflow_cdc.pipeline.spark import sql
from airflow_cdc.pipeline.upkeep.inspect_lake import read_rows
from airflow_cdc.pipeline.upkeep.verify import verify_history, verify_keys, verify_lakes, verify_source
from tests.conftest import Apply
from tests.support.events import TOPIC, numbered, sqlserver, write_records
from tests.support.stories import CHOSEN, overlaps, under_default_names

COLUMNS = {"amount": "DECIMAL(10,2)", "day": "DATE", "at": "TIMESTAMP"}
FLOWS = {TOPIC: CdcFlow(TOPIC, columns=COLUMNS)}
ROWS: list[dict[str, Any]] = [
    {"id": 1, "name": None, "note": "a", "amount": "1.50", "day": "2026-11-20", "at": "2026-11-20T10:00:00Z"},
    {"id": 2, "name": "a", "note": None, "amount": "2.50", "day": None, "at": None},
    {"id": 3, "name": "c", "note": "c", "amount": None, "day": "2026-11-22", "at": "2026-07-01T23:30:00Z"},
]
DERBY = {"url": "jdbc:derby:memory:verify;create=true"}


@pytest.fixture(scope="module")
def lakes(apply: Apply, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The same rows in another order of events and microbatches; the second lake has a swap more, which leaves counts and columns alone."""
    root = tmp_path_factory.mktemp("verify")
    for name, rows in (("a", ROWS), ("b", ROWS[::-1])):
        for number, row in enumerate(rows, start=1):
            write_records(root / f"archive-{name}" / f"{number}.jsonl", numbered([sqlserver("c", commit=number, after=row)], first=number))
    apply(root / "archive-a", root / "a", flows=FLOWS)
    apply(root / "archive-b", root / "b", flows={TOPIC: CdcFlow(TOPIC, columns=COLUMNS, max_microbatch_bytes=1)})
    return root / "a", root / "b"


def through_json(report: VerifyReport) -> VerifyReport:
    assert VerifyReport.from_json(json.loads(json.dumps(report.to_json()))) == report
    return report


def test_two_lakes_are_equal_whatever_the_order_and_swapped_values_are_not(
    lakes: tuple[Path, Path], spark: SparkSession, apply: Apply, tmp_path: Path
) -> None:
    left, right = map(str, lakes)
    report = through_json(verify_lakes(spark, left, right))
    (table,) = report.tables
    assert report.equal
    assert (table.rows, table.other_rows, table.checksum == table.other_checksum) == (3, 3, True)
    assert table.other_stands is not None
    assert (table.stands.microbatch, table.other_stands.microbatch) == (1, 3)
    assert set(table.stands.applied_through) == {"0"}

    # A NULL and a value that change places in a row, and values that change places between two: sums of columns would not show it.
    swapped = [{**ROWS[0], "name": "a", "note": None}, {**ROWS[1], "amount": None}, {**ROWS[2], "amount": "2.50"}]
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    write_records(archive / "1.jsonl", numbered([sqlserver("c", commit=9, after=row) for row in swapped]))
    apply(archive, lake, flows=FLOWS)
    report = through_json(verify_lakes(spark, left, str(lake)))
    (table,) = report.tables
    assert (report.equal, table.rows, table.other_rows, table.columns) == (False, 3, 3, ("amount", "name", "note"))
    assert f'airflow-cdc diff "{left}" "{lake}" --table "{TOPIC}"' in "\n".join(report.lines())


def test_no_common_table_is_not_equal(lakes: tuple[Path, Path], spark: SparkSession) -> None:
    assert not verify_lakes(spark, *map(str, lakes), globs=["no.*"]).equal


@pytest.fixture(scope="module")
def derby(spark: SparkSession) -> Iterator[None]:
    """A database with the rows, in its own types and in capitals; a row missing, one more, one changed."""
    rows = [
        (1, None, "a", "1.5", "2026-11-20", "2026-11-20 10:00:00"),
        (2, "other", None, "2.50", None, None),
        (4, "d", "d", "4", None, None),
    ]
    ddl = "id INT, name STRING, note STRING, amount STRING, day STRING, at STRING"
    typed = spark.createDataFrame(rows, ddl).selectExpr(
        "id AS ID",
        "name AS NAME",
        "note AS NOTE",
        "CAST(amount AS DECIMAL(12,4)) AS AMOUNT",
        "CAST(day AS DATE) AS DAY_",
        "CAST(at AS TIMESTAMP_NTZ) AS AT_",
    )
    typed.write.format("jdbc").options(**DERBY, dbtable="ROWS_").mode("overwrite").save()
    yield
    with pytest.raises(Exception, match=r"FAILED_JDBC|dropped"):
        spark.read.format("jdbc").options(url="jdbc:derby:memory:verify;drop=true", query="VALUES 1").load()


QUERY = 'SELECT ID, NAME, NOTE, AMOUNT, DAY_ AS "DAY", AT_ AS "AT" FROM ROWS_'


@pytest.mark.usefixtures("derby")
def test_a_source_is_compared_by_key_and_values_in_the_tables_types(lakes: tuple[Path, Path], spark: SparkSession) -> None:
    report = through_json(verify_source(spark, str(lakes[0]), TOPIC, {**DERBY, "query": QUERY}))
    (table,) = report.tables
    assert not report.equal
    assert (table.rows, table.other_rows) == (3, 3)
    assert (table.missing, table.extra, table.different, table.duplicates, table.columns) == (1, 1, 1, 0, ("name",))
    assert table.sample == ({"side": "different", "id": "2"}, {"side": "extra", "id": "3"}, {"side": "missing", "id": "4"})
    assert (table.stands.microbatch, table.other_stands) == (1, None)
    # The rows that are the same are so in every column: decimals of another scale, times without a zone as UTC.
    same = verify_source(spark, str(lakes[0]), TOPIC, {**DERBY, "query": f"{QUERY} WHERE ID = 1"})
    assert (same.tables[0].missing, same.tables[0].extra, same.tables[0].different) == (0, 2, 0)


@pytest.mark.usefixtures("derby")
def test_what_a_query_gets_wrong_is_reported(lakes: tuple[Path, Path], spark: SparkSession) -> None:
    def verify(query: str) -> VerifyReport:
        return verify_source(spark, str(lakes[0]), TOPIC, {**DERBY, "query": query, "password": "SeCrEt9"})

    twice = verify("SELECT a.ID, a.NAME FROM ROWS_ a, ROWS_ b WHERE a.ID = 1").tables[0]
    assert (twice.duplicates, twice.different, twice.extra) == (2, 0, 2)
    assert set(twice.schema) == {f"{name}: absent in the source" for name in ("note", "amount", "day", "at")}
    unreadable = verify("SELECT ID, 'many' AS AMOUNT FROM ROWS_ WHERE ID = 3 OR ID = 2").tables[0]
    assert (unreadable.different, unreadable.columns) == (1, ("amount",))
    # The table has NULL there: what cannot be read as its type is none.
    no_null = verify("SELECT 3 AS ID, 'many' AS AMOUNT FROM SYSIBM.SYSDUMMY1").tables[0]
    assert (no_null.different, no_null.columns) == (1, ("amount",))
    with pytest.raises(ConfigurationError, match=r"without the table's key columns \['id'\]"):
        verify("SELECT NAME FROM ROWS_")
    with pytest.raises(SourceFailedError, match="NOPE") as failed:
        verify("SELECT * FROM NOPE WHERE X = 'SeCrEt9'")
    assert "SeCrEt9" not in str(failed.value)


@pytest.mark.parametrize("options", [{}, {"url": "http://x", "query": "q"}, DERBY, {**DERBY, "query": "q", "dbtable": "t"}])
def test_options_that_name_no_rows_of_a_source_are_refused(options: dict[str, str], lakes: tuple[Path, Path], spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="expected a url"):
        verify_source(spark, str(lakes[0]), TOPIC, options)


def test_keys_that_have_several_rows_are_found_in_each_comparison(
    lakes: tuple[Path, Path], derby: None, spark: SparkSession, tmp_path: Path
) -> None:
    copy = str(shutil.copytree(lakes[0], tmp_path / "copy"))
    for path in (tmp_path / "copy").rglob("*.json"):
        path.write_text(path.read_text(encoding="utf-8").replace(str(lakes[0]), copy), encoding="utf-8")
    sound = through_json(verify_keys(spark, copy))
    assert (sound.equal, sound.tables[0].rows, sound.tables[0].doubled) == (True, 3, 0)

    spark.sql(f"INSERT INTO delta.`{copy}/{TOPIC}` SELECT * FROM delta.`{copy}/{TOPIC}` WHERE id > 1")
    report = through_json(verify_keys(spark, copy))
    (table,) = report.tables
    assert (report.equal, table.rows, table.doubled) == (False, 5, 2)
    assert table.sample == ({"side": "doubled", "id": "2"}, {"side": "doubled", "id": "3"})
    assert "airflow-cdc rebuild" in "\n".join(report.lines())
    # Of the same kind on both sides.
    assert verify_lakes(spark, copy, copy).tables[0].doubled == 2
    assert not verify_lakes(spark, copy, copy).equal
    assert verify_source(spark, copy, TOPIC, {**DERBY, "query": QUERY}).tables[0].doubled == 2
    assert verify_keys_natively(copy).tables[0].doubled == 2


def test_a_flow_that_the_lake_does_not_have_is_named(lakes: tuple[Path, Path], spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="no flow nobody"):
        verify_source(spark, str(lakes[0]), "nobody", {**DERBY, "query": "q"})


@pytest.mark.deep
@pytest.mark.parametrize(
    ("damage", "names"),
    [
        ("__cdc_end_position = named_struct('commit', 99999999999999999999BD, 'change', 0BD, 'serial', 1L)", ScdColumns()),
        ("__cdc_end_position = NULL, {is_current} = true", ScdColumns()),
        ("{valid_to} = TIMESTAMP '2100-01-01'", ScdColumns()),
        ("{valid_to} = TIMESTAMP '2100-01-01'", CHOSEN),
        ("{is_current} = true", CHOSEN),
    ],
    ids=lambda value: value if isinstance(value, str) else ("chosen" if value == CHOSEN else "default"),
)
def test_versions_that_overlap_or_are_current_together_are_found(
    damage: str, names: ScdColumns, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    changes = [sqlserver("c", commit=1, after={"id": 1, "n": 1}), sqlserver("u", commit=2, after={"id": 1, "n": 2})]
    write_records(tmp_path / "archive" / "1.jsonl", numbered([*changes, sqlserver("c", commit=3, after={"id": 2, "n": 1})]))
    apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: CdcFlow(TOPIC, stored_as_scd_type=2, scd_columns=names)})
    lake = str(tmp_path / "lake")
    sound = through_json(verify_history(spark, lake))
    assert (sound.equal, sound.tables[0].rows, sound.tables[0].overlapping) == (True, 3, 0)
    assert next(sound.lines()).startswith(f"{TOPIC}: of 3 versions none overlaps; the table stands at version 1")

    change = damage.format(**{setting: sql.name(name) for setting, name in names.to_json().items()})
    spark.sql(f"UPDATE delta.`{lake}/{TOPIC}` SET {change} WHERE id = 1 AND n = 1")

    report = through_json(verify_history(spark, lake))
    assert not report.equal
    assert report.tables[0].overlapping == 1
    assert report.tables[0].sample[0]["id"] == "1"
    assert len(overlaps(under_default_names(read_rows(spark, lake, TOPIC, history=True).rows, names), ["id"])) == 1


def test_a_lake_without_versions_has_no_history_to_verify(lakes: tuple[Path, Path], spark: SparkSession) -> None:
    with pytest.raises(ConfigurationError, match="keeps every version"):
        verify_history(spark, str(lakes[0]))
