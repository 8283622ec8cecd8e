"""Positions as SQL: the same numbers as the model's, and NULL where the source block has none."""

from __future__ import annotations

import random

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.connectors.db2 import DB2, db2_lsn
from airflow_cdc.model.connectors.mysql import MYSQL
from airflow_cdc.model.connectors.oracle import ORACLE
from airflow_cdc.model.connectors.postgresql import POSTGRESQL, postgres_sequence
from airflow_cdc.model.connectors.registry import CONNECTORS, connector_of
from airflow_cdc.model.connectors.sqlserver import SQLSERVER, format_sqlserver_lsn, sqlserver_lsn
from airflow_cdc.model.errors import UnsupportedConnectorError

Position = tuple[int | None, int | None, int | None]


def positions(
    spark: SparkSession, connector: Connector, *columns: str, sources: list[tuple[str | None, ...]]
) -> dict[tuple[str | None, ...], Position]:
    """Return by source block what the connector's SQL gives; every member of ``source`` arrives as text."""
    frame = spark.createDataFrame(
        [tuple(dict(zip(columns, source, strict=True)).get(name) for name in connector.position.fields) + source for source in sources],
        ", ".join([f"`source_{name}` STRING" for name in connector.position.fields] + [f"`given_{name}` STRING" for name in columns]),
    )
    struct = ", ".join(f"'{name}', `source_{name}`" for name in connector.position.fields)
    rows = frame.selectExpr("*", f"named_struct({struct}) AS source").selectExpr(
        "*", *[f"{getattr(connector.position, part)} AS {part}" for part in ("commit", "change", "serial")]
    )
    assert dict(rows.dtypes)["commit"] == dict(rows.dtypes)["change"] == "decimal(38,0)"

    def number(value: object) -> int | None:
        return None if value is None else int(str(value))

    return {
        tuple(row[f"given_{name}"] for name in columns): (number(row["commit"]), number(row["change"]), number(row["serial"]))
        for row in rows.collect()
    }


def test_an_lsn_is_the_models_number_up_to_eighty_bits(spark: SparkSession) -> None:
    generator = random.Random(3)
    numbers = [0, 1, 0xFFFF, 0x10000, 2**48 - 1, 2**48, 2**63 - 1, 2**63, 2**64, 2**79, 2**80 - 1]
    numbers += [generator.getrandbits(generator.randint(1, 80)) for _ in range(300)]
    texts = [format_sqlserver_lsn(number) for number in numbers]
    sources = [(commit, change, "1") for commit, change in zip(texts, reversed(texts), strict=True)]
    sources += [(commit.upper(), change.upper(), "2") for commit, change, _ in sources]

    found = positions(spark, SQLSERVER, "commit_lsn", "change_lsn", "event_serial_no", sources=sources)

    for commit, change, serial in sources:
        assert found[commit, change, serial] == (sqlserver_lsn(str(commit)), sqlserver_lsn(str(change)), int(str(serial)))
    assert max(commit for commit, _, _ in found.values() if commit is not None) == 2**80 - 1


def test_a_text_that_is_no_lsn_is_no_position(spark: SparkSession) -> None:
    good = "00000027:00000758:0005"
    bad = [None, "", "null", "x", "0", "00000027:00000758", f"{good}:0001", "000000027:00000758:0005", "00000027:00000758:00005"]
    bad += [
        f" {good}",
        f"{good} ",
        "00000027:0000g758:0005",
        "-0000027:00000758:0005",
        "00000027::0005",
        "0x000027:00000758:0005",
        "NULL:NULL:NULL",
    ]
    sources: list[tuple[str | None, ...]] = [(text, good) for text in bad] + [(good, text) for text in bad]
    found = positions(spark, SQLSERVER, "commit_lsn", "change_lsn", sources=sources)
    expected = sqlserver_lsn(good)
    for text in bad:
        assert found[text, good] == (None, expected, 1), text
        assert found[good, text] == (expected, None, 1), text


def test_a_serial_number_may_be_a_number_or_text_and_is_one_where_it_is_left_out(spark: SparkSession) -> None:
    texts = {"1": 1, "2": 2, "10": 10, "9223372036854775807": 2**63 - 1, None: 1, "": 1, "x": 1}
    found = positions(spark, SQLSERVER, "event_serial_no", sources=[(text,) for text in texts])
    assert {text: serial for (text,), (_, _, serial) in found.items()} == texts


def test_db2s_lsn_has_sixteen_bytes(spark: SparkSession) -> None:
    ordered: list[tuple[str | None, ...]] = [
        ("00000000:00000000:0000000000000009", "00000000:00000000:0000000000000000"),
        # The documentation's example is as short as SQL Server's.
        ("00000027:00000758:0005", "00000027:00000758:0003"),
        ("00000027:00000758:00000000000a4c1e", "00000027:00000758:00000000000a4c1d"),
        ("00000027:00000759:0000000000000000", "00000027:00000758:ffffffffffffffff"),
    ]
    found = positions(spark, DB2, "commit_lsn", "change_lsn", sources=[*ordered, (None, "x"), ("ffffffff:0:0", "0:0")])
    for commit, change in ordered:
        assert found[commit, change] == (db2_lsn(str(commit)), db2_lsn(str(change)), 0)
    commits = [db2_lsn(str(commit)) for commit, _ in ordered]
    assert commits == sorted(commits)
    assert found[None, "x"] == found["ffffffff:0:0", "0:0"] == (None, None, 0)


def test_postgresqls_sequence_is_last_commit_and_change(spark: SparkSession) -> None:
    whole = ['["100","200"]', "[100,200]", ' [ "100" , "200" ] ', '["99999999999999999999","18446744073709551615"]', '["9","10"]']
    sources = [*whole, '[null,"1"]', "[null,1]"]
    found = positions(spark, POSTGRESQL, "sequence", sources=[(text,) for text in sources])
    for text in whole:
        commit, change = postgres_sequence(text)
        assert found[text,] == (commit, change, 0), text
    # The first transaction after a start knows of no commit before it: its own place stands in.
    assert found['[null,"1"]',] == found["[null,1]",] == (1, 1, 0)


def test_a_sequence_that_lacks_one_of_both_is_no_position(spark: SparkSession) -> None:
    bad = [None, "", "null", "[]", "[null,null]", '["1"]', '["1",null]', '["a","b"]', "x", "1", '{"0":"1","1":"2"}', '["",""]', '["1","x"]']
    # lsn alone is no place in an order: transactions interleave.
    found = positions(spark, POSTGRESQL, "sequence", "lsn", "txId", sources=[(text, "24023128", "555") for text in bad])
    assert len(found) == len(bad)
    assert {change for _, change, _ in found.values()} == {None}


def test_a_binlog_file_goes_by_its_number(spark: SparkSession) -> None:
    ordered: list[tuple[str | None, ...]] = [
        ("mariadb-bin.000003", "4", "0"),
        ("mariadb-bin.000003", "1000", "0"),
        ("mariadb-bin.000003", "1000", "9"),
        ("mariadb-bin.000003", "1000", "10"),
        ("mariadb-bin.999999", "18446744073709551615", "0"),
        ("mariadb-bin.1000000", "4", "0"),
        ("db-1.bin.log.4294967295", "4", None),
    ]
    found = positions(spark, MYSQL, "file", "pos", "row", sources=ordered)
    assert [found[source] for source in ordered] == sorted(found.values(), key=lambda place: tuple(part or 0 for part in place))
    assert found["mariadb-bin.000003", "1000", "9"] == ((3 << 64) + 1000, 9, 0)
    assert found["db-1.bin.log.4294967295", "4", None] == ((4294967295 << 64) + 4, 0, 0)


def test_a_file_without_number_or_place_is_no_position(spark: SparkSession) -> None:
    bad = [(None, "4"), ("binlog.000001", None), ("binlog", "4"), ("binlog.", "4"), ("000001", "4"), ("binlog.000001", "x"), ("", "")]
    found = positions(spark, MYSQL, "file", "pos", sources=bad)
    assert {commit for commit, _, _ in found.values()} == {None}


def test_scns_are_numbers_of_any_length(spark: SparkSession) -> None:
    texts = ["9", "10", "2861900456", "9223372036854775807", "9223372036854775808", "9" * 38]
    found = positions(spark, ORACLE, "commit_scn", "scn", sources=[(text, text) for text in texts])
    assert [found[text, text] for text in texts] == [(int(text), int(text), 0) for text in texts]
    # A snapshot read has no commit, only the snapshot's scn.
    assert positions(spark, ORACLE, "scn", sources=[("2000000",)]) == {("2000000",): (2000000, 2000000, 0)}
    bad = positions(spark, ORACLE, "commit_scn", "scn", sources=[(None, None), ("", ""), ("x", "1.2.3"), ("9" * 39, None), ("x", "7")])
    assert {commit for commit, _, _ in bad.values()} == {None}


def test_changes_of_one_scn_go_by_their_redo_records(spark: SparkSession) -> None:
    ordered: list[tuple[str | None, ...]] = [
        (" 0x001e84.00000401.0010 ", "0"),
        (" 0x001e84.00000401.0010 ", "9"),
        (" 0x001e84.00000401.0010 ", "10"),
        (" 0x001e84.00000401.00a0 ", None),
        ("0x001e84.00001000.0010", "0"),
        (" 0x001e85.00000001.0000 ", "0"),
        (" 0xffffffff.ffffffff.ffff ", "4294967295"),
    ]
    found = positions(spark, ORACLE, "rs_id", "ssn", "commit_scn", "scn", sources=[(*source, "7", "7") for source in ordered])
    changes = [found[(*source, "7", "7")][1] for source in ordered]
    assert changes == sorted(set(changes), key=lambda change: change or 0)
    assert changes[1] == (0x1E84 << 80) + (0x401 << 48) + (0x10 << 32) + 9
    unknown = positions(spark, ORACLE, "rs_id", "commit_scn", "scn", sources=[(None, "7", "5"), ("", "7", "5"), ("x.y.z", "7", "5")])
    assert set(unknown.values()) == {(7, 5, 0)}


def test_dialects_go_by_the_connectors_own_name() -> None:
    relational = {"sqlserver", "postgresql", "mysql", "mariadb", "oracle", "db2"}
    assert relational | {"mongodb", "huawei-cdl-1.0", "huawei-cdl-2.0"} == set(CONNECTORS)
    assert connector_of({"sqlserver"}, "t") is SQLSERVER
    assert connector_of({"postgresql"}, "t") is POSTGRESQL


@pytest.mark.parametrize(
    ("connectors", "named"),
    [
        ({"teapot"}, r"come from \['teapot'\]"),
        ({"postgresql", "sqlserver"}, r"come from \['postgresql', 'sqlserver'\]"),
        (set(), "no connector that they name"),
    ],
)
def test_an_unknown_connector_or_several_are_refused_with_those_that_are_known(connectors: set[str], named: str) -> None:
    with pytest.raises(UnsupportedConnectorError, match=rf"Flow t: the events {named}|Flow t: the events come from {named}") as refused:
        connector_of(connectors, "t")
    assert all(name in refused.value.message.split("known are")[1] for name in CONNECTORS)
    assert refused.value.transient is False
