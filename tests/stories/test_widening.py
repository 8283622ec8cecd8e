"""Columns whose type grows: the table is widened where Delta can, and the flow stops with both schemas where it cannot."""

from __future__ import annotations

import base64
import shutil
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.decode.types.column_types import common_type, widened
from airflow_cdc.pipeline.target.target_table import columns_of
from tests.conftest import Apply
from tests.support.events import Record, sqlserver, write_records
from tests.support.tables import read_rows

TOPIC = "server1.testDB.dbo.grown"


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        ("INT", "BIGINT", "BIGINT"),
        ("FLOAT", "DOUBLE", "DOUBLE"),
        ("FLOAT", "INT", "DOUBLE"),
        ("DATE", "TIMESTAMP_NTZ", "TIMESTAMP_NTZ"),
        ("DECIMAL(10,2)", "DECIMAL(12,2)", "DECIMAL(12,2)"),
        # as many digits before the point as the one, behind it as the other
        ("DECIMAL(10,2)", "DECIMAL(8,4)", "DECIMAL(12,4)"),
        ("INT", "DECIMAL(8,4)", "DECIMAL(14,4)"),
        ("BIGINT", "DECIMAL(38,0)", "DECIMAL(38,0)"),
        # nothing holds both
        ("DECIMAL(38,0)", "DECIMAL(10,2)", None),
        ("BIGINT", "DOUBLE", None),
        ("DECIMAL(10,2)", "DOUBLE", None),
        ("BOOLEAN", "INT", None),
        ("TIMESTAMP", "TIMESTAMP_NTZ", None),
        ("STRING", "INT", None),
        ("BINARY", "STRING", None),
    ],
)
def test_the_least_type_that_holds_both(one: str, other: str, expected: str | None) -> None:
    assert common_type(one, other) == expected
    assert common_type(other, one) == expected


@pytest.mark.parametrize(
    ("column", "value", "expected"),
    [
        ("TINYINT", "SMALLINT", "SMALLINT"),
        # Delta leaves room for the digits of an INT, or of a BIGINT
        ("TINYINT", "DECIMAL(5,2)", "DECIMAL(12,2)"),
        ("INT", "DECIMAL(8,4)", "DECIMAL(14,4)"),
        ("BIGINT", "DECIMAL(8,4)", "DECIMAL(24,4)"),
        ("BIGINT", "DECIMAL(38,20)", None),
        ("INT", "STRING", None),
    ],
)
def test_what_a_column_is_widened_to(column: str, value: str, expected: str | None) -> None:
    assert widened(column, value) == expected


Field = dict[str, Any]


def plain(name: str, kind: str) -> Field:
    return {"field": name, "type": kind, "optional": True}


def decimal(name: str, precision: int, scale: int) -> Field:
    parameters = {"scale": str(scale), "connect.decimal.precision": str(precision)}
    return {**plain(name, "bytes"), "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters}


def digits(unscaled: int) -> str:
    return base64.b64encode(unscaled.to_bytes(8, "big", signed=True)).decode()


def typed(made: Record, fields: list[Field]) -> Record:
    """Return the record with the schemas of its row; the first field is its key."""
    row = {"type": "struct", "optional": True, "fields": fields}
    source = {"type": "struct", "field": "source", "fields": [plain(name, "string") for name in ("connector", "commit_lsn", "change_lsn")]}
    envelope = {"type": "struct", "fields": [{**row, "field": "before"}, {**row, "field": "after"}, source]}
    key = {"schema": {"type": "struct", "fields": fields[:1]}, "payload": made["key"]}
    return {**made, "key": key, "value": {"schema": envelope, "payload": made["value"]}}


OLD = [plain("id", "int32"), plain("n", "int16"), plain("f", "float"), decimal("d", 10, 2), plain("kept", "int64")]
NEW = [plain("id", "int64"), plain("n", "int32"), plain("f", "double"), decimal("d", 8, 4), plain("kept", "int32")]
HUGE = 2**40


class Source:
    """One table's events, each load with the schema that it then has."""

    def __init__(self, apply: Apply, folder: Path, flow: CdcFlow) -> None:
        self.lake, self._archive, self._apply, self._flow = folder / "lake", folder / "archive", apply, flow
        self._change = self._loads = 0

    def event(self, op: str, fields: list[Field], *values: Any) -> Record:
        self._change += 1
        image = dict(zip([field["field"] for field in fields], values, strict=False))
        side = "before" if op == "d" else "after"
        change = self._change
        made = sqlserver(op, commit=change, change=change, offset=change, topic=TOPIC, key={"id": image["id"]}, **{side: image})
        return typed(made, fields)

    def load(self, *events: Record, may_fail: bool = False) -> FlowOutcome:
        self._loads += 1
        write_records(self._archive / f"{self._loads:03d}.jsonl", events)
        outcome: FlowOutcome = self._apply(self._archive, self.lake, flows={TOPIC: self._flow}, may_fail=may_fail).flows[0]
        return outcome


@pytest.mark.parametrize("on_delete", [OnDelete.REMOVE, pytest.param(OnDelete.FLAG, marks=pytest.mark.deep)])
def test_a_table_takes_wider_types_its_key_s_too(on_delete: OnDelete, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    source = Source(apply, tmp_path, CdcFlow(TOPIC, on_delete=on_delete))
    rows = [source.event("c", OLD, number, 7, 0.5, digits(125), 1) for number in (1, 2, 3)]
    # A delete marker has the key's type too.
    source.load(*rows, source.event("d", OLD, 3))
    created = source.event("c", NEW, HUGE, 70_000, 0.1, digits(12345), 2)
    # The old schema's values, and the new one's, in one microbatch.
    outcome = source.load(
        created, source.event("u", OLD, 1, 8, 1.5, digits(150), 3), source.event("d", NEW, 2), source.event("d", NEW, HUGE)
    )
    assert outcome.error is None
    assert outcome.batches[0].columns_widened == ("id", "n", "f", "d")
    again = source.event("c", NEW, HUGE + 1, 70_000, 0.1, digits(12345), 2)
    # What was deleted before stays deleted: its marker was widened with the table.
    late = {**rows[2], "offset": 999}
    batch = source.load(again, late).batches[0]
    assert (batch.columns_widened, batch.events.stale) == ((), 1)
    assert read_rows(spark, str(source.lake), TOPIC).rows == [
        {"id": 1, "n": 8, "f": 1.5, "d": Decimal("1.5000"), "kept": 3},
        {"id": HUGE + 1, "n": 70_000, "f": 0.1, "d": Decimal("1.2345"), "kept": 2},
    ]
    found = columns_of(spark, str(source.lake / TOPIC))
    assert found == {"id": "BIGINT", "n": "INT", "f": "DOUBLE", "d": "DECIMAL(12,4)", "kept": "BIGINT"}


def test_a_table_that_was_widened_takes_the_next_microbatches(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    # delta-rs opens a table with type widening, and refuses to commit to it: every later run ended with "another run committed first".
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    narrow, wide = ([plain("id", "int32"), plain("n", kind)] for kind in ("int32", "int64"))
    source.load(source.event("c", narrow, 1, 7))
    assert source.load(source.event("c", wide, 2, HUGE)).batches[0].columns_widened == ("n",)
    (batch,) = source.load(source.event("u", wide, 1, HUGE), source.event("d", wide, 2)).batches
    assert batch.engine == "mixed"
    assert "feature" in batch.engine_reason
    assert read_rows(spark, str(source.lake), TOPIC).rows == [{"id": 1, "n": HUGE}]


def test_what_no_type_holds_stops_the_flow_with_both_schemas_and_goes_on_once_it_is_declared(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    source.load(source.event("c", OLD, 1, 7, 0.5, digits(125), 1))
    changed = [*OLD[:1], plain("n", "string"), OLD[2], plain("d", "double"), OLD[4]]
    error = source.load(source.event("c", changed, 2, "7", 0.5, 1.25, 1), may_fail=True).error
    assert error is not None
    assert error["type"] == "SchemaChangeError"
    assert "n: SMALLINT | STRING; d: DECIMAL(10,2) | DOUBLE" in error["message"]
    declared = CdcFlow(TOPIC, columns={"n": "SMALLINT", "d": "DECIMAL(10,2)"})
    outcome = apply(tmp_path / "archive", source.lake, flows={TOPIC: declared}).flows[0]
    assert outcome.error is None
    assert [(row["id"], row["n"], row["d"]) for row in read_rows(spark, str(source.lake), TOPIC).rows] == [
        (1, 7, Decimal("1.25")),
        (2, 7, Decimal("1.25")),
    ]


@pytest.mark.deep
def test_what_the_error_of_a_changed_type_advises_works_to_the_letter(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """To declare the new type gave the same error again, for the table still had the old one."""
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    as_number, as_text = [OLD[0], plain("n", "int32")], [OLD[0], plain("n", "string")]
    source.load(source.event("c", as_number, 1, 7))
    error = source.load(source.event("c", as_text, 2, "8"), source.event("c", as_text, 3, "nine"), may_fail=True).error
    assert error is not None
    assert "the type that the table has" in error["next_step"]
    assert "STRING, and rebuild the flow" in error["next_step"]

    def again(kind: str, lake: Path, *, may_fail: bool = False) -> FlowOutcome:
        flows = {TOPIC: CdcFlow(TOPIC, columns={"n": kind})}
        outcome: FlowOutcome = apply(tmp_path / "archive", lake, flows=flows, may_fail=may_fail).flows[0]
        return outcome

    kept = shutil.copytree(source.lake, tmp_path / "kept")
    assert (again("STRING", source.lake, may_fail=True).error or {})["next_step"] == error["next_step"]
    shutil.rmtree(source.lake / TOPIC)
    shutil.rmtree(source.lake / "_cdc/flows" / TOPIC)
    assert again("STRING", source.lake).error is None
    assert [(row["id"], row["n"]) for row in read_rows(spark, str(source.lake), TOPIC).rows] == [(1, "7"), (2, "8"), (3, "nine")]

    assert again("INT", kept).batches[-1].rejects == {"value_does_not_fit_column": 1}
    assert [(row["id"], row["n"]) for row in read_rows(spark, str(kept), TOPIC).rows] == [(1, 7), (2, 8)]


@pytest.mark.deep
def test_a_column_that_comes_back_with_another_type_is_text_of_every_value_and_reported(
    apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    """A text that was dropped and came back as a boolean: the table keeps its type, and nothing reported it."""
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    source.load(source.event("c", [OLD[0], plain("gone", "string")], 1, "yes"))
    source.load(source.event("c", OLD[:1], 2))
    back = [OLD[0], plain("gone", "boolean")]
    for value in (True, None):
        assert source.load(source.event("c", back, 3 if value else 4, value)).batches[0].columns_as_text == ("gone",)
    found = [(row["id"], row["gone"]) for row in read_rows(spark, str(source.lake), TOPIC).rows]
    assert found == [(1, "yes"), (2, None), (3, "true"), (4, None)]
    assert source.load(source.event("c", [OLD[0], plain("gone", "string")], 5, "x")).batches[0].columns_as_text == ()

    # Bytes need not be the UTF-8 for which a cast takes them.
    of_bytes = [OLD[0], plain("gone", "bytes")]
    error = source.load(source.event("c", of_bytes, 6, "/w=="), may_fail=True).error
    assert error is not None
    assert "gone: STRING | BINARY" in error["message"]
    declared = CdcFlow(TOPIC, columns={"gone": "STRING"})
    assert apply(tmp_path / "archive", source.lake, flows={TOPIC: declared}).ok
    assert read_rows(spark, str(source.lake), TOPIC).rows[-1]["gone"] == "/w=="


@pytest.mark.parametrize("on_delete", [OnDelete.REMOVE, pytest.param(OnDelete.FLAG, marks=pytest.mark.deep)])
def test_a_key_that_becomes_a_number_is_compared_as_text(on_delete: OnDelete, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """As a number 7 is '07' too, and its row was deleted."""
    source = Source(apply, tmp_path, CdcFlow(TOPIC, on_delete=on_delete))
    text, number = ([plain("id", kind), plain("n", "int32")] for kind in ("string", "int32"))
    source.load(source.event("c", text, "07", 1), source.event("c", text, "7", 2), source.event("c", text, "x", 3))
    source.load(source.event("d", number, 7))
    rows = read_rows(spark, str(source.lake), TOPIC).rows
    live = [row["id"] for row in rows if not row.get("__cdc_deleted")]
    assert live == ["07", "x"]


def test_a_row_is_known_by_its_image_though_its_decimals_have_other_digits(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """One batch holds the column's two scales: the update's image before was taken for another row's, and what it left out was lost."""
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    old = [plain("id", "int64"), decimal("d", 10, 2), plain("gone", "string")]
    new = [plain("id", "int64"), decimal("d", 12, 4), plain("kept", "string")]
    first = source.event("c", old, 1, digits(125), "left")
    images = {"before": {"id": 1, "d": digits(12_500), "kept": None}, "after": {"id": 1, "d": digits(12_500), "kept": "new"}}
    second = typed(sqlserver("u", commit=2, change=2, offset=2, topic=TOPIC, key={"id": 1}, **images), new)
    source.load(first, second)
    (row,) = read_rows(spark, str(source.lake), TOPIC).rows
    assert (row["d"], row["gone"], row["kept"]) == (Decimal("1.2500"), "left", "new")


DAY, MOMENT = (
    {"type": kind, "name": f"io.debezium.time.{name}", "optional": True} for kind, name in (("int32", "Date"), ("int64", "Timestamp"))
)
MIDNIGHT = 86_400_000


@pytest.mark.both_engines
def test_a_date_becomes_a_timestamp_in_a_table_that_had_none(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """Delta's feature for such a column was not enabled: the flow stopped for ever, though its key and its delete markers only grew."""
    source = Source(apply, tmp_path, CdcFlow(TOPIC))
    days, moments = ([{**of, "field": "id"}, plain("v", "string")] for of in (DAY, MOMENT))
    source.load(*(source.event("c", days, day, "old") for day in (1, 2, 3)), source.event("d", days, 3))
    changed = source.load(source.event("u", moments, MIDNIGHT, "new"), source.event("d", moments, 2 * MIDNIGHT))
    assert changed.batches[0].columns_widened == ("id",)
    source.load(source.event("c", moments, MIDNIGHT + 1_500, "exact"))
    found = [(str(row["id"]), row["v"]) for row in read_rows(spark, str(source.lake), TOPIC).rows]
    assert found == [("1970-01-02 00:00:00", "new"), ("1970-01-02 00:00:01.500000", "exact")]


@pytest.mark.parametrize(
    "flow", [CdcFlow(TOPIC), pytest.param(CdcFlow(TOPIC, stored_as_scd_type=2), marks=pytest.mark.deep)], ids=["rows", "versions"]
)
def test_a_first_timestamp_column_is_added(flow: CdcFlow, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """As above; the log beside a table of versions gets it too."""
    source = Source(apply, tmp_path, flow)
    old = [plain("id", "int32"), plain("v", "string")]
    source.load(source.event("c", old, 1, "a"))
    assert source.load(source.event("c", [*old, {**MOMENT, "field": "at"}], 2, "b", 0)).batches[0].columns_added == ("at",)
    found = [(row["id"], str(row["at"])) for row in read_rows(spark, str(source.lake), TOPIC).rows]
    assert found == [(1, "None"), (2, "1970-01-01 00:00:00")]
