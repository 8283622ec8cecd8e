"""A source's columns may have the names that our own statements use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.model.columns import OP
from airflow_cdc.pipeline.apply.native.all_events import read_all_events
from airflow_cdc.pipeline.apply.native.decode_sql import decode
from airflow_cdc.pipeline.apply.native.fold import fold_natively
from airflow_cdc.pipeline.apply.native.fold_sql import Fold, count_changes, each_event, find_reads, fold, row_changes
from airflow_cdc.pipeline.apply.native.table_values import complete
from airflow_cdc.pipeline.native.record_lines import RecordLines, fetch
from tests.support.events import Record, numbered, sqlserver
from tests.support.natively import bytes_of, decoder_of
from tests.support.stories import PLACEHOLDER


def words_of_ours(folder: Path) -> list[str]:
    """Return the words of the statements, keywords too: any may be the name of a column."""
    decoder = decoder_of({"events.jsonl": []})
    (folder / "events.jsonl").touch()
    how = Fold(
        keys=["id"],
        columns=["id", "name"],
        are_values=False,
        has_reads=True,
        reads_among_changes=True,
        change_restarts=False,
        left_out=["name"],
    )
    statements = [
        decode(decoder, RecordLines(fetch(str(folder), decoder.files), decoder.files, are_values=False)),
        *(fold(how), row_changes(how), count_changes(), find_reads(), each_event()),
    ]
    words = {word.lower() for statement in statements for word in re.findall(r"[A-Za-z_][A-Za-z_0-9]*", statement)}
    return sorted(word for word in words if not word.startswith("__cdc") and word not in ("id", "name"))


def events_of(row: dict[str, Any], keys: tuple[str, ...]) -> list[Record]:
    def event(op: str, commit: int, number: int, name: str) -> Record:
        image = {**row, "id": number, "name": name}
        return sqlserver(op, commit=commit, after=image, key={key: image[key] for key in keys})

    return [event("c", 1, 1, "ann"), event("u", 2, 1, "eve"), event("u", 3, 1, PLACEHOLDER), event("c", 4, 2, "ben")]


@pytest.mark.parametrize("kind", ["STRING", "BIGINT"])
@pytest.mark.parametrize("are_keys", [False, True])
def test_the_native_engine_takes_no_column_of_the_source_for_one_of_ours(are_keys: bool, kind: str, tmp_path: Path) -> None:
    """A key column ``events`` stopped its flow, and a column ``hazard`` would have hidden ours."""
    words = words_of_ours(tmp_path)
    assert {"events", "event", "hazard", "copies", "conflicts", "topic", "payload", "latest", "op", "select"} <= {*words}
    row: dict[str, Any] = dict.fromkeys(words, "0" if kind == "STRING" else 0)
    keys = ("id", *words) if are_keys else ("id",)
    records = events_of(row, keys)
    (tmp_path / "events.jsonl").write_bytes(bytes_of("events.jsonl", numbered(records)))
    decoder = decoder_of({"events.jsonl": numbered(records)}, {"id": "BIGINT", "name": "STRING", **dict.fromkeys(words, kind)}, keys=keys)

    folded = fold_natively(decoder, str(tmp_path))
    assert (folded.staged.events, folded.staged.keys, folded.staged.redelivered, folded.staged.conflicts) == (4, 2, 0, 0)
    rows = complete(None, str(tmp_path), folded.rows, keys=keys).rows.sort_by("id").to_pylist()
    assert [(found["name"], found[OP], {word: found[word] for word in words} == row) for found in rows] == [
        ("eve", "u", True),
        ("ben", "c", True),
    ]
    everything = read_all_events(decoder, str(tmp_path))
    assert everything.staged.events == 4
    names = [(found["id"], found["name"]) for found in everything.rows.to_pylist() if {word: found[word] for word in words} == row]
    assert sorted(names, key=str) == [(1, "ann"), (1, "eve"), (1, None), (2, "ben")]
