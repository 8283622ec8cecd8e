"""Archive and lake on two S3-compatible stores of different keys, which only Airflow's connections hold."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow
import pytest
from deltalake import DeltaTable, QueryBuilder

from airflow_cdc.demo.worker import Worker
from tests.support.events import numbered, sqlserver, write_sink_file
from tests.system.object_store import HADOOP_AWS, TOOLS, Store, path_with_packages, python, two_stores

pytestmark = pytest.mark.system_deep

TOPIC = "server1.testDB.dbo.customers"
DAG = """
from airflow.sdk import DAG
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.sensors.archive import CdcArchiveSensor

with DAG("far"):
    wait = CdcArchiveSensor(task_id="wait", timeout=0)
    # Spark shall log all that it can log of its settings.
    loud = "-Dlog4j2.configurationFile={log4j}"
    conf = {{"spark.jars.ivy": {ivy!r}, "spark.logConf": "true", "spark.driver.extraJavaOptions": loud}}
    wait >> CdcMergeOperator(task_id="merge", packages={packages!r}, conf=conf, verbose=True)
"""
LOG4J = """
rootLogger.level = info
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""
LOOK = """
from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
archives, lakes = given
answer = {name: CdcArchiveHook(name).test_connection() for name in archives}
answer |= {name: CdcLakeHook(name).test_connection() for name in lakes}
"""
CORRECTED = """
import os
from airflow_cdc.hooks.archive import CdcArchiveHook
answer = []
for fields in given:
    os.environ["AIRFLOW_CONN_STORE"] = json.dumps(fields)
    answer.append(CdcArchiveHook("archive").test_connection()[0])
answer.append(dict(CdcArchiveHook("archive").storage_settings().hadoop))
"""
TRIGGER = """
import fsspec
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.triggers.archive import CdcArchiveTrigger
archive, lake = given
answer = []
for number in (1, 2):
    # As other processes would: the file systems that look do not know.
    others = [fsspec.filesystem("s3", **options, skip_instance_cache=True) for options in given]
    others[0].pipe_file(f"events/topics/t/t+0+{number}.json", b"{}")
    others[1].pipe_file(f"tables/lake/_cdc/flows/t{number}/flow.json", b"{}")
    looked = CdcArchiveTrigger.look(archive_conn_id="cdc_archive_default", lake_conn_id="cdc_lake_default", tables=[], min_files=1)
    answer.append([looked.found["files"], CdcLakeHook().flows()])
"""
RACE = """
import threading
from concurrent.futures import ThreadPoolExecutor
import fsspec
from airflow_cdc.model.files import create_json, read_json
options, root = given
writers, rounds = 8, 20
together = threading.Barrier(writers)
# An event loop, and with it connections, of its own for each writer.
file_systems = [fsspec.filesystem("s3", **options, skip_instance_cache=True) for _ in range(writers)]
def write(writer):
    won = []
    for number in range(rounds):
        together.wait()
        won.append(create_json(file_systems[writer], f"{root}/{number}.json", {"writer": writer, "padding": "x" * 10_000}))
    return won
with ThreadPoolExecutor(writers) as pool:
    results = list(pool.map(write, range(writers)))
winners = [[writer for writer in range(writers) if results[writer][number]] for number in range(rounds)]
held = [read_json(file_systems[0], f"{root}/{number}.json")["writer"] for number in range(rounds)]
try:
    create_json(file_systems[0], "misspelled/1.json", {})
except FileNotFoundError:
    answer = [winners, held, file_systems[0].exists("misspelled")]
"""


@pytest.fixture
def stores(tmp_path: Path) -> Iterator[tuple[Store, Store]]:
    """One for the archive, one for the lake."""
    with two_stores(tmp_path) as both:
        yield both


def airflow(home: Path, connections: dict[str, dict[str, Any]]) -> dict[str, str]:
    """Return the environment of an Airflow whose connections lie in a file outside of its home, as in a vault."""
    vault = home.with_suffix(".vault.json")
    vault.write_text(json.dumps(connections))
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "AWS_", "PYSPARK", "SPARK"))}
    return {
        **kept,
        "AIRFLOW_HOME": str(home),
        "AIRFLOW__CORE__DAGS_FOLDER": str(home / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{home / 'airflow.db'}",
        "AIRFLOW__SECRETS__BACKEND": "airflow.secrets.local_filesystem.LocalFilesystemBackend",
        "AIRFLOW__SECRETS__BACKEND_KWARGS": json.dumps({"connections_file_path": str(vault)}),
        "PYTHONPATH": path_with_packages(),
        "NO_COLOR": "1",
    }


def connections(archive: Store, lake: Store) -> dict[str, dict[str, Any]]:
    """Return the connections by which both stores are known."""
    events = {"storage_conn_id": "archive_store", "layout": "sink"}
    return {
        "archive_store": archive.connection(),
        "lake_store": lake.connection(),
        "cdc_archive_default": {"conn_type": "cdc_archive", "host": "s3://events/topics", "extra": events},
        "cdc_lake_default": {"conn_type": "cdc_lake", "host": "s3://tables/lake", "extra": {"storage_conn_id": "lake_store"}},
        "spark_default": {"conn_type": "spark", "host": "local[2]"},
    }


@contextmanager
def watched(root: int) -> Iterator[set[str]]:
    """Collect the command lines and environments of a process and of everything that it starts meanwhile.

    :param root: process id.
    """
    seen: set[str] = set()
    stop = threading.Event()

    def watch() -> None:
        while not stop.wait(0.1):
            for process in (psutil.Process(root), *psutil.Process(root).children(recursive=True)):
                with suppress(psutil.Error):
                    seen.add(f"{process.cmdline()} {process.environ()}")

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        yield seen
    finally:
        stop.set()
        watcher.join()


def rows(store: Store) -> list[dict[str, Any]]:
    table = DeltaTable(f"s3://{store.bucket}/lake/{TOPIC}", storage_options=store.delta_options)
    found = QueryBuilder().register("t", table).execute("SELECT id, name FROM t ORDER BY id")
    return pyarrow.table(found.read_all()).to_pylist()


def test_a_dag_merges_from_one_store_into_another_and_nobody_sees_a_secret(stores: tuple[Store, Store], tmp_path: Path) -> None:
    archive, lake = stores
    home = tmp_path / "airflow"
    (home / "dags").mkdir(parents=True)
    (tmp_path / "log4j2.properties").write_text(LOG4J)
    (home / "dags" / "far.py").write_text(DAG.format(ivy=str(TOOLS / "ivy"), packages=HADOOP_AWS, log4j=tmp_path / "log4j2.properties"))
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = {**airflow(home, connections(archive, lake)), "TMPDIR": str(temporary)}
    first = numbered([sqlserver("c", commit=n, key={"id": n}, after={"id": n, "name": f"n{n}"}) for n in range(1, 4)])
    later = numbered([sqlserver("d", commit=5, key={"id": 2}, before={"id": 2, "name": "n2"})], first=3)

    with Worker("airflow_cdc.demo.airflow_worker", environment, tmp_path) as worker, watched(worker._process.pid) as processes:
        write_sink_file(tmp_path / "first", first, keys=True)
        archive.put(tmp_path / "first", "topics")
        merged = worker.ask({"dag_id": "far"})
        assert merged["state"] == "success", worker.last_words()
        assert merged["tasks"]["merge"]["result"]["rows"] == {"inserted": 3, "updated": 0, "deleted": 0}
        assert rows(lake) == [{"id": n, "name": f"n{n}"} for n in range(1, 4)]
        write_sink_file(tmp_path / "later", later, keys=True)
        archive.put(tmp_path / "later", "topics")
        again = worker.ask({"dag_id": "far"})
        assert again["tasks"]["wait"]["result"]["files"] == 1
        assert again["tasks"]["merge"]["result"]["rows"] == {"inserted": 0, "updated": 0, "deleted": 1}
    assert [row["id"] for row in rows(lake)] == [1, 3]

    submitted = [process for process in processes if "SparkSubmit" in process or "jobs/apply.py" in process]
    assert any("--storage" in process for process in submitted)
    log = worker.log.read_text()
    assert "fs.s3a.bucket.tables.secret.key" in log, "Spark was asked to log its settings"
    for secret in (archive.secret, lake.secret, archive.key, lake.key):
        assert not [process for process in processes if secret in process]
        assert secret not in log
        left = [
            path for folder in (home, temporary) for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
        ]
        assert left == []
    assert list(temporary.glob("airflow-cdc-*")) == []


def test_a_triggerer_that_lives_long_sees_what_came_since(stores: tuple[Store, Store], tmp_path: Path) -> None:
    archive, lake = stores
    environment = airflow(tmp_path / "airflow", connections(archive, lake))
    assert python(TRIGGER, environment, archive.options, lake.options) == [[1, ["t1"]], [2, ["t1", "t2"]]]


def test_the_connections_show_what_they_find_and_what_is_wrong(stores: tuple[Store, Store], tmp_path: Path) -> None:
    archive, lake = stores
    write_sink_file(tmp_path / "files", numbered([sqlserver("c", commit=1, key={"id": 1}, after={"id": 1})]), keys=True)
    archive.put(tmp_path / "files", "topics")

    def cdc(kind: str, host: str, storage: str, **extra: str) -> dict[str, Any]:
        return {"conn_type": f"cdc_{kind}", "host": host, "extra": {"storage_conn_id": storage, **extra}}

    environment = airflow(
        tmp_path / "airflow",
        {
            "good": archive.connection(),
            "good_lake": lake.connection(),
            "wrong": archive.connection(password="not-the-s3cr3t"),
            "nowhere": archive.connection(extra={"endpoint_url": "http://127.0.0.1:9", "config_kwargs": {"retries": {"max_attempts": 0}}}),
            "archive": cdc("archive", "s3://events/topics", "good"),
            "empty_archive": cdc("archive", "s3://events/nothing", "good"),
            "no_archive_bucket": cdc("archive", "s3://evnets/topics", "good"),
            "wrong_keys": cdc("archive", "s3://events/topics", "wrong"),
            "not_avro": cdc("archive", "s3://events/topics", "good", format="avro"),
            "no_storage": cdc("archive", "s3://events/topics", "misspelled"),
            "unreachable": cdc("archive", "s3://events/topics", "nowhere"),
            "lake": cdc("lake", "s3://tables/lake", "good_lake"),
            "no_lake_bucket": cdc("lake", "s3://tabels/lake", "good_lake"),
            "wrong_lake_keys": cdc("lake", "s3://tables/lake", "wrong"),
        },
    )
    archives = ["archive", "empty_archive", "no_archive_bucket", "wrong_keys", "not_avro", "no_storage", "unreachable"]
    found = python(LOOK, environment, archives, ["lake", "no_lake_bucket", "wrong_lake_keys"])
    assert found["archive"][0] is True
    assert found["archive"][1].startswith(f"s3://events/topics holds 1 files of 1 topics; newest: {TOPIC}/{TOPIC}+0+0000000000.json (20")
    assert found["lake"] == [True, "s3://tables/lake can be reached and does not exist yet; the first merge creates it."]
    for name, message in {
        "empty_archive": "There is no archive at s3://events/nothing.",
        "no_archive_bucket": "There is no bucket evnets",
        "wrong_keys": "the credentials in connection wrong",
        "not_avro": "shall hold files of layout auto and format avro alone",
        "no_storage": "There is no connection misspelled.",
        "unreachable": "Check that this machine reaches the storage",
        "no_lake_bucket": "There is no bucket tabels",
        "wrong_lake_keys": "the credentials in connection wrong",
    }.items():
        assert found[name][0] is False, name
        assert message in found[name][1]
        assert "Next step: " in found[name][1]
        assert "s3cr3t" not in found[name][1]


def test_exactly_one_of_many_writers_creates_a_state_file(stores: tuple[Store, Store]) -> None:
    store = stores[1]
    environment = {**os.environ, "PYTHONPATH": path_with_packages()}
    winners, held, bucket_was_made = python(RACE, environment, store.options, f"{store.bucket}/race")
    assert winners == [[writer] for writer in held]
    assert bucket_was_made is False


def test_a_corrected_key_counts_at_once_and_a_profiles_key_is_handed_on(stores: tuple[Store, Store], tmp_path: Path) -> None:
    store = stores[0]
    write_sink_file(tmp_path / "files", numbered([sqlserver("c", commit=1, key={"id": 1}, after={"id": 1})]), keys=True)
    store.put(tmp_path / "files", "topics")
    profile = tmp_path / "profiles"
    profile.write_text(f"[etl]\naws_access_key_id = {store.key}\naws_secret_access_key = {store.secret}\n")
    archive = {"archive": {"conn_type": "cdc_archive", "host": "s3://events/topics", "extra": {"storage_conn_id": "store"}}}
    environment = {**airflow(tmp_path / "airflow", archive), "AWS_SHARED_CREDENTIALS_FILE": str(profile)}
    by_profile = {"conn_type": "aws", "extra": {"endpoint_url": store.endpoint, "profile_name": "etl"}}
    wrong = store.connection(password="not-the-s3cr3t")
    *found, handed = python(CORRECTED, environment, wrong, store.connection(), wrong, by_profile)
    assert found == [False, True, False, True]
    assert (handed["fs.s3a.bucket.events.access.key"], handed["fs.s3a.bucket.events.secret.key"]) == (store.key, store.secret)
