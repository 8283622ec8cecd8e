"""Bare events in every mode of each connector, through the whole pipeline: typed by a pulled schema, and by declarations.

How the connectors spell a value is Debezium's reference's (``tests/unit/model/catalogue/test_modes.py`` has its tables).
The table of docs/reference/types.md is made of the rows that come out.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema, SourceSchemas
from airflow_cdc.model.pull.settings import settings_of
from airflow_cdc.model.pull.source_column import source_column
from airflow_cdc.model.state.lake import FlowState
from airflow_cdc.pipeline.upkeep.inspect_lake import FlowRows
from tests.conftest import Apply
from tests.support.events import Record, mariadb, oracle, postgresql, sqlserver, write_records
from tests.support.tables import read_rows
from tests.unit.model.catalogue.test_modes import BINARIES, DECIMALS, MODES_OF_TIMES, ROWS, TIMES

TYPES_PAGE = Path(__file__).parents[2] / "docs/reference/types.md"
CONNECTORS = ("postgresql", "mariadb", "sqlserver", "oracle")
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc).replace(tzinfo=None)
DECLARED_DECIMALS: Mapping[str, Any] = {
    "precise": {"type": "DECIMAL(12,2)", "encoding": "base64"},
    "double": "DECIMAL(12,2)",
    "string": "DECIMAL(12,2)",
}
DECLARED_BINARIES: Mapping[str, Any] = {
    "bytes": "BINARY",
    "base64": "BINARY",
    "base64-url-safe": {"type": "BINARY", "encoding": "base64url"},
    "hex": {"type": "BINARY", "encoding": "hex"},
}
UNITS = {"": ("millis", 10**6), "Micro": ("micros", 10**3), "Nano": ("nanos", 1)}
"""By the front of a semantic type's name: the unit's name and its length in nanoseconds."""


@dataclass(frozen=True)
class Source:
    """The values of one row at the source."""

    number: Decimal
    data: bytes
    day: date
    nanos_of_day: int
    """Nanoseconds since midnight, of times of day and of timestamps; a column has as many digits of it as it holds."""


SOURCES = (
    Source(Decimal("1234.56"), b"\xfb\xef\xff\x00", date(2026, 11, 24), (10 * 3600 + 30 * 60 + 30) * 10**9 + 123_456_789),
    Source(Decimal("-0.05"), b"", date(1965, 3, 1), (23 * 3600 + 59 * 60 + 59) * 10**9),
)


@dataclass(frozen=True)
class Spelled:
    """A column of a mode: how it is declared, and for each source the JSON value, and what it is read as by schema and as declared."""

    kind: str
    mode: str
    row: tuple[Any, ...]
    setting: dict[str, str]
    declaration: Any
    json: tuple[Any, ...]
    known: tuple[Any, ...]
    declared: tuple[Any, ...]


def unscaled(number: Decimal) -> str:
    """Return an unscaled decimal of scale 2 as a connector's precise mode writes it."""
    whole = int(number * 100)
    return base64.b64encode(whole.to_bytes(whole.bit_length() // 8 + 1, "big", signed=True)).decode()


def decimals(row: tuple[Any, ...]) -> Iterator[Spelled]:
    numbers = tuple(source.number for source in SOURCES)
    spelled: dict[str, tuple[Any, ...]] = {"precise": tuple(map(unscaled, numbers)), "double": tuple(map(float, numbers))}
    spelled["string"] = tuple(map(str, numbers))
    for mode in DECIMALS:
        known = numbers if mode == "precise" else spelled[mode]
        yield Spelled("decimal", mode, row, {"decimal.handling.mode": mode}, DECLARED_DECIMALS[mode], spelled[mode], known, numbers)


def binaries(row: tuple[Any, ...]) -> Iterator[Spelled]:
    data = tuple(source.data for source in SOURCES)
    plain = tuple(base64.b64encode(each).decode() for each in data)
    url = tuple(base64.urlsafe_b64encode(each).decode() for each in data)
    spelled = {"bytes": plain, "base64": plain, "base64-url-safe": url, "hex": tuple(each.hex() for each in data)}
    for mode in BINARIES:
        known = data if mode == "bytes" else spelled[mode]
        yield Spelled("binary", mode, row, {"binary.handling.mode": mode}, DECLARED_BINARIES[mode], spelled[mode], known, data)


def times(connector: str, kind: str, row: tuple[Any, ...]) -> Iterator[Spelled]:
    for mode in (mode for each, mode in MODES_OF_TIMES if each == connector):
        name = TIMES[mode][kind][1].rpartition(".")[2]
        values = [time_value(name, source, digits_of(row)) for source in SOURCES]
        json_values, known, declared = zip(*values, strict=True)
        yield Spelled(kind, mode, row, {"time.precision.mode": mode}, declaration_of(name), json_values, known, declared)


def digits_of(row: tuple[Any, ...]) -> int:
    """Return how many digits of the second a catalogue's column holds; PostgreSQL's -1 is its six."""
    return 6 if row[5] == -1 else row[5] or 0


def declaration_of(name: str) -> Any:
    iso = {"IsoDate": "DATE", "IsoTime": "STRING", "IsoTimestamp": "TIMESTAMP_NTZ"}
    if name in iso:
        return iso[name]
    if name == "Date":
        return {"type": "DATE", "unit": "days"}
    front, kind = name.removesuffix("stamp").removesuffix("Time"), name.endswith("Timestamp")
    unit = UNITS[front][0]
    if not kind:
        return {"type": "STRING", "encoding": "time_of_day", "unit": unit}
    return {"type": "STRING", "encoding": "epoch", "unit": unit} if unit == "nanos" else {"type": "TIMESTAMP_NTZ", "unit": unit}


def time_value(name: str, source: Source, digits: int) -> tuple[Any, Any, Any]:
    """Return a time as JSON of a semantic type, and what it becomes by schema and as declared."""
    nanos = source.nanos_of_day // 10 ** (9 - digits) * 10 ** (9 - digits)
    seconds = str(timedelta(seconds=nanos // 10**9)).zfill(8)
    digits_shown = f"{nanos % 10**9:09d}"
    if name == "Date":
        days = (source.day - EPOCH.date()).days
        return days, source.day, source.day
    if name.startswith("Iso"):
        return iso_value(name, source, seconds + (f".{digits_shown[:digits]}" if digits else ""))
    front = name.removesuffix("stamp").removesuffix("Time")
    length = UNITS[front][1]
    if not name.endswith("Timestamp"):
        text = f"{seconds}.{digits_shown[: len(str(10**9 // length)) - 1]}"
        return nanos // length, text, text
    count = (source.day - EPOCH.date()).days * 86_400 * 10**9 + nanos
    if front == "Nano":
        text = f"{source.day} {seconds}.{digits_shown}"
        return count, text, text
    value = EPOCH + timedelta(microseconds=count // length * length // 1000)
    return count // length, value, value


def iso_value(name: str, source: Source, clock: str) -> tuple[Any, Any, Any]:
    text = {"IsoDate": f"{source.day}Z", "IsoTime": f"{clock}Z", "IsoTimestamp": f"{source.day}T{clock}Z"}[name]
    whole, _, fraction = clock.partition(".")
    stamp = datetime.combine(source.day, time.fromisoformat(f"{whole}.{fraction[:6]:0<6}"))
    return text, text, {"IsoDate": source.day, "IsoTime": text}.get(name, stamp)


def name_of(kind: str, mode: str) -> str:
    return f"{kind} {mode}".replace(" ", "_").replace("-", "_")


def columns_of(connector: str) -> dict[str, Spelled]:
    """Return every column of a connector's table, by name."""
    found: list[Spelled] = []
    for kind, row in ROWS[connector].items():
        if kind != "zoned":
            found += decimals(row) if kind == "decimal" else binaries(row) if kind == "binary" else times(connector, kind, row)
    return {name_of(spelled.kind, spelled.mode): spelled for spelled in found}


SOME_MODES = frozenset({"precise", "string", "bytes", "hex", "adaptive", "adaptive_time_microseconds", "isostring"})
"""The connectors' defaults, and of each setting one mode more."""


def is_declarable(spelled: Spelled) -> bool:
    """Return whether a type holds what is declared: a TIMESTAMP_NTZ ends at microseconds."""
    return spelled.declaration != "TIMESTAMP_NTZ" or digits_of(spelled.row) <= 6


def topic_of(connector: str) -> str:
    return f"{connector}.db.modes"


def event(connector: str, columns: Mapping[str, Spelled], number: int) -> Record:
    values = {name: spelled.json[number] for name, spelled in columns.items()}
    after = {"id": number, **values, **{f"{name}_declared": value for name, value in values.items()}}
    topic, place = topic_of(connector), 10 + number
    if connector == "postgresql":
        return postgresql("c", commit=place, change=place, after=after, topic=topic)
    if connector == "sqlserver":
        return sqlserver("c", commit=place, after=after, topic=topic)
    if connector == "oracle":
        return oracle("c", commit=place, change=place, after=after, topic=topic, key={"id": number}, partition=0)
    return mariadb("c", position=place, after=after, topic=topic, key={"id": number}, partition=0)


def pulled(connector: str, spelled: Mapping[str, Spelled]) -> SourceSchema:
    """Return what ``schema pull`` makes of the catalogue's rows, each column by the mode in which its values are."""
    columns = [
        SourceColumn(name, source_column(connector, each.row, settings_of(connector, each.setting)).field) for name, each in spelled.items()
    ]
    return SourceSchema(topic_of(connector), connector, (SourceColumn("id", {"type": "int32"}), *columns), ("id",))


@dataclass(frozen=True)
class Made:
    """By connector the columns, and the table that bare events of them made."""

    columns: dict[str, dict[str, Spelled]]
    tables: dict[str, FlowRows]


@pytest.fixture(scope="module", params=["some modes", pytest.param("every mode", marks=pytest.mark.deep)])
def made(request: pytest.FixtureRequest, apply: Apply, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Made:
    archive, lake = (tmp_path_factory.mktemp(name) for name in ("archive", "lake"))
    fs, flows = fsspec.filesystem("file"), {}
    columns = {connector: columns_of(connector) for connector in CONNECTORS}
    if request.param == "some modes":
        columns = {
            each: {name: spelled for name, spelled in found.items() if spelled.mode in SOME_MODES} for each, found in columns.items()
        }
    for connector, found in columns.items():
        topic = topic_of(connector)
        write_records(archive / f"{topic}.jsonl", [event(connector, found, number) for number in range(len(SOURCES))])
        SourceSchemas(fs, str(lake)).put(FlowState(fs, str(lake), topic).folder, pulled(connector, found))
        declared = {f"{name}_declared": spelled.declaration if is_declarable(spelled) else "STRING" for name, spelled in found.items()}
        flows[topic] = CdcFlow.from_mapping({"topic": topic, "columns": declared})
    apply(archive, lake, flows=flows)
    return Made(columns, {connector: read_rows(spark, str(lake), topic_of(connector)) for connector in CONNECTORS})


@pytest.mark.parametrize("connector", CONNECTORS)
def test_a_schema_reads_each_mode(connector: str, made: Made) -> None:
    rows = {row["id"]: row for row in made.tables[connector].rows}
    for number in range(len(SOURCES)):
        found = {name: rows[number][name] for name in made.columns[connector]}
        assert found == {name: spelled.known[number] for name, spelled in made.columns[connector].items()}


@pytest.mark.parametrize("connector", CONNECTORS)
def test_a_declaration_reads_each_mode(connector: str, made: Made) -> None:
    table = made.tables[connector]
    rows = {row["id"]: row for row in table.rows}
    columns = {name: spelled for name, spelled in made.columns[connector].items() if is_declarable(spelled)}
    for number in range(len(SOURCES)):
        found = {name: rows[number][f"{name}_declared"] for name in columns}
        assert found == {name: spelled.declared[number] for name, spelled in columns.items()}
    types = {name: table.columns[f"{name}_declared"] for name in columns}
    assert types == {name: type_of(spelled.declaration) for name, spelled in columns.items()}


def type_of(declaration: Any) -> str:
    return str(declaration if isinstance(declaration, str) else declaration["type"])


KINDS = ("date", "time", "fine time", "finest time", "timestamp", "fine timestamp", "finest timestamp")


def page_rows() -> set[tuple[str, ...]]:
    """Return the rows of the page's tables that begin with code."""
    lines = TYPES_PAGE.read_text(encoding="utf-8").splitlines()
    return {tuple(cell.strip() for cell in line.strip("|").split("|")) for line in lines if line.startswith("| `")}


@pytest.mark.parametrize("connector", CONNECTORS)
def test_the_page_shows_what_decimals_and_bytes_become(connector: str, made: Made) -> None:
    types, shown = made.tables[connector].columns, page_rows()
    for name, spelled in made.columns[connector].items():
        if spelled.kind in ("decimal", "binary"):
            declaration = in_yaml(spelled.declaration)
            assert (f"`{spelled.mode}`", f"`{json.dumps(spelled.json[0])}`", types[name], f"`{declaration}`") in shown


def in_yaml(declaration: Any) -> str:
    if isinstance(declaration, str):
        return declaration
    parts = (f'{name}: "{value}"' if "," in value else f"{name}: {value}" for name, value in declaration.items())
    return f"{{{', '.join(parts)}}}"


@pytest.mark.parametrize("connector", CONNECTORS)
def test_the_page_shows_what_times_become(connector: str, made: Made) -> None:
    by_mode = {row[0].strip("`"): dict(zip(KINDS, row[1:], strict=True)) for row in page_rows() if len(row) == len(KINDS) + 1}
    for name, spelled in made.columns[connector].items():
        if spelled.kind in KINDS:
            assert by_mode[spelled.mode][spelled.kind] == made.tables[connector].columns[name] + cut(spelled), name


def cut(spelled: Spelled) -> str:
    """Return how many digits of the second are left, where the connector cut some."""
    value = spelled.known[0]
    text = f"{value.microsecond:06d}" if isinstance(value, datetime) else str(value).partition(".")[2].rstrip("Z")
    left = len(text.rstrip("0"))
    return f", {left} digits" if left < digits_of(spelled.row) and spelled.kind != "date" else ""
