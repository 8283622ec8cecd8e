"""Captures without their schemas, typed by what was handed over once: the tables that events with schemas give."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.column_origin import Origin
from airflow_cdc.model.globs import matches_any
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.bare_archives import hand_over_events, pull_and_import, strip
from tests.golden.connect_schemas import CAPTURES
from tests.golden.test_catalogues import TOPICS

pytestmark = pytest.mark.both_engines

ALTERED = tuple(f"!*.{name}" for name in ("evolve", "evolve_untouched", "gen", "acct"))
"""Tables that were altered while they were captured: one schema is not that of all their events."""

WHOLE = {
    "pg_load": ("*.customers", "*.notes", "*.order_items", "*.orders", "*.stock"),
    "maria_load": ("*.customers", "*.items", "*.stock"),
    "pg_types_precise": ("*", "!*.zz_sentinel"),
    "maria_types_precise": ("*", "!*.zz_sentinel"),
    "sqlserver_synth": ("*",),
}
"""Of each capture the tables of which a catalogue is recorded."""
SOME = {
    "pg_types_precise": ("*.arr", "*.parted"),
    "maria_types_precise": ("*.nn", "*.odd_table"),
    "sqlserver_synth": ("*.ring", "*.items"),
}
CASES = [
    *[pytest.param(capture, tables, id=f"{capture}, some tables") for capture, tables in SOME.items()],
    *[pytest.param(capture, tables, id=capture) for capture, tables in WHOLE.items()],
]


@pytest.fixture(scope="module")
def with_schemas(apply: Apply, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, tuple[str, ...]], str]:
    """Return the lake of a capture's tables as events with schemas give them; each is made once."""
    made: dict[tuple[str, tuple[str, ...]], str] = {}

    def lake(capture: str, tables: tuple[str, ...]) -> str:
        case = (capture, tables)
        if case not in made:
            made[case] = str(tmp_path_factory.mktemp("schema"))
            apply(CAPTURES / capture / "archive/schema", made[case], tables=(*tables, *ALTERED))
        return made[case]

    return lake


@pytest.mark.deep
@pytest.mark.parametrize("way", ["event", "catalogue"])
@pytest.mark.parametrize(("capture", "tables"), CASES)
def test_what_is_handed_over_once_gives_the_tables_that_events_with_schemas_give(
    capture: str,
    tables: tuple[str, ...],
    way: str,
    with_schemas: Callable[[str, tuple[str, ...]], str],
    apply: Apply,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By one event of each topic with its schema, and by the catalogue of the source's server."""
    last, lake = strip(CAPTURES / capture / "archive/schema", tmp_path / "archive"), str(tmp_path / "bare")
    globs = (*tables, *ALTERED)
    flows = [topic for topic in TOPICS[capture].split() if matches_any(topic, globs)]
    if way == "event":
        hand_over_events(lake, {topic: last[topic] for topic in flows})
    else:
        pull_and_import(lake, capture, flows, tmp_path, monkeypatch)

    report = apply(tmp_path / "archive", lake, tables=globs)

    found = compare_lakes(spark, lake, with_schemas(capture, tables))
    assert {table.flow for table in found.tables} == set(flows)
    assert (found.only_left, found.only_right) == ((), ())
    assert [table for table in found.tables if not table.equal] == []
    origins = {column.origin for flow in report.flows for batch in flow.batches for column in batch.types.values()}
    assert origins == {Origin.SCHEMA}
