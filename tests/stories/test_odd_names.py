"""Names that SQL would take for something else: of topics, tables, columns and keys, through the whole life of a row."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnDelete, WriteDisposition
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.pipeline.upkeep.inspect_lake import summarize_flows
from tests.conftest import Apply
from tests.support.events import Record, postgresql, sqlserver, write_records
from tests.support.stories import CHOSEN
from tests.support.tables import read_quarantine, read_rows

PLACEHOLDER = "__debezium_unavailable_value"
KEYS = ("key, `no.` 1", "ORDER")
LARGE = "large `text`.part"
COLUMNS = (
    "a b",
    "c.d",
    "`quoted` e`f",
    """it's "x" --y /* z""",
    "comma, semi; {brace} (paren) =",
    "1st",
    "naïve 日本語 per%cent %s %20",
    "SELECT",
    "back\\slash\\n and tab\tline\nend ",
    "${spark.app.name} $.path[0] :named ?",
    "*",
    # Names that our own statements use.
    "s",
    "t",
    "event",
    "offset",
    "names",
    "place",
    "known",
    "further",
    "Unknown",
)
TOPICS = (
    "pg.public.a table",
    "pg.select.100% `of` 'it'",
    'pg.öffentlich.日本 "x"',
    "pg.public.${spark.app.name}",
    "pg.public.%20+a#b?c=d&e",
    "select",
    "pg.public.[x]{y}*",
)


def image(number: int, text: str, large: str | None) -> dict[str, Any]:
    return {KEYS[0]: number, KEYS[1]: f"n°{number}", LARGE: large, **{name: f"{text} {place}" for place, name in enumerate(COLUMNS)}}


def key_of(number: int) -> dict[str, Any]:
    return {name: image(number, "", None)[name] for name in KEYS}


class Story:
    """A table whose names are odd, load by load; an event is (operation, change position, key, text, large text)."""

    def __init__(self, apply: Apply, folder: Path, flow: CdcFlow, spelled: Callable[[Record], Record] = lambda record: record) -> None:
        self._apply, self._folder, self._flow, self._spelled = apply, folder, flow, spelled
        self._loads = self._offset = 0

    def load(self, *events: tuple[str, int, int, str | None, str | None]) -> FlowOutcome:
        records = [self._record(*event) for event in events]
        write_records(self._folder / "archive" / f"{self._loads}.jsonl", records)
        self._loads += 1
        flows = {self._flow.topic: self._flow}
        outcome: FlowOutcome = self._apply(self._folder / "archive", self._folder / "lake", flows=flows).flows[0]
        return outcome

    def _record(self, op: str, change: int, number: int, text: str | None, large: str | None) -> Record:
        images: dict[str, Any] = {"after": image(number, text, large)} if text else {"before": {**image(number, "", ""), **self._fillers()}}
        made = postgresql(
            op, commit=change - 1, change=change, topic=self._flow.topic, key=key_of(number), offset=100 * change + self._offset, **images
        )
        self._offset += 1
        return self._spelled(made)

    @staticmethod
    def _fillers() -> Mapping[str, str]:
        return dict.fromkeys(COLUMNS, "")


def with_schema(record: Record) -> Record:
    """Return a record whose key and value carry their schemas."""
    types = {KEYS[0]: "int32"}

    def struct(field: str, names: Iterable[str]) -> dict[str, Any]:
        members = [{"field": name, "type": types.get(name, "string"), "optional": True} for name in names]
        return {"field": field, "type": "struct", "fields": members}

    names = image(0, "", None)
    value = {"type": "struct", "fields": [struct("before", names), struct("after", names)]}
    return {
        **record,
        "key": {"schema": struct("key", KEYS), "payload": record["key"]},
        "value": {"schema": value, "payload": record["value"]},
    }


def life(story: Story) -> FlowOutcome:
    """Creates, updates, a delete, key changes, values that are left out; then more of them in a second microbatch, and late events."""
    story.load(
        ("c", 10, 1, "one", "large one"),
        ("c", 11, 2, "two", "large two"),
        ("c", 12, 3, "three", "large three"),
        ("c", 13, 4, "four", "large four"),
        ("u", 20, 1, "one again", PLACEHOLDER),
        ("d", 21, 2, None, None),
        # A key change is a delete and a create at one position.
        ("d", 22, 3, None, None),
        ("c", 22, 30, "moved", PLACEHOLDER),
    )
    story.load(
        ("u", 40, 1, "one at last", PLACEHOLDER),
        ("d", 41, 4, None, None),
        ("c", 41, 40, "moved too", PLACEHOLDER),
        ("u", 42, 30, "moved and changed", PLACEHOLDER),
        ("c", 43, 5, "five", "large five"),
    )
    # Late: a deleted row does not come back, a newer one does not go back, and what it left out is filled in.
    return story.load(("u", 15, 2, "two, late", "large two"), ("u", 30, 1, "one, late", "large one, late"), ("d", 44, 5, None, None))


LIVING = [
    image(1, "one at last", "large one, late"),
    image(30, "moved and changed", "large three"),
    image(40, "moved too", "large four"),
]


def rows(spark: SparkSession, lake: Path, topic: str) -> list[dict[str, Any]]:
    return sorted(read_rows(spark, str(lake), topic).rows, key=lambda row: row[KEYS[0]])


@pytest.mark.deep
def test_a_row_with_odd_names_lives_as_any_other(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    topic = TOPICS[1]
    late = life(Story(apply, tmp_path, CdcFlow(topic)))
    assert rows(spark, tmp_path / "lake", topic) == LIVING
    assert (late.events.read, late.events.stale, late.rows.updated, late.rows.deleted) == (3, 1, 1, 1)
    assert late.table == f"{tmp_path}/lake/{topic}"
    assert (tmp_path / "lake" / topic / "_delta_log").is_dir()


HISTORIES = {
    "flagged": CdcFlow("t", on_delete=OnDelete.FLAG),
    "scd2": CdcFlow("t", stored_as_scd_type=2, scd_columns=replace(CHOSEN, is_current="v")),
    "declared": CdcFlow("t", keys=KEYS, columns=dict.fromkeys((LARGE, *COLUMNS), "STRING")),
}


@pytest.mark.deep
@pytest.mark.parametrize("settings", HISTORIES)
def test_so_it_does_under_every_setting(settings: str, apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    flow = replace(HISTORIES[settings], topic=TOPICS[1])
    life(Story(apply, tmp_path, flow))
    assert rows(spark, tmp_path / "lake", flow.topic) == LIVING


@pytest.mark.deep
def test_events_that_carry_their_schemas_have_odd_names_too(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    life(Story(apply, tmp_path, CdcFlow(TOPICS[1]), with_schema))
    assert rows(spark, tmp_path / "lake", TOPICS[1]) == LIVING


@pytest.mark.deep
def test_rows_without_a_key_have_odd_names_too(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    topic = TOPICS[1]
    keyless: dict[str, Any] = {"key": {}, "topic": topic}

    def load(number: int, *events: Record) -> None:
        write_records(archive / f"{number}.jsonl", [{**item, "key": None, "offset": 10 * number + at} for at, item in enumerate(events)])
        apply(archive, lake, flows={topic: CdcFlow(topic)})

    one, two, three = (image(number, text, "large") for number, text in ((1, "one"), (1, "two"), (2, "three")))
    created = [postgresql("c", commit=9 + at, change=10 + at, after=row, **keyless) for at, row in enumerate([one, one, three])]
    load(0, *created, postgresql("u", commit=19, change=20, before=one, after=two, **keyless))
    assert rows(spark, lake, topic) == [one, two, three]
    load(1, postgresql("d", commit=29, change=30, before=two, **keyless))
    assert rows(spark, lake, topic) == [one, three]


@pytest.mark.deep
def test_a_name_that_parquet_refuses_may_come_later(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    topic = TOPICS[0]
    flows = {topic: CdcFlow(topic)}
    write_records(archive / "1.jsonl", [sqlserver("c", commit=10, after={"id": 1, "v": "x"}, topic=topic, offset=0)])
    apply(archive, lake, flows=flows)
    late = {"id": 2, "v": "y", "a b": "z", "c=d": "w"}
    write_records(archive / "2.jsonl", [sqlserver("c", commit=20, after=late, topic=topic, offset=1)])
    assert apply(archive, lake, flows=flows).flows[0].batches[0].columns_added == ("a b", "c=d")
    # A flow that the lake has goes on under its name, also where the settings do not spell it out any more.
    write_records(archive / "3.jsonl", [sqlserver("u", commit=30, after={**late, "id": 1}, topic=topic, offset=2)])
    apply(archive, lake)
    assert read_rows(spark, str(lake), topic).rows == [{**late, "id": 1}, late]


@pytest.mark.deep
def test_a_change_log_names_what_an_event_left_out(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    flow = CdcFlow(TOPICS[1], write_disposition=WriteDisposition.APPEND)
    life(Story(apply, tmp_path, flow))
    found = read_rows(spark, str(tmp_path / "lake"), flow.topic, history=True).rows
    assert len(found) == 16
    assert sum(row["__cdc_unavailable"] == [LARGE] for row in found) == 5


@pytest.mark.deep
def test_topics_of_any_name_have_tables_and_quarantines_of_their_own(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    for number, topic in enumerate(TOPICS):
        good = sqlserver("c", commit=10, after={"id": number}, topic=topic, offset=0)
        bad = sqlserver("c", commit=11, after={"id": None}, topic=topic, offset=1)
        write_records(tmp_path / "archive" / f"{number}.jsonl", [good, bad])
    apply(tmp_path / "archive", tmp_path / "lake", flows={topic: CdcFlow(topic) for topic in TOPICS})
    lake = str(tmp_path / "lake")
    assert {flow: read_rows(spark, lake, flow).rows for flow in TOPICS} == {topic: [{"id": number}] for number, topic in enumerate(TOPICS)}
    assert {(record["flow"], record["reason"]) for record in read_quarantine(spark, lake)} == {(topic, "missing_key") for topic in TOPICS}
    assert {flow.flow for flow in summarize_flows(spark, lake)} == set(TOPICS)


@pytest.mark.deep
def test_two_hundred_columns_are_merged_by_a_key_of_ten(apply: Apply, spark: SparkSession, archive: Path, lake: Path) -> None:
    names = [f"{place} `column`, no. {place}%" for place in range(200)]
    row = dict.fromkeys(names, "x")
    key = {name: row[name] for name in names[::20]}
    write_records(archive / "1.jsonl", [sqlserver("c", commit=10, after=row, key=key, offset=0)])
    apply(archive, lake)
    changed = {**row, names[7]: "y"}
    update = sqlserver("u", commit=20, before=row, after=changed, key=key, offset=2)
    write_records(archive / "2.jsonl", [update, sqlserver("u", commit=15, before=row, after=row, key=key, offset=1)])
    apply(archive, lake)
    assert read_rows(spark, str(lake), "server1.testDB.dbo.customers").rows == [changed]
