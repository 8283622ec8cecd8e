"""SQL Server's LSNs, as the native engine reads them."""

from __future__ import annotations

import random
import re

import pyarrow as pa
import pytest

from airflow_cdc.model.connectors.registry import CONNECTORS
from airflow_cdc.model.connectors.sqlserver import format_sqlserver_lsn, sqlserver_lsn

duckdb = pytest.importorskip("duckdb")

IS_LSN = re.compile(r"[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,8}:[0-9A-Fa-f]{1,4}")
ODD = " _-+xXgG:.é\t0Ff'\n"


def spelled(pick: random.Random) -> str:
    """Return a text near an LSN: as it is usually spelled, in fewer digits, of any size, and with odd characters in it."""
    number = pick.getrandbits(pick.choice([20, 64, 80]))
    text = list(format_sqlserver_lsn(number))
    if pick.random() < 0.1:
        text = list(":".join(part.lstrip("0") or "0" for part in "".join(text).split(":")))
    for _ in range(pick.choice([0, 0, 0, 1, 2])):
        text[pick.randrange(len(text))] = pick.choice(ODD)
    return "".join(text[: pick.randrange(1, len(text))] if pick.random() < 0.05 else text)


def test_every_text_is_the_number_that_it_spells_or_none() -> None:
    pick = random.Random(1)
    texts = ["", *(spelled(pick) for _ in range(20_000))]
    native = CONNECTORS["sqlserver"].native
    assert native is not None
    with duckdb.connect() as connection:
        connection.register("events", pa.table({"source": [{"commit_lsn": text} for text in texts]}))
        found = [row for (row,) in connection.execute(f"SELECT {native.commit} FROM events").fetchall()]
    expected = [sqlserver_lsn(text) if IS_LSN.fullmatch(text) else None for text in texts]
    assert [value if value is None else int(value) for value in found] == expected
    assert 5_000 < sum(value is None for value in expected) < 15_000
