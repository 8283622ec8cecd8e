"""Text that is read line by line gives the rows of a survey: the same as the native survey's, where both read a file."""

from __future__ import annotations

import bz2
import gzip
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.columns import FILE
from airflow_cdc.pipeline.look.read_plainly import NotPlainError, content_of, read_plainly
from airflow_cdc.pipeline.survey.survey_natively import survey_natively
from tests.support.events import numbered, sqlserver, write_records
from tests.support.surveys import FS

CAPTURES = Path(__file__).parents[3] / "golden/captures"
COMPARED = (FILE, "topic", "kind", "partition", "connector", "table", "key_shape", "value_shape", "records", "first_offset", "last_offset")


def compared(rows: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return sorted((tuple(row[name] for name in COMPARED) for row in rows), key=str)


@pytest.mark.parametrize("capture", ["pg_types_precise", "maria_blocking", "oracle_synth"])
def test_rows_are_those_of_the_native_survey(capture: str) -> None:
    archive = CAPTURES / capture / "archive"
    files = list_archive(FS, str(archive)).files
    native, left = survey_natively(str(archive), files)
    both = [file for file in files if file not in left]
    assert both
    plain = [row for file in both for row in read_plainly(FS, str(archive), file).rows]
    assert compared(plain) == compared(native)


def test_a_file_of_another_format_than_its_name_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b"Obj\x01")
    (tmp_path / "b.bz2").write_bytes(bz2.compress(b"{}")[:-4])
    (tmp_path / "b2.bz2").write_bytes(bz2.compress(b"{}") + bz2.compress(b"{}")[:7] + bz2.compress(b"{}"))
    whole = gzip.compress(b"{}" * 1000)
    (tmp_path / "c.gz").write_bytes(whole[:10] + b"\xff" + whole[11:])
    (avro, *broken) = list_archive(FS, str(tmp_path)).files
    with pytest.raises(NotPlainError, match="it is avro"):
        read_plainly(FS, str(tmp_path), avro)
    for file in broken:
        with pytest.raises(ValueError, match="not compressed as its name shows, or cut off"):
            content_of(FS, str(tmp_path), file.path)


def test_an_array_and_broken_lines_are_counted(tmp_path: Path) -> None:
    good = numbered([sqlserver("c", commit=1, after={"id": 1})])
    write_records(tmp_path / "lines.json", [*good, "{broken"])
    write_records(tmp_path / "whole.json", [f"[{(tmp_path / 'lines.json').read_text().splitlines()[0]}]"])
    lines, whole = (read_plainly(FS, str(tmp_path), file) for file in list_archive(FS, str(tmp_path)).files)
    assert sorted((row["kind"], row["records"]) for row in lines.rows) == [("c", 1), ("malformed", 1)]
    assert [(row["kind"], row["records"]) for row in whole.rows] == [("c", 1)]


def test_an_empty_object_of_which_a_store_gives_no_range_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: str, start: int | None = None, end: int | None = None) -> bytes:
        raise OSError("The requested range is not satisfiable")

    (tmp_path / "empty.json").write_bytes(b"")
    (tmp_path / "full.json").write_bytes(b"{}")
    monkeypatch.setattr(FS, "cat_file", refuse)
    assert content_of(FS, str(tmp_path), "empty.json", 10) == b""
    with pytest.raises(OSError, match="range"):
        content_of(FS, str(tmp_path), "full.json", 10)
