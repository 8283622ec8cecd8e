"""``decimal.format=NUMERIC``: decimals as JSON numbers, of more digits than a double holds."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from tests.conftest import Apply
from tests.support.events import sqlserver
from tests.support.tables import read_rows

TOPIC = "server1.testDB.dbo.prices"
LONG, OTHER = "1234567890123456.12345678901234567", "1234567890123456.12345678901234568"


def struct(*fields: dict[str, Any], name: str | None = None) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields), "optional": True, **({"name": name} if name else {})}


def decimal(name: str) -> dict[str, Any]:
    parameters = {"scale": "17", "connect.decimal.precision": "38"}
    return {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": parameters, "optional": True, "field": name}


ROW = struct(decimal("id"), decimal("price"), name="prices.Value")
SOURCE = struct(*[{"type": "string", "optional": True, "field": name} for name in ("connector", "commit_lsn", "change_lsn")])
ENVELOPE = struct(*[{**image, "field": side} for side, image in (("before", ROW), ("after", ROW), ("source", SOURCE))])


def line(op: str, change: int, number: str, price: str | None, *, schemas: bool) -> str:
    """Return an archived line whose decimals are the letters given, as numbers."""
    image = {"id": "NUMBER", "price": None if price is None else "PRICE"}
    made = sqlserver(
        op, commit=change, change=change, offset=change, topic=TOPIC, key={"id": "NUMBER"}, **{"before" if op == "d" else "after": image}
    )
    if schemas:
        key = {"schema": struct(decimal("id")), "payload": made["key"]}
        made = {**made, "key": key, "value": {"schema": ENVELOPE, "payload": made["value"]}}
    return json.dumps(made).replace('"NUMBER"', number).replace('"PRICE"', price or "")


@pytest.mark.deep
@pytest.mark.parametrize("schemas", [True, False], ids=["schemas", "none"])
def test_every_digit_arrives_also_of_keys(schemas: bool, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    sent = [("c", LONG, LONG), ("c", OTHER, "-0.10"), ("c", "7", "1e3"), ("u", "7", OTHER), ("d", OTHER, None)]
    lines = [line(op, place + 1, number, price, schemas=schemas) for place, (op, number, price) in enumerate(sent)]
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "1.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    # Without schemas what the numbers look like decides, and may be declared.
    flow = CdcFlow(TOPIC) if schemas else CdcFlow(TOPIC, columns={"id": "DECIMAL(38,17)", "price": "DECIMAL(38,17)"})
    outcome = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow}).flows[0]
    assert outcome.error is None
    assert read_rows(spark, str(tmp_path / "lake"), TOPIC).rows == [
        {"id": Decimal("7.00000000000000000"), "price": Decimal(OTHER)},
        {"id": Decimal(LONG), "price": Decimal(LONG)},
    ]


def test_digits_in_front_of_an_exponent_arrive_too(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    """Java spells small decimals so. A double kept 17 of their digits, and two keys became one."""
    small, other, long = "1.234567890123456789012E-7", "1.234567890123456789013E-7", f"0.{'0' * 10}{'12345' * 4}{'0' * 10}"
    sent = [("c", small, small), ("c", other, "2.5E-3"), ("c", "7", long), ("u", other, other)]
    lines = [line(op, place + 1, number, price, schemas=False) for place, (op, number, price) in enumerate(sent)]
    # The images before and after hold two numbers that are one double: which is whose is not certain.
    changed = line("u", 9, "7", other, schemas=False)
    assert '"before": null' in changed
    lines.append(changed.replace('"before": null', f'"before": {{"id": 7, "price": {small}}}'))
    (tmp_path / "archive").mkdir()
    (tmp_path / "archive" / "1.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    flow = CdcFlow(TOPIC, columns={"id": "DECIMAL(38,30)", "price": "DECIMAL(38,30)"})
    outcome = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow}).flows[0]
    assert (outcome.error, outcome.events.rejected) == (None, 1)
    rows = {row["id"]: row["price"] for row in read_rows(spark, str(tmp_path / "lake"), TOPIC).rows}
    assert rows == {Decimal(small): Decimal(small), Decimal(other): Decimal(other), Decimal(7): Decimal(long)}
