"""Whether a microbatch's streamed events name their transaction is found without Spark, in each form of an archive's lines."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordLayout
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.apply.native.names_gtids import names_gtids
from airflow_cdc.pipeline.microbatch.microbatch_run import MicrobatchRun
from tests.support.events import TOPIC, Record, mariadb, write_records
from tests.support.natively import decoder_of

pytest.importorskip("duckdb")

OTHER_TOPIC = "server1.testDB.dbo.others"


def event(op: str, *, gtid: str | None = None, topic: str = TOPIC) -> Record:
    """Return an event of a row whose column has the GTID's name."""
    return mariadb(op, position=1000, gtid=gtid, after={"id": 1, "name": "x", "gtid": "a column"}, topic=topic, partition=0, key={"id": 1})


def ask(root: Path, records: Sequence[Record], *, path: str = "1.jsonl", layout: RecordLayout = RecordLayout.RECORD) -> bool:
    """Write a file, and ask for its GTIDs as a microbatch's."""
    lines: Sequence[Any] = records if layout is RecordLayout.RECORD else [json.dumps(record["value"]) for record in records]
    write_records(root / path, lines)
    return asked(root, records, path=path, layout=layout)


def asked(root: Path, records: Sequence[Record], *, path: str = "1.jsonl", layout: RecordLayout = RecordLayout.RECORD) -> bool:
    made = decoder_of({path: records})
    shapes = tuple(replace(shape, connector="mariadb", layout=layout) for shape in made.shapes)
    decoder = replace(made, dialect=CONNECTORS["mariadb"], shapes=shapes)
    microbatch = Microbatch(TOPIC, 1, str(root), (ArchivedFile(path, 1, TOPIC),), PlanPosition(), shapes)
    return names_gtids(cast("MicrobatchRun", SimpleNamespace(microbatch=microbatch)), decoder)


@pytest.mark.parametrize("path", ["1.jsonl", "1.jsonl.gz", "1.jsonl.zst"])
@pytest.mark.parametrize(
    ("records", "expected"),
    [
        ([event("u"), event("c", gtid="0-1-7")], True),
        ([event("u"), event("c")], False),
        ([event("r", gtid="0-1-7")], False),
        ([event("u", gtid="0-1-7", topic=OTHER_TOPIC), event("c")], False),
    ],
    ids=["an event has one", "a column has its name", "a read has one", "another topic's event has one"],
)
def test_streamed_events_of_the_topic_count(records: list[Record], expected: bool, path: str, tmp_path: Path) -> None:
    assert ask(tmp_path, records, path=path) is expected


@pytest.mark.parametrize("gtid", ["0-1-7", None])
def test_values_of_a_sink_count_too(gtid: str | None, tmp_path: Path) -> None:
    path = f"{TOPIC}/{TOPIC}+0+0000000000.json"
    assert ask(tmp_path, [event("u", gtid=gtid)], path=path, layout=RecordLayout.VALUE) is (gtid is not None)


def test_a_file_that_is_gone_proves_nothing(tmp_path: Path) -> None:
    assert asked(tmp_path, [event("u", gtid="0-1-7")]) is False


def test_a_file_that_only_spark_reads_is_left_to_it(tmp_path: Path) -> None:
    (tmp_path / "1.jsonl").write_text("no document\n")
    with pytest.raises(HandedOver, match="only Spark reads"):
        asked(tmp_path, [event("u", gtid="0-1-7")])
