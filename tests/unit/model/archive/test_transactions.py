"""Which transactions are whole, whatever comes late, twice or never."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.model.archive import transactions
from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.transaction_records import read_transaction_records
from airflow_cdc.model.archive.transactions import (
    Lacking,
    OpenTransactions,
    Place,
    Transaction,
    end_place,
    ends_transactions,
    prefix_of,
    topic_of,
    transaction_key,
    united,
)
from airflow_cdc.model.connectors.sqlserver import sqlserver_lsn

CAPTURE = Path(__file__).parents[3] / "golden" / "captures" / "sqlserver_synth" / "archive" / "plain"
TOPICS = ("s.dbo.a", "s.dbo.b")


def begin(key: str, survey: int = 1) -> Transaction:
    return Transaction(key, survey=survey)


def end(key: str, survey: int = 1, **counts: int) -> Transaction:
    return Transaction(key, {f"dbo.{name}": count for name, count in counts.items()}, {}, survey)


def events(key: str, survey: int = 1, **orders: tuple[int, ...]) -> Transaction:
    return Transaction(key, None, {f"s.dbo.{name}": united((order, order) for order in given) for name, given in orders.items()}, survey)


def after(*found: Transaction, known: OpenTransactions = OpenTransactions()) -> OpenTransactions:  # noqa: B008
    return known.with_records(found, prefix="s", topics=TOPICS)


@pytest.mark.parametrize(
    ("identifier", "key"),
    [
        ("970:23657016", "970"),
        ("00000027:0000003e:000d", "00000027:0000003e:000d"),
        ("02001400000001", "02001400000001"),
        ("0-1-2109", "0-1-2109"),
        ("58e0dae9-9c9b-11e8-9f8b-f2801f1b9fd1:17", "58e0dae9-9c9b-11e8-9f8b-f2801f1b9fd1:17"),
    ],
)
def test_the_records_of_one_transaction_share_a_key_though_postgresql_gives_each_its_own_id(identifier: str, key: str) -> None:
    assert transaction_key(identifier) == key


@pytest.mark.parametrize(
    ("collection", "topic"),
    [
        ("testDB.dbo.items", "mssql.testDB.dbo.items"),
        ("ORCLPDB1.APP.ITEMS", "mssql.APP.ITEMS"),
        ("APP.ITEMS", "mssql.APP.ITEMS"),
        ("dbo.items", None),
        ("elsewhere", None),
    ],
)
def test_a_data_collection_belongs_to_the_topic_whose_name_it_ends_with(collection: str, topic: str | None) -> None:
    assert topic_of(collection, "mssql", ["mssql.testDB.dbo.items", "mssql.APP.ITEMS", "other.dbo.items"]) == topic


def test_a_topics_prefix_is_the_transaction_topics_own() -> None:
    assert (prefix_of("shop.transaction"), prefix_of("shop.inventory.orders"), prefix_of("a.b.transaction")) == ("shop", "shop", "a.b")


def test_a_transaction_is_whole_with_its_end_and_all_that_it_announces() -> None:
    found = after(begin("1"), end("1", a=2, b=1), events("1", a=(1, 2)))
    assert list(found.lacking("s", TOPICS)) == [Lacking("1", "s.dbo.b", 1, 0)]
    assert str(next(found.lacking("s", TOPICS))) == "transaction 1: 0 of 1 events of topic s.dbo.b are archived"
    found = after(events("1", 2, b=(1,)), known=found)
    assert (found.open, list(found.whole)) == ({}, ["1"])


def test_before_its_end_a_transaction_is_open_and_lacks_nothing_yet() -> None:
    found = after(begin("1"), events("1", a=(1, 2)))
    assert list(found.open) == ["1"]
    assert list(found.lacking("s", TOPICS)) == []


def test_events_that_come_twice_count_once() -> None:
    found = after(end("1", a=3), events("1", a=(1, 2)), events("1", a=(1, 2)))
    assert [(item.announced, item.seen) for item in found.lacking("s", TOPICS)] == [(3, 2)]


def test_an_end_that_comes_again_without_counts_takes_nothing_away() -> None:
    # pg_load 1531, maria_load 0-1-3092: after its crash the connector wrote END with event_count 0.
    for ends in ([end("1", a=2), end("1")], [end("1"), end("1", a=2)]):
        assert [item.announced for item in after(*ends).lacking("s", TOPICS)] == [2]


def test_a_late_copy_of_some_events_does_not_open_a_whole_transaction_again() -> None:
    whole = after(end("1", a=2), events("1", a=(1, 2)))
    assert after(events("1", 2, a=(2,)), known=whole).open == {}


def test_tables_that_are_not_archived_are_not_waited_for() -> None:
    assert after(Transaction("1", {"dbo.a": 1, "dbo.elsewhere": 5}), events("1", a=(1,))).open == {}


def test_state_stays_small_and_records_what_was_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_OPEN", 2)
    monkeypatch.setattr(transactions, "MOST_REMEMBERED", 2)
    found = OpenTransactions()
    for survey in range(1, 6):
        found = after(begin(f"{survey}", survey), end(f"w{survey}", survey), known=found)
    assert (list(found.open), list(found.whole), found.given_up) == (["4", "5"], ["w4", "w5"], 3)
    assert OpenTransactions.from_json(json.loads(json.dumps(found.to_json()))) == found


@pytest.mark.parametrize(
    ("identifier", "ts_ms", "place"),
    [
        ("970:23657016", 5, (23657016,)),
        ("00000027:0000003e:000d", 5, ((0x27 << 48) | (0x3E << 16) | 0xD,)),
        ("02001400000001", 5, (5, 0)),
        ("0-1-2109", 5, (5, 2109)),
        ("58e0dae9-9c9b-11e8-9f8b-f2801f1b9fd1:17", None, (0, 17)),
    ],
)
def test_an_end_is_placed_by_its_id_or_else_by_its_time(identifier: str, ts_ms: int | None, place: tuple[int, ...]) -> None:
    assert end_place(identifier, ts_ms) == place


def test_a_transaction_is_placed_by_all_its_records_and_is_remembered_there_when_it_is_whole() -> None:
    pieces_of_it = [
        Transaction("1", {"dbo.a": 2}, {}, 1, Place(ended=(9,))),
        Transaction("1", None, {"s.dbo.a": ((1, 1),)}, 1, Place(commit=7, last_commit=7)),
        Transaction("1", {}, {}, 2, Place(ended=(12,))),
    ]
    assert after(*pieces_of_it).open["1"].place == Place((9,), 7, 7)
    rest = Transaction("1", None, {"s.dbo.a": ((2, 2),)}, 2, Place(commit=2**70, last_commit=2**70))
    whole = after(*pieces_of_it, rest)
    assert whole.whole == {"1": Place((9,), 7, 2**70)}
    # A copy after a restart may stand elsewhere.
    copy = Transaction("1", None, {"s.dbo.a": ((1, 1),)}, 3, Place(commit=3, last_commit=3))
    assert after(copy, known=whole).whole == {"1": Place((9,), 3, 2**70)}
    assert OpenTransactions.from_json(json.loads(json.dumps(whole.to_json()))) == whole


def test_of_the_whole_ones_that_are_forgotten_the_last_place_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "MOST_REMEMBERED", 1)
    ends = [Transaction(key, {}, {}, 1, Place((number,), number, number)) for key, number in (("b", 1), ("a", 3), ("c", 2))]
    found = after(*ends)
    assert (list(found.whole), found.forgotten) == (["a"], Place((2,), 2, 2))
    assert after(end("z"), known=found).forgotten == Place((3,), 3, 3)


def test_only_a_connectors_transaction_topic_ends_transactions() -> None:
    assert [ends_transactions(topic) for topic in ("s.transaction", "a.b.transaction", "transaction", "s.dbo.transactions")] == [
        True,
        True,
        False,
        False,
    ]


pieces = st.lists(
    st.one_of(
        st.builds(begin, st.sampled_from("12")),
        st.builds(end, st.sampled_from("12"), a=st.integers(0, 3), b=st.integers(0, 2)),
        st.builds(events, st.sampled_from("12"), a=st.sets(st.integers(1, 4)).map(tuple), b=st.sets(st.integers(1, 3)).map(tuple)),
    ),
    max_size=8,
)


@given(pieces, st.randoms(use_true_random=False))
def test_in_whatever_order_the_records_of_a_survey_come_the_same_is_known(found: list[Transaction], random: Any) -> None:
    shuffled = [*found, *found[:3]]
    random.shuffle(shuffled)
    assert after(*shuffled) == after(*found)
    assert OpenTransactions.from_json(json.loads(json.dumps(after(*found).to_json()))) == after(*found)


def test_a_real_capture_is_whole_but_for_the_transaction_that_never_ended() -> None:
    found = OpenTransactions().with_records(captured(), prefix="mssql", topics=CAPTURED_TOPICS)
    # Its README: 1364 BEGIN, 1363 END.
    (unended,) = found.open.values()
    assert unended.expected is None
    assert list(found.lacking("mssql", CAPTURED_TOPICS)) == []

    # One table's last file is missing: exactly the transactions that have events in it lack them.
    lost = [item for item in captured() if "mssql.testDB.dbo.ring" not in item.seen]
    lacking = list(OpenTransactions().with_records(lost, prefix="mssql", topics=CAPTURED_TOPICS).lacking("mssql", CAPTURED_TOPICS))
    assert {item.topic for item in lacking} == {"mssql.testDB.dbo.ring"}
    assert sum(item.announced for item in lacking) == 1182


CAPTURED_TOPICS = tuple(f"mssql.testDB.dbo.{table}" for table in ("customers", "items", "ring"))


def captured() -> Iterator[Transaction]:
    """Yield what each record of the capture holds."""
    for path in sorted(CAPTURE.glob("*.jsonl.gz")):
        with gzip.open(path, "rt", encoding="utf-8") as lines:
            for line in lines:
                record = json.loads(line)
                value = record["value"] or {}
                if value.get("transaction"):
                    order = value["transaction"]["data_collection_order"]
                    yield Transaction(transaction_key(value["transaction"]["id"]), None, {record["topic"]: ((order, order),)})
                elif value.get("status"):
                    counts = value["data_collections"] and {
                        item["data_collection"]: item["event_count"] for item in value["data_collections"]
                    }
                    yield Transaction(transaction_key(value["id"]), counts if value["status"] == "END" else None)


def test_sql_servers_transactions_are_named_by_their_commit_position() -> None:
    assert sqlserver_lsn(transaction_key("00000027:0000003e:000d")) == (0x27 << 48) | (0x3E << 16) | 0xD


def test_a_sensor_reads_what_is_on_a_line_to_its_end(tmp_path: Path) -> None:
    """By ``splitlines`` a text with U+2028 broke its line in two, and of documents that share a line none was read."""
    begin = {"status": "BEGIN", "id": "7:1", "event_count": None, "data_collections": None, "ts_ms": 1, "note": "a\u2028b"}
    lines = [json.dumps({**begin, "id": f"{number}:1"}, ensure_ascii=False) for number in range(3)]
    (tmp_path / "s.transaction.jsonl").write_text(f"{lines[0]}{lines[1]}\n{lines[2]} x\n", encoding="utf-8")
    files = list_archive(LocalFileSystem(), str(tmp_path)).files
    assert len(list(read_transaction_records(LocalFileSystem(), str(tmp_path), files, 1))) == 3
