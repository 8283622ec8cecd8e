"""Files reach DuckDB by their bytes: no name is taken for a pattern, a folder for a column, or a compression for another."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.pipeline.apply.native.fold import fold_natively
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from tests.support.events import numbered, sqlserver
from tests.support.natively import bytes_of, changes_of, decoder_of

NAMES = (
    "plain.jsonl",
    "no ending",
    "compressed.jsonl.gz",
    "compressed.jsonl.zst",
    "year=2026/id=9/in folders.json",
    "st*r.json",
    "ques?tion.json.gz",
    "br[1]acket.json",
    "{a,b}.json",
    "ha#sh.json",
    "per%20cent.json",
    "ünï☃.json",
    "quote'd.json",
    "back\\slash.json",
    "~home.json",
)
LOOKALIKES = ("star.json", "quesXtion.json.gz", "br1acket.json", "a.json")
"""What the names above would match as patterns."""


def event(number: int) -> dict[str, object]:
    (record,) = numbered([sqlserver("c", commit=number + 1, key={"id": number}, after={"id": number, "name": f"n{number}"})], first=number)
    return record


def write(root: Path, path: str, content: bytes) -> None:
    (root / path).parent.mkdir(parents=True, exist_ok=True)
    (root / path).write_bytes(content)


@pytest.mark.parametrize("spelled", ["{}", "file://{}"])
def test_files_of_any_name_are_read_and_no_others(tmp_path: Path, spelled: str) -> None:
    files = {name: [event(number)] for number, name in enumerate(NAMES)}
    for name, records in files.items():
        write(tmp_path, name, bytes_of(name, records))
    for name in LOOKALIKES:
        write(tmp_path, name, bytes_of(name, [event(1_000)]))
    found = fold_natively(decoder_of(files), spelled.format(tmp_path))
    assert changes_of(found.rows) == [(number, f"n{number}", "c") for number in range(len(NAMES))]


def test_several_threads_read_one_large_file(tmp_path: Path) -> None:
    records = [event(number) for number in range(3_000)]
    # As large as several of the parts that DuckDB's threads take.
    padding = b" " * 20_000
    write(tmp_path, "large.json", bytes_of("large.json", records).replace(b"\n", padding + b"\n"))
    found = fold_natively(decoder_of({"large.json": records}), str(tmp_path), threads=4)
    assert changes_of(found.rows) == [(number, f"n{number}", "c") for number in range(3_000)]


def test_a_broken_line_hands_over_with_the_files_own_name(tmp_path: Path) -> None:
    files = {"a.json": [event(0)], "b/c.json": [event(1)]}
    write(tmp_path, "a.json", bytes_of("a.json", files["a.json"]))
    write(tmp_path, "b/c.json", b'{"topic":')
    with pytest.raises(HandedOver, match=r'not all lines are plain: .*/b/c\.json"'):
        fold_natively(decoder_of(files), str(tmp_path))


def test_a_file_that_is_gone_hands_over(tmp_path: Path) -> None:
    with pytest.raises(HandedOver, match=r"No files found .*/gone\.json"):
        fold_natively(decoder_of({"gone.json": [event(0)]}), str(tmp_path))
