"""What the log says of a file's values holds every one of them, as readers compare; and each engine merges into what the other wrote."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.pipeline.apply.native.merge import append_rows
from airflow_cdc.pipeline.target import alter_table, key_range
from airflow_cdc.pipeline.target.add_actions import read_adds, statistics_of
from airflow_cdc.pipeline.target.create_natively import made_ready
from tests.conftest import Apply
from tests.support.events import TOPIC, Record, numbered, sqlserver, write_records
from tests.support.rounded import as_of_delta_rs

pytest.importorskip("duckdb")

Draw = Callable[[Random], Any]
UTC = timezone.utc
LAST_DAY = date(9999, 12, 31).toordinal()
LETTERS = [
    "a",
    "z",
    "\u00e9",
    "\ud7ff",
    "\ue000",
    "\uffff",
    "\U00010000",
    "\U0001f600",
    "\U00020000",
    "\U0010fffe",
    "\U0010ffff",
    "\x00",
    "'",
]


def number(chance: Random, digits: int, scale: int = 0) -> Decimal:
    return Decimal(f"{chance.choice(('', '-'))}{chance.randrange(10 ** chance.randint(1, digits))}E-{scale}")


def letters(chance: Random) -> str:
    return "".join(chance.choice(LETTERS) for _ in range(chance.choice((0, 1, 31, 32, 33, 70)))) or chance.choice(LETTERS) * 40


def instant(chance: Random) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=chance.randint(-9_000_000_000_000_000, 9_000_000_000_000_000))


TYPES: dict[str, tuple[pa.DataType, Draw, str]] = {
    "BIGINT": (pa.int64(), lambda chance: chance.choice((2**63 - 1, -(2**63), chance.getrandbits(62), 0)), "{}"),
    "SMALLINT": (pa.int16(), lambda chance: chance.randint(-(2**15), 2**15 - 1), "{}"),
    "DECIMAL(9,2)": (pa.decimal128(9, 2), lambda chance: number(chance, 9, 2), "CAST('{:f}' AS DECIMAL(9, 2))"),
    "DECIMAL(18,0)": (pa.decimal128(18, 0), lambda chance: number(chance, 18), "CAST('{:f}' AS DECIMAL(18, 0))"),
    "DECIMAL(20,4)": (pa.decimal128(20, 4), lambda chance: number(chance, 20, 4), "CAST('{:f}' AS DECIMAL(20, 4))"),
    "DECIMAL(38,0)": (pa.decimal128(38, 0), lambda chance: number(chance, 38), "CAST('{:f}' AS DECIMAL(38, 0))"),
    "DECIMAL(38,38)": (pa.decimal128(38, 38), lambda chance: number(chance, 38, 38), "CAST('{:f}' AS DECIMAL(38, 38))"),
    "DOUBLE": (
        pa.float64(),
        lambda chance: chance.choice((float("nan"), float("inf"), -0.0, 0.0, 5e-324, chance.uniform(-1e300, 1e300), chance.random())),
        "CAST('{!r}' AS DOUBLE)",
    ),
    "FLOAT": (
        pa.float32(),
        lambda chance: chance.choice((float("nan"), -0.0, 0.0, 0.5, float(chance.randint(-(2**24), 2**24)))),
        "CAST('{!r}' AS REAL)",
    ),
    "STRING": (pa.string(), letters, "'{}'"),
    "DATE": (pa.date32(), lambda chance: date.fromordinal(chance.choice((1, LAST_DAY, chance.randint(1, LAST_DAY)))), "CAST('{}' AS DATE)"),
    "TIMESTAMP": (pa.timestamp("us", "UTC"), instant, "TIMESTAMP '{:%Y-%m-%dT%H:%M:%S.%fZ}'"),
    "TIMESTAMP_NTZ": (
        pa.timestamp("us"),
        lambda chance: instant(chance).replace(tzinfo=None),
        "arrow_cast('{:%Y-%m-%dT%H:%M:%S.%f}', 'Timestamp(Microsecond, None)')",
    ),
    "BINARY": (pa.binary(), lambda chance: chance.randbytes(40), ""),
}  # fmt: skip


def order_of(value: Any) -> Any:
    """Return a value as the log spells it is to be compared: text by its bytes, instants as they are, decimals by all digits."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, datetime):
        return value.replace(tzinfo=None)
    return value


def ends_of(statistics: dict[str, Any], kind: str) -> tuple[Any, Any] | None:
    """Return the least and the greatest value that the log names; None where it names none."""
    low, high = statistics["minValues"].get("c"), statistics["maxValues"].get("c")
    if low is None or high is None:
        assert low is high
        return None
    if kind == "DATE":
        return date.fromisoformat(low), date.fromisoformat(high)
    if kind.startswith("TIMESTAMP"):
        return datetime.fromisoformat(low.removesuffix("Z")), datetime.fromisoformat(high.removesuffix("Z"))
    if kind in {"DOUBLE", "FLOAT"}:
        return float(low), float(high)
    return order_of(low), order_of(high)


@pytest.mark.parametrize("kind", TYPES)
def test_the_log_s_ranges_hold_every_value_and_a_reader_finds_it(kind: str, tmp_path: Path) -> None:
    arrow, draw, literal = TYPES[kind]
    chance, uri, wrote = Random(kind), str(tmp_path / "t"), list[Any]()
    for _ in range(12):
        values = [draw(chance) for _ in range(chance.randint(1, 3))]
        before = set(read_adds(uri, DeltaTable(uri))) if wrote else set()
        rows = pa.table({"c": pa.array(values, arrow)})
        append_rows(made_ready(uri, rows.schema, configuration={}), uri, rows, of=None)
        wrote += rows.column("c").to_pylist()
        (action,) = [action for path, action in read_adds(uri, DeltaTable(uri)).items() if path not in before]
        if ends := ends_of(statistics_of(action), kind):
            assert all(ends[0] <= order_of(value) <= ends[1] for value in rows.column("c").to_pylist()), (action["stats"], values)
        else:
            # A number that is none is above all others to Spark, and an end that cannot be cut has no text behind it.
            assert kind in {"DOUBLE", "FLOAT", "BINARY", "STRING"}
    table = QueryBuilder().register("t", DeltaTable(uri))
    for value in wrote if literal else ():
        text = literal.format(value.replace("'", "''") if isinstance(value, str) else value)
        found = pa.table(table.execute(f"SELECT count(*) AS n FROM t WHERE c = {text}")).column("n")[0].as_py()
        assert found >= sum(repr(other) == repr(value) for other in wrote), text


def change(op: str, key: Decimal, commit: int, name: str, amount: Decimal) -> Record:
    image = {"id": f"{key:f}", "amount": f"{amount:f}", "name": name}
    return sqlserver(op, commit=commit, **({"before": image} if op == "d" else {"after": image}))


@pytest.mark.parametrize("is_marked", [True, False], ids=["marked", "copied"])
def test_each_engine_merges_into_what_the_other_wrote_and_into_what_delta_rs_did(
    is_marked: bool, apply: Apply, spark: SparkSession, archive: Path, lake: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(alter_table, "DELETION_VECTORS_FROM_BYTES", 0 if is_marked else 2**60)
    monkeypatch.setattr(key_range, "ASKED_FROM_BYTES", 0)
    chance, rows, events = Random(is_marked), dict[Decimal, tuple[str, Decimal]](), 0
    keys = [Decimal(2**53 + 1), Decimal(2**64 - 1), Decimal(-(2**53) - 1), *(number(chance, 20) for _ in range(9))]
    for turn in range(6):
        engine = (Engine.NATIVE, Engine.SPARK)[turn % 2]
        records = []
        for place, key in enumerate(chance.sample(keys, 6)):
            op = "c" if key not in rows else chance.choice("ud")
            name, amount = f"{turn}.{place}", number(chance, 20, 4)
            if op == "d":
                amount = rows.pop(key)[1]
            else:
                rows[key] = name, amount
            records.append(change(op, key, 1 + turn * 10 + place, name, amount))
        write_records(archive / f"{turn}.jsonl", numbered(records, first=events))
        events += len(records)
        flow = CdcFlow(TOPIC, columns={"id": "DECIMAL(20,0)", "amount": "DECIMAL(20,4)", "name": "STRING"}, engine=engine)
        apply(archive, lake, flows={TOPIC: flow}, engine=engine)
        table = spark.read.format("delta").load(str(lake / TOPIC))
        found = table.select("id", "name", "amount").collect()
        assert {row["id"]: (row["name"], row["amount"]) for row in found} == rows
        assert len(found) == len(rows)
        for key, (_, amount) in rows.items():
            assert table.filter(f"id = {key:f}BD AND amount = {amount:f}BD").count() == 1
        if turn in (2, 3):
            as_of_delta_rs(lake / TOPIC)
            # Spark remembers a log, whose commits nobody else changes.
            spark._jvm.org.apache.spark.sql.delta.DeltaLog.clearCache()  # type: ignore[union-attr]
