"""The same pipeline over Spark Connect: a client that has no JVM of its own at hand, only DataFrames and SQL.

Such a client analyses a frame only when it needs its schema or rows.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder
from pyspark.sql import SparkSession

from airflow_cdc import runtime
from airflow_cdc.pipeline.upkeep.compare_tables import compare_lakes
from tests.conftest import Apply
from tests.golden.test_captures import CAPTURES
from tests.support.events import TOPIC, Row, sqlserver, write_records

TABLES = ("*.ring",)

# Classic and Connect sessions do not live in one process.
CLIENT = """
import json, os, shutil, sys
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.flow.engine import Engine
from pyspark.sql import SparkSession
from airflow_cdc import runtime
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.session import SESSION_OPTIONS

builder = SparkSession.builder.remote("local[2]")
for key, value in {**runtime.spark_options(), **SESSION_OPTIONS}.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()
archive, lake, engine, rounds, flows, *tables = sys.argv[1:]

def apply():
    return apply_archive(ArchiveRun(spark, archive, lake, flows=read_flows(flows), tables=tuple(tables), engine=Engine(engine)))

reports = []
for folder in rounds.split(":"):
    if folder:
        shutil.copytree(folder, archive, dirs_exist_ok=True)
    reports.append(apply())
print(json.dumps({"client": type(spark).__module__, "errors": [flow.error for report in reports for flow in report.flows],
                  "status": [[flow.status.value for flow in report.flows] for report in reports]}), flush=True)
# At its end every cloned session would ask the server, which stops first, to forget its models, and wait for minutes.
os._exit(0)
"""


def apply_by_connect(
    folder: Path, archive: Path, *tables: str, engine: str = "auto", rounds: Sequence[Path] = (), flows: Sequence[dict[str, Any]] = ()
) -> list[list[str]]:
    """Apply an archive to ``folder / "connect"`` in a client's process, and return the flows' status of each run.

    :param flows: settings, as in a flows file.
    :param rounds: folders whose files are copied into the archive, each before a run; none: two runs of the archive as it is.
    """
    environment = {**os.environ, **runtime.spark_environment("local[2]"), "SPARK_LOCAL_DIRS": str(folder)}
    # A server of its own, not the one that the classic session of this process started.
    environment = {name: value for name, value in environment.items() if not name.startswith(("PYSPARK_GATEWAY", "SPARK_CONNECT"))}
    of_rounds = ":".join(map(str, rounds)) or ":"
    command = [
        sys.executable,
        "-c",
        CLIENT,
        str(archive),
        str(folder / "connect"),
        engine,
        of_rounds,
        json.dumps({"flows": list(flows)}),
        *tables,
    ]

    with (folder / "out").open("w") as out, (folder / "err").open("w") as err:
        client = subprocess.Popen(command, env=environment, stdout=out, stderr=err, start_new_session=True)
        try:
            code = client.wait(timeout=900)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(client.pid, signal.SIGKILL)

    assert code == 0, (folder / "err").read_text()[-3000:]
    outcome = json.loads((folder / "out").read_text().strip().splitlines()[-1])
    assert outcome["client"].startswith("pyspark.sql.connect")
    assert not any(outcome["errors"]), outcome["errors"]
    return outcome["status"]  # type: ignore[no-any-return]


@pytest.mark.deep
def test_an_archive_applied_through_connect_gives_the_classic_session_s_tables(apply: Apply, spark: SparkSession, tmp_path: Path) -> None:
    archive = CAPTURES / "pg_pk" / "archive" / "schema"
    assert apply_by_connect(tmp_path, archive, *TABLES) == [["applied"], ["up_to_date"]]
    apply(archive, tmp_path / "classic", tables=TABLES)
    found = compare_lakes(spark, str(tmp_path / "connect"), str(tmp_path / "classic"))
    assert [table.flow for table in found.tables if table.equal] == ["pgpk.public.ring"]


KINDS: dict[str, dict[str, Any]] = {
    "versions": {"stored_as_scd_type": 2},
    "bag": {},
    "flagged": {"on_delete": "flag"},
    "log": {"write_disposition": "append"},
    "rows": {},
}
LIVE = [(1, "c"), (3, "d")]
CHANGES: list[tuple[str, Row | None, Row | None]] = [
    ("c", None, {"id": 1, "name": "a"}),
    ("c", None, {"id": 2, "name": "b"}),
    ("u", {"id": 1, "name": "a"}, {"id": 1, "name": "c"}),
    ("d", {"id": 2, "name": "b"}, None),
    ("c", None, {"id": 3, "name": "d"}),
]


LATE = TOPIC.replace("customers", "late")
LATE_CHANGES = [
    sqlserver("c", commit=1, after={"id": 1, "name": "a"}, topic=LATE, offset=0),
    sqlserver("u", commit=9, before={"id": 1, "name": "a"}, after={"id": 1, "name": "newest"}, topic=LATE, offset=2),
    sqlserver("u", commit=5, before={"id": 1, "name": "a"}, after={"id": 1, "name": "older"}, topic=LATE, offset=1),
]


@pytest.mark.parametrize("kinds", [("versions", "bag"), pytest.param(tuple(KINDS), marks=pytest.mark.deep)], ids=["two", "all"])
def test_each_kind_of_table_when_a_file_comes_again_cut_otherwise(kinds: tuple[str, ...], tmp_path: Path) -> None:
    """Versions failed, for no column was to be added to a frame; and each flow with repeated offsets, whose records Spark keeps.

    The flow with the late event has deleted nothing: that there are no markers was noticed only where they are joined.
    """
    topics = {kind: TOPIC.replace("customers", kind) for kind in kinds}
    (tmp_path / "archive").mkdir()
    for kind, topic in topics.items():
        events = [
            sqlserver(op, commit=place + 1, before=before, after=after, topic=topic, offset=place)
            for place, (op, before, after) in enumerate(CHANGES)
        ]
        if kind == "bag":
            events = [{**event, "key": None} for event in events]
        write_records(tmp_path / "1" / f"{kind}.jsonl", events[:3])
        write_records(tmp_path / "2" / f"{kind}-again.jsonl", events[1:])

    write_records(tmp_path / "1" / "late.jsonl", LATE_CHANGES[:2])
    write_records(tmp_path / "2" / "late-again.jsonl", LATE_CHANGES[2:])

    flows = [{"topic": topics[kind], **KINDS[kind]} for kind in kinds]
    rounds = [tmp_path / "1", tmp_path / "2"]
    status = apply_by_connect(tmp_path, tmp_path / "archive", engine="spark", rounds=rounds, flows=flows)
    assert status == [["applied"] * (len(kinds) + 1)] * 2

    def rows(kind: str, where: str = "true") -> list[tuple[int, str]]:
        table = DeltaTable(str(tmp_path / "connect" / topics.get(kind, LATE)))
        found = pa.table(QueryBuilder().register("t", table).execute(f"SELECT id, name FROM t WHERE {where} ORDER BY id, name"))
        return [(row["id"], row["name"]) for row in found.to_pylist()]

    expected = {
        "versions": [(1, "a"), (1, "c"), (2, "b"), (3, "d")],
        "bag": LIVE,
        "flagged": [(1, "c"), (2, "b"), (3, "d")],
        "log": [(1, "a"), (1, "c"), (2, "b"), (2, "b"), (3, "d")],
        "rows": LIVE,
    }
    assert {kind: rows(kind) for kind in kinds} == {kind: expected[kind] for kind in kinds}
    assert rows("late") == [(1, "newest")]
    assert rows("versions", "__cdc_is_current") == LIVE
    assert "flagged" not in kinds or rows("flagged", "__cdc_deleted") == [(2, "b")]
