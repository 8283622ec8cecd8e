"""DuckDB's bounds, and what happens where they are too narrow."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from airflow_cdc.pipeline.apply.native.fold import fold_natively
from airflow_cdc.pipeline.apply.native.handed_over import HandedOver
from airflow_cdc.pipeline.native import connect_duckdb as bounds
from airflow_cdc.pipeline.native.connect_duckdb import connect_duckdb
from tests.support.events import numbered, sqlserver, write_records
from tests.support.natively import decoder_of


def test_a_connection_has_bounds_and_spills_outside_of_the_working_folder() -> None:
    with connect_duckdb(threads=99) as connection:
        settings = [connection.execute(f"SELECT current_setting('{name}')").fetchone()[0] for name in ("threads", "temp_directory")]
        (memory,) = connection.execute("SELECT current_setting('memory_limit')").fetchone()
    assert settings == [os.cpu_count(), tempfile.gettempdir()]
    assert memory == "3.7 GiB"


def test_a_microbatch_for_which_memory_is_too_small_is_handed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "_MEMORY", "1MB")
    records = numbered([sqlserver("c", commit=number + 1, after={"id": number, "name": "n" * 200}) for number in range(20_000)])
    write_records(tmp_path / "a.jsonl", records)
    with pytest.raises(HandedOver, match="Out of Memory"):
        fold_natively(decoder_of({"a.jsonl": records}), str(tmp_path))
