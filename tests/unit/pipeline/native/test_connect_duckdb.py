"""DuckDB's bounds, and what happens where they are too narrow."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from airflow_cdc.pipeline.apply.native.fold import fold_natively
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.native import connect_duckdb as bounds
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from airflow_cdc.pipeline.native.fetched_files import FetchedFiles, NamedFiles
from tests.support.events import numbered, sqlserver, write_records
from tests.support.natively import decoder_of


@pytest.mark.parametrize(
    ("free", "bound"),
    [(None, "4.0 GiB"), (20 * 1024**3, "4.0 GiB"), (3 * 1024**3, "1.0 GiB"), (384 * 1024**2, "256.0 MiB"), (0, "256.0 MiB")],
)
def test_a_connection_has_bounds_and_spills_outside_of_the_working_folder(
    free: int | None, bound: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bounds, "free_memory", lambda: free)
    with connect_duckdb(threads=99) as connection:
        settings = [connection.execute(f"SELECT current_setting('{name}')").fetchone()[0] for name in ("threads", "temp_directory")]
        (memory,) = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert settings == [os.cpu_count(), tempfile.gettempdir()]
    assert memory == bound


def test_nothing_of_a_connection_is_left_to_the_next_one() -> None:
    class Named(NamedFiles):
        protocol = "cdc-test"

    with connect_duckdb() as connection:
        connection.execute("CREATE TEMP TABLE events AS SELECT 1 AS id; CREATE TEMP VIEW cdc AS SELECT 2 AS id")
        connection.register("changes", pa.table({"id": [3]}))
        connection.register_filesystem(Named())
        database = id_of(connection)
    with connect_duckdb() as connection:
        assert id_of(connection) == database
        assert connection.list_filesystems() == []
        for name in ("events", "cdc", "changes"):
            with pytest.raises(duckdb.CatalogException):
                connection.execute(f"SELECT * FROM {name}")
        # Two at once share nothing.
        with connect_duckdb() as other:
            assert id_of(other) != database
    # One in which a statement failed may not be sound.
    with suppress(ZeroDivisionError), connect_duckdb() as connection:
        broken = id_of(connection)
        raise ZeroDivisionError
    with connect_duckdb() as connection:
        assert id_of(connection) != broken


def test_a_file_that_changed_under_its_name_is_read_anew(tmp_path: Path) -> None:
    found = []
    for text in ('{"a":1}', '{"a":2}'):
        (tmp_path / "file*.json").write_text(text)
        files = FetchedFiles(str(tmp_path), ["file*.json"])
        with connect_duckdb() as connection:
            connection.register_filesystem(files)
            found += connection.execute(f"SELECT json FROM read_ndjson_objects(['{files.uris[0]}'])").fetchall()
    assert found == [('{"a":1}',), ('{"a":2}',)]


def id_of(connection: Any) -> str:
    """Return what distinguishes a database: a table that stays in it."""
    connection.execute("CREATE TABLE IF NOT EXISTS made_at AS SELECT uuid() AS id")
    return str(connection.execute("SELECT id FROM made_at").fetchone()[0])


def test_a_microbatch_for_which_memory_is_too_small_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_memory", lambda: 10**6)
    records = numbered([sqlserver("c", commit=number + 1, after={"id": number, "name": "n" * 200}) for number in range(20_000)])
    write_records(tmp_path / "a.jsonl", records)
    with pytest.raises(HandedOver, match="Out of Memory"):
        fold_natively(decoder_of({"a.jsonl": records}), str(tmp_path))
