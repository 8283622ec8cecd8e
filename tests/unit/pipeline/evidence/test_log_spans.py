"""Both engines find the same range of the source's log in a file, or the native one leaves it to Spark."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.look.moved_files import LogSpan
from airflow_cdc.pipeline.evidence.log_spans import find_log_spans

TOPIC = "srv.s.t"


def event(op: str, lsn: int, sent: int | None, *, snapshot: str = "false") -> dict[str, Any]:
    sequence = f'[null,"{lsn}"]' if op == "r" else f'["{lsn - 1}","{lsn}"]'
    source = {"connector": "postgresql", "snapshot": snapshot, "lsn": lsn, "sequence": sequence, "ts_ms": 5}
    return {"op": op, "source": source, "after": {"id": 1}, **({} if sent is None else {"ts_ms": sent})}


def record(value: Any, topic: str = TOPIC) -> dict[str, Any]:
    return {"topic": topic, "partition": 0, "offset": 0, "key": None, "value": value}


FILES: dict[str, tuple[list[Any], LogSpan | None]] = {
    "streamed": ([record(event("c", 20, 7)), record(event("u", 31, 9))], LogSpan(19, 30, 7, 9)),
    "reads": ([record(event("r", 20, 7, snapshot="first")), record(event("r", 20, 8))], LogSpan(20, 20, 7, 8, has_reads_only=True)),
    "both": ([record(event("r", 20, 7)), record(event("u", 12, 9))], LogSpan(11, 20, 7, 9)),
    "incremental reads": ([record(event("r", 20, 7, snapshot="incremental"))], LogSpan(20, 20, 7, 7)),
    "one without a time": ([record(event("c", 20, 7)), record(event("u", 31, None))], LogSpan(19, 30)),
    "values": ([event("c", 20, 7)], LogSpan(19, 19, 7, 7)),
    "with schemas": ([record({"schema": {}, "payload": event("c", 20, 7)})], LogSpan(19, 19, 7, 7)),
    "beside a heartbeat": ([record(event("c", 20, 7)), record({"ts_ms": 1}), record(None)], LogSpan(19, 19, 7, 7)),
    "another topic's": ([record(event("c", 20, 7), topic="srv.s.other")], None),
    "a position of another form": ([record({**event("c", 20, 7), "source": {"sequence": "x", "lsn": "y"}})], None),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_s_span(name: str, spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lines, expected = FILES[name]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    files = [ArchivedFile("a.jsonl", 1, TOPIC)]

    def found() -> LogSpan | None:
        return find_log_spans(spark, str(tmp_path), files, topic=TOPIC, dialect=CONNECTORS["postgresql"]).get("a.jsonl")

    assert found() == expected
    monkeypatch.setattr("airflow_cdc.pipeline.evidence.log_spans.may_read", lambda: False)
    assert found() == expected
