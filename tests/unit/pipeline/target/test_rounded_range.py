"""The files that may hold a DECIMAL, by the statistics that delta-rs itself writes of it."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from random import Random

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from airflow_cdc.pipeline.apply.native.bounds import touched_files
from airflow_cdc.pipeline.target.rounded_range import rounded_range

TYPES = [(16, 0), (19, 0), (20, 0), (20, 4), (38, 0), (38, 10), (38, 30), (38, 38)]


def decimals(chance: Random, precision: int, scale: int, *, count: int) -> list[Decimal]:
    """Return numbers of all lengths, among them those at the ends of the type, of 53 bits and of 64."""
    edges = [10**precision - 1, 2**53 + 1, 2**63, 2**64 - 1, 1, 0]
    whole = [*edges, *(chance.randrange(10 ** chance.randint(1, precision)) for _ in range(count))]
    return [Decimal(f"{chance.choice(('', '-'))}{number}E-{scale}") for number in whole if number < 10**precision]


@pytest.mark.parametrize(("precision", "scale"), TYPES)
def test_no_file_of_delta_rs_is_passed_over_that_holds_the_key(precision: int, scale: int, tmp_path: Path) -> None:
    chance, kind = Random(precision * 100 + scale), pa.decimal128(precision, scale)
    keys = decimals(chance, precision, scale, count=20)
    for key in keys:
        write_deltalake(tmp_path / "t", pa.table({"id": pa.array([key], kind)}), mode="append")
    table = DeltaTable(tmp_path / "t")
    held = {path: pq.read_table(tmp_path / "t" / path).column("id")[0].as_py() for path in paths(table)}
    for key in keys:
        touched = {str(file["path"]) for file in touched_files(table, pa.table({"id": pa.array([key], kind)}), ["id"])}
        assert {path for path, value in held.items() if value == key} <= touched


def paths(table: DeltaTable) -> list[str]:
    return [str(path) for path in pa.table(table.get_add_actions(flatten=True)).column("path").to_pylist()]


def test_a_range_is_hardly_wider_and_other_types_are_as_they_were() -> None:
    assert rounded_range(Decimal(1_000_000_000), Decimal(2_000_000_000)) == (Decimal("999999999.99999"), Decimal("2000000000.00002"))
    assert rounded_range(Decimal(0), Decimal(0)) == (0, 0)
    assert rounded_range("a", "b") == ("a", "b")
    assert rounded_range(None, None) == (None, None)
    assert rounded_range(2**60, 2**61) == (2**60, 2**61)
