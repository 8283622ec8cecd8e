"""Captures without their schemas, typed by a schema that was handed over once: the tables that events with schemas give."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import fsspec
import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.column_origin import Origin
from airflow_cdc.model.lake import FlowState
from airflow_cdc.model.source_schema import SourceColumn, SourceSchema, SourceSchemas
from airflow_cdc.pipeline.compare_tables import compare_lakes
from airflow_cdc.pipeline.decode.source_columns import image_fields
from tests.conftest import Apply

CAPTURES = Path(__file__).parent / "captures"
ALTERED = {"evolve", "evolve_untouched", "gen", "acct"}
"""Tables that were altered while they were captured: one schema is not that of all their events."""


def strip(source: Path, to: Path) -> dict[str, SourceSchema]:
    """Write the records as ``schemas.enable=false`` has them; return the newest schema of each topic."""
    schemas: dict[str, SourceSchema] = {}
    for path in sorted(source.rglob("*.jsonl.gz")):
        target = to / path.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        with gzip.open(path, "rt", encoding="utf-8") as lines, gzip.open(target, "wt", encoding="utf-8") as bare:
            for line in lines:
                record = json.loads(line)
                value = record["value"]
                if value and (fields := image_fields(json.dumps(value["schema"]))):
                    connector = value["payload"]["source"]["connector"]
                    schemas[record["topic"]] = SourceSchema(record["topic"], connector, tuple(map(column, fields)))
                payloads = {name: record[name] and record[name]["payload"] for name in ("key", "value")}
                bare.write(json.dumps({**record, **payloads}, ensure_ascii=False) + "\n")
    return schemas


def column(field: dict[str, Any]) -> SourceColumn:
    return SourceColumn(field["field"], {name: told for name, told in field.items() if name != "field"})


@pytest.mark.parametrize(
    ("capture", "tables"),
    [
        ("pg_pk", ("*.pair", "*.ring")),
        pytest.param("pg_load", ("*.customers", "*.notes", "*.order_items", "*.orders", "*.stock"), marks=pytest.mark.deep),
        pytest.param("maria_load", ("*.customers", "*.items", "*.stock"), marks=pytest.mark.deep),
        pytest.param("pg_types_precise", (), marks=pytest.mark.deep),
        pytest.param("maria_types_precise", (), marks=pytest.mark.deep),
        pytest.param("sqlserver_synth", (), marks=pytest.mark.deep),
    ],
)
def test_a_schema_that_is_handed_over_once_gives_the_tables_that_events_with_schemas_give(
    capture: str, tables: tuple[str, ...], apply: Apply, spark: SparkSession, tmp_path: Path
) -> None:
    schemas = strip(CAPTURES / capture / "archive/schema", tmp_path / "archive")
    fs, lake = fsspec.filesystem("file"), str(tmp_path / "bare")
    kept = SourceSchemas(fs, lake)
    for topic, schema in schemas.items():
        kept.put(FlowState(fs, lake, topic).folder, schema)
    altered = tuple(f"!*.{name}" for name in ALTERED)

    report = apply(tmp_path / "archive", lake, tables=(*tables, *altered))
    apply(CAPTURES / capture / "archive/schema", tmp_path / "schema", tables=(*tables, *altered))

    found = compare_lakes(spark, lake, str(tmp_path / "schema"))
    assert len(found.tables) >= max(2, len(tables))
    assert [table.flow for table in found.tables if not table.equal] == []
    origins = {told.origin for flow in report.flows for batch in flow.batches for told in batch.types.values()}
    assert origins == {Origin.SCHEMA}
