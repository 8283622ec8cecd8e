"""One table whose topic and log have lives: its events in few words, the files that come, and the table as it then is."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import FlowOutcome
from airflow_cdc.model.report.batch_report import BatchReport
from tests.conftest import Apply
from tests.support.events import Record, postgresql, write_records
from tests.support.tables import read_rows

TOPIC = "pg.public.customers"
MILLISECONDS = 1_700_000_000_000


class Story:
    """One table: files come, and are applied."""

    def __init__(self, folder: Path, apply: Apply, spark: SparkSession) -> None:
        self.archive, self.lake = folder / "archive", folder / "lake"
        self._apply, self._spark = apply, spark
        self._files = 0

    def lands(self, *records: Record | str, name: str | None = None) -> Path:
        """Write one file."""
        self._files += 1
        return write_records(self.archive / f"{name or f'{self._files:03d}'}.jsonl", records)

    def apply(self, *records: Record, **settings: Any) -> BatchReport:
        """Write a file, where there are records, and apply what is new."""
        if records:
            self.lands(*records)
        report = self._apply(self.archive, self.lake, flows={TOPIC: CdcFlow(TOPIC, **settings)})
        return report.flows[0].batches[-1]

    def outcome(self, *records: Record, **settings: Any) -> FlowOutcome:
        """The same, whether the flow applies, waits or stops; return how it ended."""
        if records:
            self.lands(*records)
        return self._apply(self.archive, self.lake, flows={TOPIC: CdcFlow(TOPIC, **settings)}, may_fail=True).flows[0]

    def error(self, *records: Record, **settings: Any) -> dict[str, Any]:
        """The same, where the flow is to stop; return its error."""
        self.lands(*records)
        report = self._apply(self.archive, self.lake, flows={TOPIC: CdcFlow(TOPIC, **settings)}, may_fail=True)
        assert report.flows[0].error is not None
        return dict(report.flows[0].error)

    @property
    def rows(self) -> dict[int, str]:
        """The table: name by id."""
        return {row["id"]: row["name"] for row in read_rows(self._spark, str(self.lake), TOPIC).rows}


def row(key: int, name: str) -> dict[str, Any]:
    return {"id": key, "name": name}


def read(
    key: int, name: str, *, at: int, offset: int, marker: str = "true", partition: int = 0, blocking: bool = False, sent: int | None = None
) -> Record:
    """Return a full snapshot's read; an initial one, unless it is declared as blocking. ``sent``: when the connector processed it."""
    event = postgresql("r", commit=at if blocking else None, change=at, after=row(key, name), offset=offset, partition=partition)
    event["value"]["source"]["snapshot"] = marker
    event["value"]["ts_ms"] = MILLISECONDS + (at if sent is None else sent)
    return event


def change(op: str, key: int, name: str, *, at: int, offset: int, partition: int = 0, sent: int | None = None) -> Record:
    """Return a streamed event; each is a transaction of its own."""
    image = row(key, name)
    images = {"before": image} if op == "d" else {"after": image}
    event = postgresql(op, commit=at, change=at, offset=offset, partition=partition, **images)  # type: ignore[arg-type]
    event["value"]["ts_ms"] = MILLISECONDS + (at if sent is None else sent)
    return event


def snapshot(names: dict[int, str], *, at: int, first: int, partition: int = 0, **more: Any) -> list[Record]:
    """Return the reads of a whole snapshot of one partition."""
    last = len(names) - 1
    return [
        read(key, name, at=at, offset=first + place, marker="last" if place == last else "true", partition=partition, **more)
        for place, (key, name) in enumerate(names.items())
    ]


def updates(count: int, *, keys: Iterable[int], at: int, first: int) -> list[Record]:
    wanted = list(keys)
    return [change("u", wanted[number % len(wanted)], f"u{number}", at=at + number, offset=first + number) for number in range(count)]


FIRST = {1: "a", 2: "b", 3: "c", 4: "d", 5: "e"}
SECOND = {1: "A", 2: "B", 3: "C", 5: "E"}


def of_table(event: Record, table: str) -> Record:
    """Return the event as ByLogicalTableRouter sends it to a topic that several tables share."""
    source = {**event["value"]["source"], "table": table}
    key = None if event["key"] is None else {**event["key"], "__dbz__physicalTableIdentifier": f"pg.public.{table}"}
    return {**event, "key": key, "value": {**event["value"], "source": source}}


def truncate(*, at: int, offset: int, table: str = "customers") -> Record:
    event = postgresql("t", commit=at, change=at, offset=offset)
    event["value"]["source"]["table"] = table
    return {**event, "key": None}
