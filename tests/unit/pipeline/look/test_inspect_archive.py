"""What an archive holds, found without a lake and without Spark."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest

from airflow_cdc.model.errors import ArchiveNotFoundError
from airflow_cdc.pipeline.look.inspect_archive import ArchiveFound, TopicFound, inspect_archive
from tests.support.events import TOPIC, numbered, postgresql, sqlserver, tombstone, write_records, write_sink_file

ANN = {"id": 1, "name": "ann"}
CAPTURES = Path(__file__).parents[3] / "golden/captures"


def topic(found: ArchiveFound, name: str = TOPIC) -> TopicFound:
    return next(each for each in found.topics if each.topic == name)


def test_topics_have_connectors_keys_columns_kinds_and_spans(tmp_path: Path) -> None:
    carts = postgresql("c", commit=None, change=7, after={"id": 1, "items": 2}, topic="pg.public.carts")
    records = [sqlserver("c", commit=1, after=ANN), sqlserver("d", commit=2, before=ANN), tombstone({"id": 1}), carts]
    write_records(tmp_path / "1.jsonl", numbered(records))
    (tmp_path / "README.md").write_text("no data")
    found = inspect_archive(str(tmp_path))
    assert (found.files, found.ignored, found.unread) == (1, ("README.md",), {})
    assert [each.topic for each in found.topics] == ["pg.public.carts", TOPIC]
    customers = topic(found)
    assert (customers.connectors, customers.keys, customers.columns) == (("sqlserver",), ("id",), ("id", "name"))
    assert (customers.kinds, customers.records, customers.offsets) == ({"c": 1, "d": 1, "tombstone": 1}, 3, {0: (0, 2)})
    assert (customers.layouts, customers.has_types, customers.is_control) == (("record",), False, False)
    assert json.loads(customers.sample or "")["value"]["after"] == ANN
    assert [each.topic for each in inspect_archive(str(tmp_path), ["pg.*"]).topics] == ["pg.public.carts"]


def test_missing_and_repeated_offsets_are_named(tmp_path: Path) -> None:
    for name, first in (("1.jsonl", 0), ("2.jsonl", 4), ("3.jsonl", 5)):
        write_records(
            tmp_path / name, numbered([sqlserver("c", commit=first, after=ANN), sqlserver("u", commit=first + 1, after=ANN)], first)
        )
    write_records(tmp_path / "4.jsonl", [sqlserver("c", commit=9, after=ANN, offset=7), sqlserver("c", commit=9, after=ANN, offset=9)])
    customers = topic(inspect_archive(str(tmp_path)))
    assert [(gap.first, gap.last) for gap in customers.gaps] == [(2, 3), (8, 8)]
    assert customers.missing == 3
    assert [(each.first, each.last, each.file) for each in customers.overlaps] == [(5, 5, "3.jsonl")]


def test_values_alone_and_control_records_are_read_too(tmp_path: Path) -> None:
    write_sink_file(tmp_path, numbered([sqlserver("c", commit=1, after=ANN)]), keys=True, suffix=".gz")
    begin = {"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None, "ts_ms": 1}
    write_records(
        tmp_path / "tx.jsonl", [{"topic": "server1.transaction", "partition": 0, "offset": 0, "key": {"id": "1"}, "value": begin}]
    )
    found = inspect_archive(str(tmp_path))
    assert found.unread == {}
    assert (topic(found).layouts, topic(found).keys, topic(found).offsets) == (("value",), ("id",), {0: (0, 0)})
    assert topic(found, "server1.transaction").is_control


def test_changes_of_the_columns_are_found_in_the_order_of_offsets(tmp_path: Path) -> None:
    rows = [{"id": 1, "a": 1}, {"id": 1, "a": 1, "b": 2}, {"id": 1, "b": 2}]
    for number, row in enumerate(rows):
        write_records(tmp_path / f"{9 - number}.jsonl", numbered([sqlserver("u", commit=number, after=row)], number))
    assert [(each.file, each.added, each.removed) for each in topic(inspect_archive(str(tmp_path))).changes] == [
        ("8.jsonl", ("b",), ()),
        ("7.jsonl", (), ("a",)),
    ]


def test_what_is_not_read_is_named_with_the_reason(tmp_path: Path) -> None:
    write_records(tmp_path / "flat.jsonl", ['{"id": 1, "__op": "c", "__deleted": "false"}'])
    (tmp_path / "cut.jsonl.gz").write_bytes(gzip.compress(b"x" * 1000)[:20])
    (tmp_path / "typed.parquet").write_bytes(b"PAR1")
    write_records(tmp_path / "odd.jsonl", ['{"some": "thing"}'])
    unread = inspect_archive(str(tmp_path)).unread
    assert unread["flat.jsonl"] == "its records have another shape than Debezium's envelope"
    assert unread["typed.parquet"] == "it is parquet"
    assert unread["odd.jsonl"] == "a record is no change event of a known connector"
    assert "cut off" in unread["cut.jsonl.gz"]
    path = write_sink_file(tmp_path / "sink", numbered([sqlserver("c", commit=1, after=ANN)]), keys=False)
    assert inspect_archive(str(tmp_path / "sink"), most_plain=0).unread == {}
    with path.open("a") as file:
        # A tombstone, which some sinks archive.
        file.write("null\n")
    (beyond,) = [reason for path, reason in inspect_archive(str(tmp_path / "sink"), most_plain=0).unread.items()]
    assert beyond == "there is more text than is read line by line"


def test_an_archive_that_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ArchiveNotFoundError):
        inspect_archive(str(tmp_path / "nowhere"))


@pytest.mark.parametrize("capture", ["pg_types_precise", "oracle_synth", "maria_blocking"])
def test_every_file_of_a_capture_is_read_and_no_offset_is_missing(capture: str) -> None:
    found = inspect_archive(str(CAPTURES / capture / "archive"))
    assert found.unread == {}
    assert found.topics
    assert {each.topic: each.missing for each in found.topics if each.missing} == {}
