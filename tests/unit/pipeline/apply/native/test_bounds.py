"""What is too large for one process."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.pipeline.apply.native import bounds
from airflow_cdc.pipeline.apply.native.bounds import is_for_task, touched_bytes, why_for_tasks, why_too_large

pa = pytest.importorskip("pyarrow")
deltalake = pytest.importorskip("deltalake")

MIB, GIB = 1024**2, 1024**3


def microbatch(text: int, *, archive: str = "/archive") -> Microbatch:
    files = (ArchivedFile("a.jsonl", text, "t"),)
    return Microbatch("t", 1, archive, files, PlanPosition(), ())


@pytest.mark.parametrize(
    ("text", "free", "reason"),
    [
        (0, 256 * MIB, None),
        (100 * MIB, 456 * MIB, None),
        (101 * MIB, 456 * MIB, "the microbatch may take 458 MiB of memory, and 456 MiB are free"),
        (16 * GIB, 13 * GIB, None),
        (16 * GIB, 12 * GIB, "the microbatch may take 12,544 MiB of memory, and 12,288 MiB are free"),
        (16 * GIB + 1, 20 * GIB, "the microbatch has more than 16,384 MiB of text"),
        (GIB, None, None),
        (GIB + MIB, None, "the microbatch may take 2,306 MiB of memory, and the machine does not show how much is free"),
    ],
)
def test_a_microbatch_is_too_large_by_its_text_or_for_the_free_memory(
    monkeypatch: pytest.MonkeyPatch, text: int, free: int | None, reason: str | None
) -> None:
    monkeypatch.setattr(bounds, "free_memory", lambda: free)
    assert why_too_large(microbatch(text)) == reason


def test_what_is_fetched_from_a_store_is_in_memory_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "free_memory", lambda: 556 * MIB)
    assert why_too_large(microbatch(100 * MIB, archive="s3://bucket/archive")) is None
    assert why_too_large(microbatch(101 * MIB, archive="s3://bucket/archive")) is not None
    assert why_too_large(microbatch(101 * MIB)) is None


def test_a_task_takes_files_by_their_text_and_by_what_it_fetches() -> None:
    half = [ArchivedFile(name, 2 * GIB, "t") for name in ("a.jsonl", "b.jsonl")]
    assert is_for_task("/archive", half)
    assert not is_for_task("/archive", [*half, ArchivedFile("c.jsonl", 1, "t")])
    assert not is_for_task("s3://bucket/archive", half[:1])
    assert why_for_tasks(microbatch(GIB)) is None
    assert why_for_tasks(microbatch(GIB + 1)) == "the microbatch has more than 1,024 MiB of text"


@pytest.fixture
def table(tmp_path: Path) -> object:
    """Files with the keys 0 to 9, 10 to 19 and 20 to 29, of two columns."""
    for first in (0, 10, 20):
        rows = pa.table({"id": list(range(first, first + 10)), "part": ["a"] * 10, "text": ["x"] * 10})
        deltalake.write_deltalake(tmp_path / "table", rows, mode="append", configuration={"delta.dataSkippingStatsColumns": "id,part"})
    return deltalake.DeltaTable(tmp_path / "table")


def sizes(table: object) -> dict[int, int]:
    files = pa.table(table.get_add_actions(flatten=True)).to_pylist()  # type: ignore[attr-defined]
    return {file["min.id"]: file["size_bytes"] for file in files}


def rows(*keys: int, part: str = "a", text: str = "x") -> object:
    return pa.table({"id": list(keys), "part": [part] * len(keys), "text": [text] * len(keys)})


def test_the_files_whose_range_meets_the_rows_are_touched(table: object) -> None:
    of = sizes(table)
    assert touched_bytes(table, rows(3, 4), ["id"]) == of[0]
    assert touched_bytes(table, rows(19, 20), ["id"]) == of[10] + of[20]
    assert touched_bytes(table, rows(0, 29), ["id"]) == sum(of.values())
    assert touched_bytes(table, rows(30), ["id"]) == 0


def test_each_column_of_the_key_counts(table: object) -> None:
    assert touched_bytes(table, rows(3, part="b"), ["id", "part"]) == 0
    assert touched_bytes(table, rows(3, part="a"), ["id", "part"]) == sizes(table)[0]


def test_a_column_without_statistics_leaves_no_file_out(table: object) -> None:
    assert touched_bytes(table, rows(3), ["text"]) == sum(sizes(table).values())
    assert touched_bytes(table, pa.table({"id": ["a"]}), ["id"]) == sum(sizes(table).values())
