"""A moment in the source's life, as people write it."""

from __future__ import annotations

import re
from datetime import datetime, timezone

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.position.as_of import AS_OF_PATTERN, EpochSpan, check_range, parse_as_of
from airflow_cdc.model.position.position import EPOCH, Position


@pytest.mark.parametrize(
    ("text", "utc"),
    [
        ("2026-11-21T09:30:00Z", datetime(2026, 11, 21, 9, 30, tzinfo=timezone.utc)),
        ("2026-11-21T09:30:00.5+02:00", datetime(2026, 11, 21, 7, 30, 0, 500_000, tzinfo=timezone.utc)),
        ("2026-11-21 09:30:00.123456789", datetime(2026, 11, 21, 9, 30, 0, 123_456, tzinfo=timezone.utc)),
        ("2026-11-21T09:30", datetime(2026, 11, 21, 9, 30, tzinfo=timezone.utc)),
        (" 2026-11-21 ", datetime(2026, 11, 21, tzinfo=timezone.utc)),
    ],
)
def test_a_time_is_that_of_its_zone_or_of_utc(text: str, utc: datetime) -> None:
    assert parse_as_of(text).time == utc


def test_a_time_has_every_millisecond() -> None:
    assert parse_as_of("2023-11-14T22:13:20.001Z").milliseconds == 1_700_000_000_001
    assert parse_as_of("42").milliseconds is None
    # A moment between two of them is after the first, and not yet the second.
    assert parse_as_of("2023-11-14T22:13:20.001999Z").milliseconds == 1_700_000_000_001
    assert parse_as_of("1969-12-31T23:59:59.999500Z").milliseconds == -1


@pytest.mark.parametrize(
    ("text", "connector", "commit"),
    [
        ("22295128", "postgresql", 22295128),
        # A number is no date without dashes.
        ("20261121", "oracle", 20261121),
        ("22295128/22295128/0", "postgresql", 22295128),
        ("22295128/-1/-1", "sqlserver", 22295128),
        ("00000027:00000ac0:0002", "sqlserver", (0x27 << 48) | (0xAC0 << 16) | 2),
        ("0/16B3748", "postgresql", 0x16B3748),
        ("1/0", "postgresql", 2**32),
        ("mariadb-bin.000003:1234", "mariadb", 3 * 2**64 + 1234),
        ("logs.of.mysql.1000000:4", "mysql", 1_000_000 * 2**64 + 4),
    ],
)
def test_a_position_is_read_as_its_source_or_our_tables_spell_it(text: str, connector: str, commit: int) -> None:
    assert parse_as_of(text).commit(connector, "t") == commit


@pytest.mark.parametrize(("text", "connector"), [("0/16B3748", "sqlserver"), ("00000027:00000ac0:0002", "mysql"), ("a.1:4", "oracle")])
def test_another_connectors_position_is_refused(text: str, connector: str) -> None:
    with pytest.raises(ConfigurationError, match=f"Flow t: '{text}' is no position of its connector {connector}"):
        parse_as_of(text).commit(connector, "t")


EPOCHS = (EpochSpan(0, 1000, 1040, 1_700_000_000_000, 1_700_000_060_000), EpochSpan(1, 10, 1045))


@pytest.mark.parametrize(
    ("text", "connector", "commit"),
    [
        ("1035@1", "postgresql", 1035),
        ("1035@2", "postgresql", EPOCH + 1035),
        ("0/40B@2", "postgresql", EPOCH + 1035),
        ("00000027:00000ac0:0002@2", "sqlserver", EPOCH + ((0x27 << 48) | (0xAC0 << 16) | 2)),
        ("mariadb-bin.000003:1234@2", "mariadb", EPOCH + 3 * 2**64 + 1234),
        # As messages and `tables` print it, and as the tables have it.
        (str(Position(EPOCH + 1035, 1036, 0)), "postgresql", EPOCH + 1035),
        (str(EPOCH + 1035), "oracle", EPOCH + 1035),
    ],
)
def test_a_position_may_name_its_epoch(text: str, connector: str, commit: int) -> None:
    assert parse_as_of(text).commit(connector, "t", EPOCHS) == commit
    assert re.search(AS_OF_PATTERN, text)


def test_a_position_that_names_no_epoch_is_refused_where_there_are_several() -> None:
    assert parse_as_of("1035").commit("postgresql", "t") == 1035
    assert parse_as_of("1035@1").commit("postgresql", "t") == 1035
    with pytest.raises(ConfigurationError) as refused:
        parse_as_of("1035").commit("postgresql", "t", EPOCHS)
    assert (
        "The archive holds epoch 1: commits 1000 to 1040 (2023-11-14T22:13:20Z to 2023-11-14T22:14:20Z); epoch 2: commits 10 to 1045."
        in refused.value.message
    )
    assert "such as 1035@1 or 1035@2" in refused.value.next_step
    with pytest.raises(ConfigurationError, match="is of epoch 3 of the source's log, which the flow's files do not hold"):
        parse_as_of("1035@3").commit("postgresql", "t", EPOCHS)
    with pytest.raises(ConfigurationError, match="Its log never went back"):
        parse_as_of("1035@2").commit("postgresql", "t")


@pytest.mark.parametrize("text", ["5@0", "5@", "@2", "5@-1", "2026-11-21@2", "5 (epoch 2)"])
def test_what_names_no_epoch_is_no_position(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is neither a position nor a time"):
        parse_as_of(text)
    assert not re.search(AS_OF_PATTERN, text)


@pytest.mark.parametrize("text", ["yesterday", "", "-1", "2026-13-01", "2026-11-21T25:00", "1:2", "0/xyz", "1.5", "2026-11-21Tnoon"])
def test_what_is_neither_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is neither a position nor a time"):
        parse_as_of(text)


def test_a_range_of_times_has_a_length() -> None:
    early, late = parse_as_of("2026-11-21"), parse_as_of("2026-11-21T00:00:01Z")
    check_range(early, late)
    check_range(early, early)
    with pytest.raises(ConfigurationError, match="Give the earlier time first"):
        check_range(late, early)


@pytest.mark.parametrize("text", ["", "22295128", "0/16B3748", "00000027:00000ac0:0002", "mariadb-bin.000003:1234", "2026-11-21T09:30:00Z"])
def test_a_form_takes_every_spelling(text: str) -> None:
    assert re.search(AS_OF_PATTERN, text)


@pytest.mark.parametrize("text", ["yesterday", "-1", "1:2", "0/xyz", "1.5", " "])
def test_a_form_takes_nothing_else(text: str) -> None:
    assert not re.search(AS_OF_PATTERN, text)
