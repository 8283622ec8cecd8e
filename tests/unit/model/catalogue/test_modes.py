"""Each mode of a connector, for a type of each kind, as Debezium's reference maps it ("Data type mappings" of each connector)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.model.catalogue.spelled import CONNECT, TIME, decimal, spelled

POSTGRESQL: dict[str, tuple[Any, ...]] = {
    "decimal": ("c", "numeric(12,2)", "numeric", "b", False, (12 << 16 | 2) + 4, None),
    "binary": ("c", "bytea", "bytea", "b", False, -1, None),
    "date": ("c", "date", "date", "b", False, -1, None),
    "time": ("c", "time(3) without time zone", "time", "b", False, 3, None),
    "fine time": ("c", "time without time zone", "time", "b", False, -1, None),
    "timestamp": ("c", "timestamp(3) without time zone", "timestamp", "b", False, 3, None),
    "fine timestamp": ("c", "timestamp without time zone", "timestamp", "b", False, -1, None),
    "zoned": ("c", "timestamp with time zone", "timestamptz", "b", False, -1, None),
}
MYSQL: dict[str, tuple[Any, ...]] = {
    "decimal": ("c", "decimal(12,2)", "decimal", 12, 2, None),
    "binary": ("c", b"varbinary(30)", b"varbinary", None, None, None),
    "date": ("c", "date", "date", None, None, None),
    "time": ("c", "time", "time", None, None, 0),
    "fine time": ("c", "time(6)", "time", None, None, 6),
    "timestamp": ("c", "datetime", "datetime", None, None, 0),
    "fine timestamp": ("c", "datetime(6)", "datetime", None, None, 6),
    "zoned": ("c", "timestamp(6)", "timestamp", None, None, 6),
}
SQL_SERVER: dict[str, tuple[Any, ...]] = {
    "decimal": ("c", "decimal", "decimal", 9, 12, 2),
    "binary": ("c", "varbinary", "varbinary", -1, 0, 0),
    "date": ("c", "date", "date", 3, 10, 0),
    "time": ("c", "time", "time", 3, 8, 0),
    "fine time": ("c", "time", "time", 5, 13, 4),
    "finest time": ("c", "time", "time", 5, 16, 7),
    "timestamp": ("c", "datetime", "datetime", 8, 23, 3),
    "fine timestamp": ("c", "datetime2", "datetime2", 8, 26, 6),
    "finest timestamp": ("c", "datetime2", "datetime2", 8, 27, 7),
    "zoned": ("c", "datetimeoffset", "datetimeoffset", 10, 34, 7),
}
ORACLE: dict[str, tuple[Any, ...]] = {
    "decimal": ("C", "NUMBER", 22, 0, 12, 2),
    "binary": ("C", "RAW", 20, 0, None, None),
    # Oracle's DATE holds a time of day.
    "timestamp": ("C", "DATE", 7, 0, None, None),
    "fine timestamp": ("C", "TIMESTAMP(6)", 11, 0, None, 6),
    "finest timestamp": ("C", "TIMESTAMP(9)", 11, 0, None, 9),
    "zoned": ("C", "TIMESTAMP(6) WITH TIME ZONE", 13, 0, None, 6),
}
DB2: dict[str, tuple[Any, ...]] = {
    "decimal": ("C", "SYSIBM  ", "DECIMAL", 12, 2, 0),
    "date": ("C", "SYSIBM  ", "DATE", 4, 0, 0),
    "time": ("C", "SYSIBM  ", "TIME", 3, 0, 0),
    "timestamp": ("C", "SYSIBM  ", "TIMESTAMP", 7, 0, 0),
    "fine timestamp": ("C", "SYSIBM  ", "TIMESTAMP", 10, 6, 0),
    "finest timestamp": ("C", "SYSIBM  ", "TIMESTAMP", 13, 12, 0),
}
ROWS = {"postgresql": POSTGRESQL, "mysql": MYSQL, "mariadb": MYSQL, "sqlserver": SQL_SERVER, "oracle": ORACLE, "db2": DB2}

DECIMALS = {"precise": decimal(12, 2), "double": ("double",), "string": ("string",)}

BINARIES = {"bytes": ("bytes",), "base64": ("string",), "base64-url-safe": ("string",), "hex": ("string",)}

_ADAPTIVE_STAMPS = {
    "timestamp": ("int64", f"{TIME}.Timestamp"),
    "fine timestamp": ("int64", f"{TIME}.MicroTimestamp"),
    "finest timestamp": ("int64", f"{TIME}.NanoTimestamp"),
}
_DATE = {"date": ("int32", f"{TIME}.Date")}


def _all(date: tuple[str, str], time: tuple[str, str], timestamp: tuple[str, str]) -> dict[str, tuple[str, str]]:
    return {"date": date, **{f"{fine}time": time for fine in FINE}, **{f"{fine}timestamp": timestamp for fine in FINE}}


FINE = ("", "fine ", "finest ")
TIMES: dict[str, dict[str, tuple[str, str]]] = {
    "adaptive": {
        **_DATE,
        **_ADAPTIVE_STAMPS,
        "time": ("int32", f"{TIME}.Time"),
        "fine time": ("int64", f"{TIME}.MicroTime"),
        "finest time": ("int64", f"{TIME}.NanoTime"),
    },
    "adaptive_time_microseconds": {**_DATE, **_ADAPTIVE_STAMPS, **{f"{fine}time": ("int64", f"{TIME}.MicroTime") for fine in FINE}},
    "connect": _all(("int32", f"{CONNECT}.Date"), ("int32", f"{CONNECT}.Time"), ("int64", f"{CONNECT}.Timestamp")),
    "isostring": _all(("string", f"{TIME}.IsoDate"), ("string", f"{TIME}.IsoTime"), ("string", f"{TIME}.IsoTimestamp")),
    "microseconds": _all(("int32", f"{TIME}.Date"), ("int64", f"{TIME}.MicroTime"), ("int64", f"{TIME}.MicroTimestamp")),
    "nanoseconds": _all(("int32", f"{TIME}.Date"), ("int64", f"{TIME}.NanoTime"), ("int64", f"{TIME}.NanoTimestamp")),
}


REFUSED = {("mysql", "adaptive"), ("mariadb", "adaptive")}
MODES_OF_TIMES = [(connector, mode) for connector in ROWS for mode in TIMES if (connector, mode) not in REFUSED]


@pytest.mark.parametrize("mode", DECIMALS)
@pytest.mark.parametrize("connector", ROWS)
def test_decimals(connector: str, mode: str) -> None:
    assert spelled(connector, ROWS[connector]["decimal"], decimal_handling_mode=mode) == DECIMALS[mode]


@pytest.mark.parametrize("mode", BINARIES)
@pytest.mark.parametrize("connector", [connector for connector in ROWS if connector != "db2"])
def test_bytes(connector: str, mode: str) -> None:
    assert spelled(connector, ROWS[connector]["binary"], binary_handling_mode=mode) == BINARIES[mode]


@pytest.mark.parametrize(("connector", "mode"), MODES_OF_TIMES)
def test_times(connector: str, mode: str) -> None:
    rows = {kind: row for kind, row in ROWS[connector].items() if kind in TIMES[mode]}

    given = {kind: spelled(connector, row, time_precision_mode=mode) for kind, row in rows.items()}

    assert given == {kind: TIMES[mode][kind] for kind in rows}


@pytest.mark.parametrize(("connector", "mode"), [(connector, mode) for connector, mode in MODES_OF_TIMES if connector != "db2"])
def test_a_time_with_a_zone_is_text_in_every_mode(connector: str, mode: str) -> None:
    assert spelled(connector, ROWS[connector]["zoned"], time_precision_mode=mode) == ("string", f"{TIME}.ZonedTimestamp")


@pytest.mark.parametrize(
    ("connector", "row"),
    [
        ("postgresql", ("c", "interval", "interval", "b", False, -1, None)),
        ("oracle", ("C", "INTERVAL DAY(2) TO SECOND(6)", 11, 0, 2, 6)),
        ("oracle", ("C", "INTERVAL YEAR(2) TO MONTH", 5, 0, 2, 0)),
    ],
)
def test_intervals(connector: str, row: tuple[Any, ...]) -> None:
    assert spelled(connector, row) == ("int64", f"{TIME}.MicroDuration")
    assert spelled(connector, row, interval_handling_mode="string") == ("string", f"{TIME}.Interval")


def test_settings_that_one_connector_has() -> None:
    hstore = ("c", "hstore", "hstore", "b", False, -1, None)
    assert spelled("postgresql", hstore) == ("string", "io.debezium.data.Json")
    assert spelled("postgresql", hstore, hstore_handling_mode="map") == ("map",)

    unsigned = ("c", "bigint(20) unsigned", "bigint", 20, 0, None)
    assert spelled("mysql", unsigned) == ("int64",)
    assert spelled("mysql", unsigned, bigint_unsigned_handling_mode="precise", decimal_handling_mode="string") == decimal(20, 0)
