"""Positions are numbers and are compared as numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.connectors.postgresql import postgres_sequence
from airflow_cdc.model.connectors.sqlserver import format_sqlserver_lsn, sqlserver_lsn
from airflow_cdc.model.position.as_of import EpochSpan, parse_as_of
from airflow_cdc.model.position.position import EPOCH, NOT_STREAMED, Position, commit_position, spelled_commit

lsn_bytes = st.binary(min_size=10, max_size=10)
parts = st.integers(-1, 10**38)
positions = st.builds(Position, parts, parts, parts)


def spelled(lsn: bytes) -> str:
    """Return the ten bytes of an LSN as SQL Server prints them."""
    digits = lsn.hex()
    return f"{digits[:8]}:{digits[8:16]}:{digits[16:]}"


@given(lsn_bytes, lsn_bytes)
def test_lsns_stand_in_the_order_of_their_ten_bytes(one: bytes, other: bytes) -> None:
    assert (sqlserver_lsn(spelled(one)) < sqlserver_lsn(spelled(other))) is (one < other)
    assert (sqlserver_lsn(spelled(one)) == sqlserver_lsn(spelled(other))) is (one == other)


@given(lsn_bytes)
def test_an_lsn_is_the_number_that_its_bytes_are_and_comes_back_as_it_was(lsn: bytes) -> None:
    number = sqlserver_lsn(spelled(lsn))
    assert number == int.from_bytes(lsn, "big")
    assert format_sqlserver_lsn(number) == spelled(lsn)
    assert sqlserver_lsn(spelled(lsn).upper()) == number


def test_the_documents_lsns_are_in_the_order_of_the_documents_events() -> None:
    create, update, delete = (sqlserver_lsn(f"00000027:{rest}") for rest in ("00000758:0005", "00000ac0:0007", "00000db0:0007"))
    assert create == 0x27_00000758_0005
    assert create < update < delete


@pytest.mark.parametrize("text", ["", "x", "00000027:00000758", "00000027:00000758:0005:0001", "00000027:00000758:g"])
def test_what_is_no_lsn_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        sqlserver_lsn(text)


def test_nine_comes_before_ten() -> None:
    assert Position(9) < Position(10)
    assert Position(9, 9) < Position(9, 10)
    assert Position(9, 9, 9) < Position(9, 9, 10)
    assert Position.from_json(["9", "0", "0"]) < Position.from_json(["10", "0", "0"])


@given(positions, positions)
def test_the_commit_decides_then_the_change_then_the_serial(one: Position, other: Position) -> None:
    expected = (one.commit, one.change, one.serial) < (other.commit, other.change, other.serial)
    assert (one < other) is expected
    assert (one == other) is not (one < other or other < one)


@given(st.integers(0, 2**80), st.integers(0, 2**80), st.integers(0, 10))
def test_a_snapshot_read_stands_before_everything_streamed_from_its_commit_on(commit: int, change: int, serial: int) -> None:
    assert Position(commit) < Position(commit, change, serial) < Position(commit + 1)


@given(positions)
def test_a_position_survives_its_json_beyond_what_json_readers_keep(position: Position) -> None:
    document = position.to_json()
    assert all(isinstance(part, str) for part in document)
    assert Position.from_json(document) == position


def test_a_position_is_printed_without_the_parts_it_lacks() -> None:
    assert str(Position(10, 11, 2)) == "10/11/2"
    assert str(Position(10)) == "10"
    assert str(Position(10, 0, 0)) == "10/0/0"
    assert Position(10) == Position(10, NOT_STREAMED, NOT_STREAMED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [('["100","200"]', (100, 200)), ('[null,"1"]', (None, 1)), ("[null,null]", (None, None)), ('["18446744073709551616","9"]', (2**64, 9))],
)
def test_postgresqls_sequence_is_two_numbers_either_of_which_may_be_absent(text: str, expected: tuple[int | None, int | None]) -> None:
    assert postgres_sequence(text) == expected


@pytest.mark.parametrize(
    ("connector", "commit", "text"),
    [
        ("sqlserver", 0x27_00000758_0003, "00000027:00000758:0003"),
        ("postgresql", 0x1543A48, "0/1543A48"),
        ("postgresql", 0x16_B374D848, "16/B374D848"),
        ("mysql", (80 << 64) | 4711, "*.000080:4711"),
        ("mariadb", (1_000_000 << 64) | 4, "*.1000000:4"),
        ("db2", (1 << 96) | (0xA << 64) | 0xFF, "00000001:0000000a:00000000000000ff"),
        ("oracle", 2_345_678, "2345678"),
        ("mongodb", 7, "7"),
    ],
)
def test_a_commit_is_spelled_as_its_source_does_and_read_again(connector: str, commit: int, text: str) -> None:
    assert spelled_commit(Position(commit, 5, 1), connector) == text
    assert commit_position(text, connector) == commit
    later = spelled_commit(Position(2 * EPOCH + commit, 5, 1), connector)
    assert later == f"{text} (epoch 3 of the log)"
    assert parse_as_of(later).commit(connector, "flow", [EpochSpan(0, 0, 0), EpochSpan(2, 0, 0)]) == 2 * EPOCH + commit


def test_a_number_that_a_source_does_not_write_stays_a_number() -> None:
    assert spelled_commit(Position(2**100), "sqlserver") == str(2**100)


def test_a_position_of_an_unknown_connector_keeps_its_numbers() -> None:
    for connector in (None, "teapot"):
        assert spelled_commit(Position(10, 11, 2), connector) == "10/11/2"


@given(st.sampled_from(["sqlserver", "postgresql", "mysql", "db2", "oracle"]), st.integers(0, 2**63))
def test_every_spelling_is_read_as_the_number_that_it_was(connector: str, commit: int) -> None:
    assert commit_position(spelled_commit(Position(commit), connector), connector) == commit
