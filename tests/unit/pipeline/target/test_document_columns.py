"""Document columns: they follow the document whatever becomes of it; what they read stands in test_extended_json.py."""

from __future__ import annotations

import base64
import gzip
import json
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.document_columns import DocumentColumn, document_columns
from airflow_cdc.model.flow.policies import OnDelete, WriteDisposition
from airflow_cdc.model.report.apply_report import ApplyReport, FlowStatus
from airflow_cdc.model.report.batch_report import EventCounts
from tests.conftest import Apply
from tests.support.events import mongodb, sqlserver, write_records
from tests.unit.pipeline.decode.types.test_extended_json import same

TOPIC = "mg.shop.orders"


def rows_of(spark: SparkSession, lake: Path, *columns: str, order: str = "_id") -> list[tuple[Any, ...]]:
    return [tuple(row) for row in spark.sql(f"SELECT {', '.join(columns)} FROM delta.`{lake}/{TOPIC}` ORDER BY {order}").collect()]


def misfits(report: ApplyReport) -> list[dict[str, int]]:
    return [batch.misfits for batch in report.flows[0].batches]


# The document's way

COLUMNS = document_columns({"n": "INT", "city": {"path": "address.city", "type": "STRING"}})
FLOW = {TOPIC: CdcFlow(TOPIC, document_columns=COLUMNS)}


def test_columns_follow_the_document_through_changes_deletes_and_late_events(
    apply: Apply, spark: SparkSession, archive: Path, lake: Path
) -> None:
    # load 1: a document and its change; one sent whole; a change of an unknown document; one whose number is none
    first = [
        mongodb("c", "1", second=10, offset=10, after='{"_id": 1,"n": 0,"address": {"city": "a"}}'),
        mongodb("u", "1", second=11, offset=11, updated='{"n": 1}'),
        mongodb("u", "2", second=11, offset=12, updated='{"n": 5}'),
        mongodb("c", "3", second=12, offset=13, after='{"_id": 3,"n": {"$numberLong": "3"}}'),
        mongodb("c", "4", second=12, offset=14, after='{"_id": 4,"n": "many"}'),
    ]
    write_records(archive / "1.jsonl", first)
    report = apply(archive, lake, flows=FLOW)

    assert report.flows[0].events == EventCounts(read=5, merged=4, superseded=1)
    assert misfits(report) == [{"n": 1}]
    held = rows_of(spark, lake, "_id", "n", "city", "document IS NULL")
    assert held == [("1", 1, "a", False), ("2", None, None, True), ("3", 3, None, False), ("4", None, None, False)]

    # load 2: changes of documents that only the target holds; one goes
    second = [
        mongodb("u", "1", second=30, offset=30, updated='{"address.city": "b"}'),
        mongodb("d", "3", second=31, offset=31),
        mongodb("u", "4", second=32, offset=32, updated='{"n": 4}'),
    ]
    write_records(archive / "2.jsonl", second)
    assert misfits(apply(archive, lake, flows=FLOW)) == [{}]
    assert rows_of(spark, lake, "_id", "n", "city") == [("1", 1, "b"), ("2", None, None), ("4", 4, None)]

    # load 3 comes late: a change before one that was applied, and the document that was unknown
    late = [
        mongodb("c", "2", second=2, offset=2, after='{"_id": 2,"address": {"city": "x"}}'),
        mongodb("u", "1", second=20, offset=20, updated='{"n": 9,"address": {"city": "late"}}'),
    ]
    write_records(archive / "3.jsonl", late)
    apply(archive, lake, flows=FLOW)
    assert rows_of(spark, lake, "_id", "n", "city") == [("1", 9, "b"), ("2", 5, "x"), ("4", 4, None)]


CHANGES = [
    mongodb("c", "1", second=1, offset=0, after='{"_id": 1,"n": 1,"address": {"city": "a"}}'),
    mongodb("u", "1", second=2, offset=1, updated='{"n": 2}'),
    mongodb("d", "1", second=3, offset=2),
]


@pytest.mark.deep
@pytest.mark.parametrize("together", [True, False])
def test_a_flagged_document_keeps_its_columns(together: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    for number, records in enumerate([CHANGES] if together else [[change] for change in CHANGES]):
        write_records(archive / f"{number}.jsonl", records)
        apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, document_columns=COLUMNS, on_delete=OnDelete.FLAG)})

    assert rows_of(spark, lake, "n", "city", "__cdc_deleted") == [(2, "a", True)]


@pytest.mark.deep
def test_a_change_log_has_the_columns_of_what_each_event_carries(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    wrong = mongodb("c", "2", second=4, offset=4, after='{"_id": 2,"n": 1.5}')
    broken = mongodb("c", "3", second=5, offset=5, after='{"_id": 3,"n"')
    write_records(archive / "1.jsonl", [*CHANGES, wrong, broken])
    report = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, document_columns=COLUMNS, write_disposition=WriteDisposition.APPEND)})

    rows = rows_of(spark, lake, "__cdc_op", "n", "city", order="__cdc_position")
    assert rows == [("c", 1, "a"), ("u", None, None), ("d", None, None), ("c", None, None), ("c", None, None)]
    assert misfits(report) == [{"n": 2, "city": 1}]


@pytest.mark.deep
@pytest.mark.parametrize("together", [True, False])
def test_each_version_has_the_columns_of_its_document(together: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    changes = [
        mongodb("c", "1", second=1, offset=0, after='{"_id": 1,"n": 1}'),
        mongodb("u", "1", second=2, offset=1, after='{"_id": 1,"n": "two"}'),
        mongodb("u", "1", second=3, offset=2, after='{"_id": 1,"n": 3,"address": {"city": "a"}}'),
        mongodb("d", "1", second=4, offset=3),
    ]
    counted = []
    for number, records in enumerate([changes] if together else [changes[2:], changes[:2]]):
        write_records(archive / f"{number}.jsonl", records)
        counted += misfits(apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, document_columns=COLUMNS, stored_as_scd_type=2)}))

    versions = rows_of(spark, lake, "n", "city", "__cdc_is_current", order="__cdc_position")
    assert versions == [(1, None, False), (None, None, False), (3, "a", False)]
    assert counted == ([{"n": 1}] if together else [{}, {"n": 1}])


# What a real database holds in the end

CAPTURES = Path(__file__).parents[3] / "golden" / "captures"
FLATTENED = {
    "name": "STRING",
    "qty": "INT",
    "big": "BIGINT",
    "price": "DECIMAL(10,2)",
    "when": "TIMESTAMP",
    "first_tag": {"path": "tags.0", "type": "STRING"},
    "tag_n": {"path": "tags.1.n", "type": "INT"},
    "city": {"path": "addr.city", "type": "STRING"},
    "lat": {"path": "addr.geo.lat", "type": "DOUBLE"},
    "f": "DOUBLE",
    "none": "BOOLEAN",
    "bin": "BINARY",
    "a_b": "BOOLEAN",
    "extra0": "BIGINT",
}


@pytest.mark.deep
@pytest.mark.parametrize(
    ("capture", "table"),
    [("mongo_patch_synth", "orders"), ("mongo_patch_synth", "carts"), ("mongo_full_synth", "orders"), ("mongo_full_synth", "carts")],
)
def test_the_columns_of_a_capture_are_those_of_the_database_s_last_documents(
    capture: str, table: str, apply: Apply, spark: SparkSession, lake: Path
) -> None:
    topic = f"mg.shop.{table}"
    flow = CdcFlow(topic, document_columns=document_columns(FLATTENED))
    report = apply(CAPTURES / capture / "archive/plain", lake, flows={topic: flow}, tables=(topic,))

    held = {row["_id"]: row for row in spark.sql(f"SELECT * FROM delta.`{lake}/{topic}`").collect()}
    with gzip.open(CAPTURES / capture / "final/plain" / f"{topic}.jsonl.gz", "rt", encoding="utf-8") as lines:
        final = {record["key"]["id"]: json.loads(record["value"]["after"]) for record in map(json.loads, lines)}
    assert held.keys() == final.keys()
    wrong = [
        (key, name, held[key][name], value)
        for key, document in final.items()
        for name, value in by_hand(document).items()
        if not same(held[key][name], value)
    ]
    assert wrong == []
    assert misfits(report) == [{}]


def by_hand(document: dict[str, Any]) -> dict[str, Any]:
    """Return what the columns of :data:`FLATTENED` hold of a document of the captures."""
    tags = document["tags"]
    long = document.get("extra0")
    return {
        "name": document.get("name"),
        "qty": document["qty"],
        "big": int(document["big"]["$numberLong"]),
        "price": Decimal(document["price"]["$numberDecimal"]),
        "when": datetime(1970, 1, 1) + timedelta(milliseconds=document["when"]["$date"]),  # noqa: DTZ001
        "first_tag": tags[0] if tags else None,
        "tag_n": tags[1]["n"] if len(tags) > 1 else None,
        "city": document["addr"]["city"],
        "lat": document["addr"]["geo"]["lat"],
        "f": document["f"],
        "none": document["none"],
        "bin": base64.b64decode(document["bin"]["$binary"]),
        "a_b": document["a_b"],
        "extra0": None if long is None else int(long["$numberLong"]),
    }


# The setting's way


@pytest.mark.deep
def test_columns_defined_later_or_otherwise_are_filled_for_all_rows(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    odd = "it's `$\\n"
    documents = [json.dumps({"_id": 1, odd: 1, "m": 10}), json.dumps({"_id": 2, odd: "x", "m": 20})]
    write_records(archive / "1.jsonl", [mongodb("c", str(at + 1), second=at, offset=at, after=text) for at, text in enumerate(documents)])
    apply(archive, lake)
    assert rows_of(spark, lake, "*")[0][:2] == ("1", documents[0])

    def load(number: int, setting: dict[str, Any]) -> ApplyReport:
        record = mongodb("c", "3", second=number, offset=number, after=json.dumps({"_id": 3, odd: number}))
        write_records(archive / f"{number}.jsonl", [record])
        return apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, document_columns=document_columns(setting))})

    report = load(3, {"a b": {"path": odd, "type": "INT"}})
    batch = report.flows[0].batches[0]
    assert (batch.columns_added, batch.columns_filled, batch.misfits) == (("a b",), ("a b",), {"a b": 1})
    assert rows_of(spark, lake, "_id", "`a b`") == [("1", 1), ("2", None), ("3", 3)]

    # The same again fills nothing, and counts what it wrote.
    batch = load(4, {"a b": {"path": odd, "type": "INT"}}).flows[0].batches[0]
    assert (batch.columns_added, batch.columns_filled, batch.misfits) == ((), (), {})

    # Another path, and another type that holds the old one.
    batch = load(5, {"a b": {"path": "m", "type": "BIGINT"}}).flows[0].batches[0]
    assert (batch.columns_added, batch.columns_widened, batch.columns_filled) == ((), ("a b",), ("a b",))
    assert rows_of(spark, lake, "_id", "`a b`") == [("1", 10), ("2", 20), ("3", None)]

    assert apply_spelled_otherwise(apply, archive, lake) == "ConfigurationError"

    # Without the setting the column stays, empty: nothing would keep it true.
    assert load(6, {}).flows[0].batches[0].columns_filled == ("a b",)
    assert rows_of(spark, lake, "_id", "`a b`") == [("1", None), ("2", None), ("3", None)]


def apply_spelled_otherwise(apply: Apply, archive: Path, lake: Path) -> str:
    setting = document_columns({"A B": {"path": "m", "type": "BIGINT"}})
    write_records(archive / "otherwise.jsonl", [mongodb("d", "9", second=5, offset=9)])
    report = apply(archive, lake, flows={TOPIC: CdcFlow(TOPIC, document_columns=setting)}, may_fail=True)
    assert report.flows[0].error is not None
    return str(report.flows[0].error["type"])


@pytest.mark.deep
def test_a_fill_that_was_cut_off_is_done_again(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    write_records(archive / "1.jsonl", [mongodb("c", "1", second=1, offset=1, after='{"_id": 1,"n": 1,"address": {"city": 5}}')])
    apply(archive, lake)
    write_records(archive / "2.jsonl", [mongodb("c", "2", second=2, offset=2, after='{"_id": 2,"n": "x"}')])

    for crashed in ("fill", "target", "merge"):

        def crash(effect: str, at: str = crashed) -> None:
            if effect == at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            apply(archive, lake, flows=FLOW, after_effect=crash)
        assert rows_of(spark, lake, "n", "city")[0] == (1, "5")

    # What is defined since the merge waits for the next microbatch; the merge that is there is counted as it is.
    more = {TOPIC: CdcFlow(TOPIC, document_columns={**COLUMNS, "more": DocumentColumn("m", "INT")})}
    assert misfits(apply(archive, lake, flows=more)) == [{"n": 1}]
    assert "more" not in spark.table(f"delta.`{lake}/{TOPIC}`").columns
    assert rows_of(spark, lake, "_id", "n", "city") == [("1", 1, "5"), ("2", None, None)]


def test_a_table_that_has_no_documents_refuses_the_setting(apply: Apply, archive: Path, lake: Path) -> None:
    topic = "server1.testDB.dbo.customers"
    write_records(archive / "1.jsonl", [sqlserver("c", commit=1, after={"id": 1}, offset=0)])
    report = apply(archive, lake, flows={topic: CdcFlow(topic, document_columns=COLUMNS)}, may_fail=True)

    assert report.flows[0].status is FlowStatus.FAILED
    assert report.flows[0].error is not None
    assert report.flows[0].error["type"] == "ConfigurationError"
    assert "'columns'" in report.flows[0].error["next_step"]
    assert not (lake / topic).exists()


def test_the_flows_file_spells_columns_short_or_with_a_path(tmp_path: Path) -> None:
    text = """
    flows:
    - topic: mg.shop.orders
      document_columns:
        qty: int
        price: decimal( 10, 2 )
        address.city: STRING
        first_sku: {path: items.0.sku, type: STRING}
        whole: {type: "DECIMAL(5)"}
    """
    (tmp_path / "flows.yaml").write_text(text)
    assert read_flows(tmp_path / "flows.yaml")[TOPIC].document_columns == {
        "qty": DocumentColumn("qty", "INT"),
        "price": DocumentColumn("price", "DECIMAL(10,2)"),
        "address.city": DocumentColumn("address.city", "STRING"),
        "first_sku": DocumentColumn("items.0.sku", "STRING"),
        "whole": DocumentColumn("whole", "DECIMAL(5,0)"),
    }


@pytest.mark.parametrize(
    ("setting", "word"),
    [
        ([], "a map of columns"),
        ({"n": 5}, "'n'"),
        ({"n": {"path": "n"}}, "'n'"),
        ({"n": {"path": "a..b", "type": "INT"}}, "'a..b'"),
        ({"n": {"path": "0.a", "type": "INT"}}, "'0.a'"),
        ({"n": {"path": "a.99999999999", "type": "INT"}}, "99999999999"),
        ({"n": "VARIANT"}, "'VARIANT'"),
        ({"n": "DECIMAL(39,2)"}, "'DECIMAL(39,2)'"),
        ({"n": "DECIMAL(2,3)"}, "'DECIMAL(2,3)'"),
        ({"Document": "STRING"}, "document"),
        ({"n": "INT", "N": {"path": "m", "type": "INT"}}, "twice"),
        ({"__cdc_n": {"path": "n", "type": "INT"}}, "reserved"),
    ],
)
def test_settings_that_no_table_can_have_are_refused(setting: Any, word: str) -> None:
    with pytest.raises(ConfigurationError, match=r"document_columns|reserved") as error:
        CdcFlow.from_mapping({"topic": TOPIC, "document_columns": setting})
    assert word in error.value.message
    assert error.value.next_step
