"""What the native engine leaves to Spark once it knows the keys."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.pipeline.apply.native import settle_rows
from tests.conftest import Apply
from tests.support.events import TOPIC, sqlserver, write_records


def test_keys_all_over_a_large_table_are_merged_by_spark_and_others_are_not(
    apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow = CdcFlow(TOPIC, max_microbatch_bytes=1)
    # Two files of the table: of the keys 0 to 9, and 10 to 19.
    for number, first in enumerate((0, 10)):
        creates = [sqlserver("c", commit=10 + key, key={"id": key}, after={"id": key}, offset=key) for key in range(first, first + 10)]
        write_records(tmp_path / "archive" / f"{number}.jsonl", creates)
    apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow})
    files = [path.stat().st_size for path in (tmp_path / "lake" / TOPIC).glob("*.parquet")]
    assert len(files) == 2
    monkeypatch.setattr(settle_rows, "MOST_TOUCHED_BYTES", max(files))

    def update(number: int, *keys: int) -> tuple[str, str]:
        rows = [
            sqlserver("u", commit=number + key, key={"id": key}, before={"id": key}, after={"id": key}, offset=number + key) for key in keys
        ]
        write_records(tmp_path / "archive" / f"{number}.jsonl", rows)
        batch = apply(tmp_path / "archive", tmp_path / "lake", flows={TOPIC: flow}).flows[0].batches[0]
        return batch.engine, batch.engine_reason

    assert update(100, 3) == ("native", "")
    assert update(200, 3, 13) == ("mixed", "few events touch many files of a large table")
