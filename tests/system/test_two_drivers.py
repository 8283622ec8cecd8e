"""Two drivers over one lake on an S3-compatible store: no commit is lost, whoever comes first."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pyarrow
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_cdc import runtime
from tests.support.events import numbered, sqlserver, write_sink_file
from tests.system.object_store import SPARK_WITH_S3, Store, path_with_packages, running_store

pytestmark = pytest.mark.system_deep

TOPIC = "server1.testDB.dbo.customers"
ROUNDS = 100


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with running_store(tmp_path / "store", "data", "AKIDLAKE", "lake-s3cr3t-0123456789") as running:
        yield running


class Driver:
    """A driver process."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process, self._log = process, log

    def send(self, document: dict[str, Any]) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{json.dumps(document)}\n")
        self._process.stdin.flush()

    def hear(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line, self._log.read_text()[-4000:]
        answer: dict[str, Any] = json.loads(line)
        return answer


@contextmanager
def driver(store: Store, folder: Path, name: str, *, heeds_leases: bool) -> Iterator[Driver]:
    environment = {**os.environ, **runtime.spark_environment("local[1]"), "PYTHONPATH": path_with_packages()}
    spark = {**store.spark_options, **SPARK_WITH_S3, "spark.sql.shuffle.partitions": "1", "spark.local.dir": str(folder / name)}
    order = {
        "archive": "s3://data/archive",
        "lake": "s3://data/lake",
        "file_systems": {"s3://data": {name: value for name, value in store.options.items() if name != "use_listings_cache"}},
        "heeds_leases": heeds_leases,
        "spark": spark,
    }
    log = folder / f"{name}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen(
            [sys.executable, "-m", "tests.system.driver"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            env=environment,
            text=True,
        ) as process,
    ):
        started = Driver(process, log)
        started.send(order)
        try:
            yield started
        finally:
            assert process.stdin
            process.stdin.close()


def rows(store: Store) -> dict[int, str]:
    table = DeltaTable("s3://data/lake/" + TOPIC, storage_options=store.delta_options)
    found = pyarrow.table(QueryBuilder().register("t", table).execute("SELECT id, name FROM t").read_all()).to_pylist()
    assert len(found) == len({row["id"] for row in found})
    return {row["id"]: row["name"] for row in found}


def committed(table: DeltaTable) -> list[int]:
    """Return the numbers of the microbatches whose merges the table's log holds, as often as it holds them."""
    commits = [json.loads(entry["userMetadata"]) for entry in table.history() if entry.get("userMetadata")]
    return sorted(metadata["microbatch"] for metadata in commits if "microbatch" in metadata)


@pytest.mark.parametrize("heeds_leases", [True, False], ids=["leases", "fenced by the store alone"])
def test_of_two_drivers_that_start_at_the_same_instant_each_event_is_merged_by_one(
    store: Store, tmp_path: Path, *, heeds_leases: bool
) -> None:
    expected: dict[int, str] = {}
    ends: Counter[str] = Counter()
    merged = 0
    with ExitStack() as stack:
        drivers = []
        for name in ("one", "two"):
            # One behind the other: both would fetch Hadoop's jars into one folder.
            drivers.append(stack.enter_context(driver(store, tmp_path, name, heeds_leases=heeds_leases)))
            assert drivers[-1].hear() == {"ready": True}
        for number in range(ROUNDS):
            # A key of its own: what a lost commit took, no later round would bring back.
            expected[number] = f"n{number}"
            event = sqlserver("c", commit=10 + number, key={"id": number}, after={"id": number, "name": f"n{number}"})
            folder = tmp_path / f"files-{number}"
            write_sink_file(folder, numbered([event], first=number), keys=True)
            store.put(folder, "archive")
            for each in drivers:
                each.send({"wait_seconds": 0.0 if number % 2 else 60.0})
            for answer in [each.hear() for each in drivers]:
                assert answer["error"] is None or answer["error"]["type"] == "ConcurrentRunError", answer["error"]
                for flow in answer["flows"]:
                    ends[flow["error"]["type"] if flow["error"] else flow["status"]] += 1
                    merged += sum(batch["events"]["merged"] for batch in flow["batches"])
            # Where both lost nobody merged the file; the next round takes it up.
        for each in drivers:
            each.send({"wait_seconds": 60.0})
            answer = each.hear()
            assert [flow["error"] for flow in answer["flows"]] == [None]
            merged += sum(batch["events"]["merged"] for flow in answer["flows"] for batch in flow["batches"])

    assert rows(store) == expected
    assert {*ends} <= {"applied", "up_to_date", "ConcurrentRunError"}, ends
    markers = [int(name.removesuffix(".json")) for name in store.names(f"lake/_cdc/flows/{TOPIC}/commits")]
    # Two puts of one version would leave the marker of the first, and its commit in no log.
    assert committed(DeltaTable("s3://data/lake/" + TOPIC, storage_options=store.delta_options)) == markers
    assert markers == list(range(1, len(markers) + 1))
    if heeds_leases:
        # Without leases both may report a merge that one of them made.
        assert merged == ROUNDS
        assert ends["ConcurrentRunError"] > 0, "the drivers never met"
