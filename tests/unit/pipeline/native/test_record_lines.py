"""Values and their companions' keys pair line by line, or not at all."""

from __future__ import annotations

import gzip
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.record_lines import RecordLines, UnpairedError, fetch, is_paired_natively

MEMBERS = {"op": "VARCHAR", "after": "JSON"}
LINES = tuple(f'{{"op": "c", "after": {{"id": {number}}}}}' for number in range(3))
KEYS = tuple(f'{{"id": {number}}}' for number in range(3))


COMPRESS: Mapping[str, Callable[[bytes], bytes]] = {
    "": bytes,
    ".gz": gzip.compress,
    # A frame for each line: all frames are the file.
    ".zst": lambda text: b"".join(pa.compress(line, codec="zstd", asbytes=True) for line in text.splitlines(keepends=True)),
}


def land(root: Path, values: str, keys: str | None, *, offset: int = 0, ending: str = "") -> ArchivedFile:
    """Write a file of values and its companion, as they are given."""
    path, keys_path = f"t+1+{offset}.json{ending}", f"t+1+{offset}.keys.json{ending}" if keys is not None else None
    for name, content in ((path, values), (keys_path, keys)):
        if name is not None and content is not None:
            encoded = content.encode()
            (root / name).write_bytes(COMPRESS[ending](encoded))
    return ArchivedFile(path, 1, "t", 1, offset, keys_path)


def read(root: Path, *files: ArchivedFile, key: str | dict[str, str] = "JSON") -> list[dict[str, Any]]:
    fetched = fetch(str(root), files)
    with connect_duckdb(threads=4) as connection:
        connection.register_filesystem(fetched)
        cursor = connection.execute(RecordLines(fetched, files, are_values=True).read(MEMBERS, key))
        names = [column[0] for column in cursor.description]
        return [dict(zip(names, row, strict=True)) for row in cursor.fetchall()]


def pairs(rows: list[dict[str, Any]]) -> list[tuple[int, str, Any]]:
    return [(row["__cdc_start"], row["value"]["after"], row["key"]) for row in rows]


@pytest.mark.parametrize("compressed", [".gz", ".zst"])
def test_each_value_has_the_key_of_its_line_and_what_its_file_s_name_gives(compressed: str, tmp_path: Path) -> None:
    # A sink's last line may have no end, and some end lines as Windows does.
    files = [
        land(tmp_path, "\n".join(LINES), "\n".join(KEYS) + "\n"),
        land(tmp_path, "\r\n".join(LINES[:2]) + "\r\n", "\n".join(KEYS[1:]), offset=3, ending=compressed),
    ]
    rows = read(tmp_path, *files)
    assert pairs(rows) == [
        (0, '{"id":0}', '{"id": 0}'),
        (0, '{"id":1}', '{"id": 1}'),
        (0, '{"id":2}', '{"id": 2}'),
        (3, '{"id":0}', '{"id": 1}'),
        (3, '{"id":1}', '{"id": 2}'),
    ]
    assert all(row["__cdc_is_of_layout"] and row["partition"] == 1 and row["offset"] is None for row in rows)
    assert [row["key"] for row in read(tmp_path, *files, key={"id": "JSON"})] == [{"id": f"{number}"} for number in (0, 1, 2, 1, 2)]


def test_several_threads_pair_large_files(tmp_path: Path) -> None:
    # As large as several of the parts that DuckDB's threads take.
    padding = " " * 40_000
    files = []
    for number in range(3):
        values = "".join(f'{{"op": "c", "after": {{"id": {line}}}}}{padding}\n' for line in range(1_000))
        keys = "".join(f'{{"id":{line}}}\n' for line in range(1_000))
        files.append(land(tmp_path, values, keys, offset=number * 1_000))
    rows = read(tmp_path, *files)
    assert len(rows) == 3_000
    assert all(row["value"]["after"] == row["key"] and row["__cdc_is_of_layout"] for row in rows)


def test_values_without_companions_have_no_keys(tmp_path: Path) -> None:
    assert pairs(read(tmp_path, land(tmp_path, LINES[0], None))) == [(0, '{"id":0}', None)]


@pytest.mark.parametrize(
    ("values", "keys"),
    [
        ("\n".join([LINES[0], "", LINES[1]]), "\n".join([KEYS[0], KEYS[1], ""])),
        ("\n".join(LINES[:2]), "\n".join([KEYS[0], "", KEYS[1]])),
        ("\n".join(LINES[:2]), "\n" + "\n".join(KEYS[:2])),
        ("\n".join(LINES[:2]), "\n".join([KEYS[0], " " + KEYS[1]])),
        ("\n".join(LINES[:2]), "\n".join([KEYS[0], "null"])),
        ("\n".join([LINES[0], LINES[1].replace(" ", "\r", 1)]), "\n".join(KEYS[:2])),
        ("", ""),
    ],
    ids=["blank value", "blank key", "blank begin", "indented key", "no key", "carriage return", "empty"],
)
@pytest.mark.parametrize("ending", COMPRESS)
def test_lines_whose_number_is_not_certain_do_not_pair(values: str, keys: str, ending: str, tmp_path: Path) -> None:
    with pytest.raises(UnpairedError, match="does not begin with an object"):
        read(tmp_path, land(tmp_path, values, keys, ending=ending))


@pytest.mark.parametrize("ending", [".gz", ".zst"])
def test_a_companion_that_is_cut_off_does_not_pair(ending: str, tmp_path: Path) -> None:
    file = land(tmp_path, LINES[0], KEYS[0], ending=ending)
    companion = tmp_path / str(file.keys_path)
    companion.write_bytes(companion.read_bytes()[:-9])
    with pytest.raises(UnpairedError, match=rf"keys\.json\{ending}: "):
        read(tmp_path, file)


@pytest.mark.parametrize(("values", "keys"), [(3, 2), (2, 3)], ids=["a value more", "a key more"])
def test_a_line_without_its_counterpart_is_of_no_layout_nor_is_one_of_the_next_file(values: int, keys: int, tmp_path: Path) -> None:
    files = [land(tmp_path, "\n".join(LINES[:values]), "\n".join(KEYS[:keys])), land(tmp_path, LINES[0], KEYS[0], offset=9)]
    rows = read(tmp_path, *files)
    assert [row["__cdc_is_of_layout"] for row in rows][:2] == [True, True]
    assert not all(row["__cdc_is_of_layout"] for row in rows)


@pytest.mark.parametrize("member", ["topic", "partition", "offset", "key", "headers", "value"])
def test_a_value_with_a_member_of_a_whole_record_is_of_no_layout(member: str, tmp_path: Path) -> None:
    (row,) = read(tmp_path, land(tmp_path, LINES[0].replace("{", f'{{"{member}": 0, ', 1), KEYS[0]))
    assert row["__cdc_is_of_layout"] is False


@pytest.mark.parametrize("line", ['{"op": "c"}, "after": {"id": 7}}', '{"op": "c"} {"op": "d"}', '{"op": "c", "op": "d"}', '{"op": "c"'])
def test_a_line_that_is_more_or_less_than_one_document_fails(line: str, tmp_path: Path) -> None:
    with pytest.raises(duckdb.Error):
        read(tmp_path, land(tmp_path, line, KEYS[0]))


@pytest.mark.parametrize(
    ("keys_path", "is_paired"),
    [
        (None, True),
        ("a.keys.json", True),
        ("a.keys.json.gz", True),
        ("a.keys.json.zst", True),
        ("a.keys.json.ZST", False),
        ("a.BZ2", False),
    ],
)
def test_companions_are_read_where_their_lines_can_be_counted(keys_path: str | None, is_paired: bool) -> None:
    assert is_paired_natively(ArchivedFile("a.json", 1, "a", keys_path=keys_path)) is is_paired
