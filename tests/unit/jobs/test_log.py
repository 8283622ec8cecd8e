"""The log of a submitted run in which nothing is wrong: nothing in it alarms."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.operators.spark_target import SparkTarget, application_of, binary_for, conf_for, environment_for
from tests.support.events import Record, postgresql, write_records

COMPILED_FROM = 4 * 1024**2
"""Bytes of a batch from which on Spark compiles what it does; below it interprets."""
TYPES: tuple[tuple[dict[str, Any], Any], ...] = (
    ({"type": "string"}, "text"),
    ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, 1_700_000_000_000_000),
    ({"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}, "AQA="),
    ({"type": "int32", "name": "io.debezium.time.Date"}, 19_000),
    ({"type": "double"}, 1.5),
    ({"type": "boolean"}, True),
    ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "2026-11-20T01:02:03Z"),
)
NO_FAULT = re.compile(
    # Said by the JVM before anything of ours runs: Spark's launcher asks for the module, and nothing takes that back.
    r"^WARNING: Using incubator modules: jdk\.incubator\.vector$"
)
PANDAS_3 = "import pandas\npandas.__version__ = '3.0.1'\n"


def events(columns: int) -> Iterator[Record]:
    """Yield creates of rows of many types, with their schemas, without an end."""
    kinds = [TYPES[place % len(TYPES)] for place in range(columns - 1)]
    fields = [{**kind, "optional": True, "field": f"c{place}"} for place, (kind, _) in enumerate(kinds)]
    fields = [{"type": "int32", "optional": False, "field": "id"}, *fields]
    images = [{"type": "struct", "fields": fields, "optional": True, "field": name} for name in ("before", "after")]
    schema = {"type": "struct", "fields": [*images, {"type": "string", "field": "op"}]}
    key = {"type": "struct", "fields": fields[:1]}
    number = 0
    while True:
        row = {"id": number, **{f"c{place}": value for place, (_, value) in enumerate(kinds)}}
        made = postgresql("c", commit=number, change=number + 1, after=row, topic=f"pg.public.of_{columns}", offset=number)
        yield {**made, "key": {"schema": key, "payload": made["key"]}, "value": {"schema": schema, "payload": made["value"]}}
        number += 1


def land(archive: Path, columns: int) -> None:
    found, size = [], 0
    for event in events(columns):
        found.append(event)
        size += len(json.dumps(event))
        if size > COMPILED_FROM * 1.05:
            break
    write_records(archive / f"{columns}.jsonl", found)


@pytest.mark.deep
@pytest.mark.parametrize("columns", [15, 60])
def test_nothing_alarms_in_the_log_of_a_run_in_which_nothing_is_wrong(columns: int, tmp_path: Path) -> None:
    land(tmp_path / "archive", columns)
    assert (tmp_path / "archive" / f"{columns}.jsonl").stat().st_size > COMPILED_FROM
    # As where something else brought pandas 3: PySpark looks for it.
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text(PANDAS_3, encoding="utf-8")
    target = SparkTarget("local[2]", "client", "spark-submit")
    options = [part for name, value in conf_for(target, {}, little_waits=True).items() for part in ("--conf", f"{name}={value}")]
    roots = [part for name in ("archive", "lake") for part in (f"--{name}", str(tmp_path / name))]
    report = tmp_path / "report.json"
    environment = {**os.environ, **environment_for(target)}
    environment["PYTHONPATH"] = os.pathsep.join((str(tmp_path / "site"), environment.get("PYTHONPATH", "")))
    done = subprocess.run(
        [binary_for(target), "--master", target.master, *options, application_of("apply.py"), *roots, "--report", str(report)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    lines = [line for line in (done.stdout + done.stderr).splitlines() if line and not NO_FAULT.match(line)]
    assert json.loads(report.read_text())["ok"], lines
    assert [line for line in lines if not line.startswith("[airflow-cdc] ")] == []
    assert len(lines) == 3
