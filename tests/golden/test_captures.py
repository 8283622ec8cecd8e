"""Real connectors' captures, judged by the source databases' own final rows."""

from __future__ import annotations

import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.model.flow.routes import RoutedFlows
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.support.tables import read_rows

pytestmark = pytest.mark.both_engines

CAPTURES = Path(__file__).parent / "captures"

TABLES = {
    "sqlserver_synth": ("*.customers", "*.items", "*.ring"),
    "pg_pk": ("*.acct", "*.pair", "*.ring"),
    "pg_pk_v19": ("*.acct", "*.pair", "*.ring"),
    "pg_types_precise": ("*.nopk",),
    "maria_types_precise": ("*.acct", "*.nopk", "*.pair", "*.trunc1"),
    "oracle_synth": ("*.CUSTOMERS", "*.ITEMS", "*.RING"),
    "mongo_full_synth": ("*.carts", "*.orders"),
    "cdl1_pg_pk": ("*.acct", "*.pair", "*.ring"),
    "cdl2_pg_pk": ("*.acct", "*.pair", "*.ring"),
    "pg_load": ("*.customers", "*.notes", "*.order_items", "*.orders", "*.stock"),
    "maria_load": ("*.customers", "*.items", "*.stock"),
    "maria_resnapshot": ("*.customers", "*.items", "*.stock"),
}
QUICK = {"sqlserver_synth": ("*.ring",), "maria_types_precise": ("*.nopk",), "pg_types_precise": ("*.nopk",)}
"""Tables whose transactions hand keys on, and tables without a key: every run judges them, the deep run all tables in every form."""


def declared_keys(capture: str) -> Mapping[str, CdcFlow]:
    """Return the flows of a capture with their keys declared, as a value-only archive without keys needs them."""
    tables = json.loads((CAPTURES / capture / "tables.json").read_text())
    return {table["topic"]: CdcFlow(table["topic"], keys=tuple(table["key"])) for table in tables.values()}


@pytest.fixture(scope="module")
def finals(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the lakes of final rows, each made by the first test that needs it."""
    return tmp_path_factory.mktemp("finals")


def final_of(archive: str) -> str:
    """Return the folder of the final rows that have the archive's form."""
    return "final/schema" if archive == "archive/schema" else "final/plain"


@pytest.mark.parametrize(
    ("capture", "archive", "tables"),
    [
        *[pytest.param(capture, "archive/schema", tables, id=f"{capture}, some tables") for capture, tables in QUICK.items()],
        *[
            pytest.param(capture, archive, tables, marks=pytest.mark.deep, id=f"{capture}-{archive}-{final_of(archive)}")
            for capture, tables in TABLES.items()
            for archive in ("archive/schema", "archive/plain", "s3")
            if (CAPTURES / capture / archive).exists()
        ],
    ],
)
def test_an_archive_gives_the_same_tables_as_the_database_s_final_rows(
    capture: str, archive: str, tables: tuple[str, ...], apply: Apply, spark: SparkSession, finals: Path, tmp_path: Path
) -> None:
    final = final_of(archive)
    # What bare JSON leaves open is the same in the events and in the final rows.
    guessed = RoutedFlows({}, on_unknown_types=OnUnknownTypes.GUESS)
    keyed = RoutedFlows(declared_keys(capture), on_unknown_types=OnUnknownTypes.GUESS)
    flows = keyed if archive == "s3" and capture == "sqlserver_synth" else guessed
    report = apply(CAPTURES / capture / archive, tmp_path / "lake", flows=flows, tables=tables)
    apply(CAPTURES / capture / final, finals / capture / final, flows=guessed, tables=tables)

    found = compare_lakes(spark, str(tmp_path / "lake"), str(finals / capture / final), tables)

    assert len(found.tables) == len(tables)
    assert [table for table in found.tables if not table.equal] == []
    assert sum(flow.events.rejected for flow in report.flows) == 0
    for flow in report.flows:
        if flow.flow.endswith(".nopk"):
            held = read_rows(spark, str(tmp_path / "lake"), flow.flow).rows
            # Counted in both lakes by one rule: the database has the word.
            expected = json.loads((CAPTURES / capture / "expected" / "nopk.json").read_text())
            assert Counter((str(row["a"]), row["b"]) for row in held) == Counter((row["a"], row["b"]) for row in expected)


def as_stored(capture: str, table: str) -> dict[str, str]:
    """Return the documents of a capture's final rows by key, with every long that 32 bits hold as a plain number."""
    found = {}
    with gzip.open(CAPTURES / capture / "final/plain" / f"mg.shop.{table}.jsonl.gz", "rt", encoding="utf-8") as lines:
        for line in lines:
            record = json.loads(line)
            found[record["key"]["id"]] = plain_longs(record["value"]["after"])
    return found


def plain_longs(document: str) -> str:
    """Undo what an update does not show: whether a short integer is a long (docs/sources/mongodb.md#partial-updates)."""
    return re.sub(r'\{"\$numberLong": "(-?\d{1,9})"\}', r"\1", document)


@pytest.mark.deep
@pytest.mark.parametrize(("archive", "table"), [("archive/plain", "carts"), ("archive/schema", "carts"), ("archive/plain", "orders")])
def test_updates_that_carry_only_what_changed_leave_the_database_s_documents(
    archive: str, table: str, apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    report = apply(CAPTURES / "mongo_patch_synth" / archive, tmp_path / "lake", tables=(f"*.{table}",))

    rows = read_rows(spark, str(tmp_path / "lake"), f"mg.shop.{table}").rows
    assert {row["_id"]: plain_longs(row["document"]) for row in rows} == as_stored("mongo_patch_synth", table)
    (batch,) = report.flows[0].batches
    assert (batch.unavailable_unresolved, batch.order_conflicts, batch.rejects) == (0, 0, {})


@pytest.mark.deep
@pytest.mark.parametrize("order", [(0, 1, 2, 3, 4), (4, 3, 2, 1, 0), (0, 2, 1, 4, 1, 3)])
def test_updates_are_folded_in_whatever_order_their_files_come(
    order: tuple[int, ...], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    capture, topic = CAPTURES / "mongo_patch_synth", "mg.shop.orders"
    with gzip.open(capture / "archive/plain" / f"{topic}.jsonl.gz", "rt", encoding="utf-8") as lines:
        chosen = [line for line in lines if hash_of(json.loads(line)["key"]["id"]) % 4 == 0]
    archive = tmp_path / "archive"
    archive.mkdir()
    size = len(chosen) // 5 + 1

    for number, part in enumerate(order):
        (archive / f"{number}.jsonl").write_text("".join(chosen[part * size : (part + 1) * size]), encoding="utf-8")
        apply(archive, tmp_path / "lake")

    rows = read_rows(spark, str(tmp_path / "lake"), topic).rows
    expected = {key: text for key, text in as_stored("mongo_patch_synth", "orders").items() if hash_of(key) % 4 == 0}
    assert {row["_id"]: plain_longs(str(row["document"])) for row in rows} == expected


def hash_of(text: str) -> int:
    return zlib.crc32(text.encode())
