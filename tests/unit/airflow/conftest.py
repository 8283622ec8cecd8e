"""An Airflow of its own for these tests, and a job that does what the real one does, without Spark.

No ``__init__.py`` in this folder: with one, ``import airflow`` would find the tests instead of Airflow.
"""

from __future__ import annotations

import atexit
import itertools
import json
import os
import shutil
import stat
import sys
import tempfile
import textwrap
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.unit.airflow.job_server import job_server
from tests.unit.airflow.mail_server import MailServer
from tests.unit.airflow.resource_manager import JOB as JOB_ID
from tests.unit.airflow.resource_manager import ResourceManager

REPOSITORY = Path(__file__).parents[3]
_HOME = tempfile.mkdtemp(prefix="airflow-cdc-tests-")
atexit.register(shutil.rmtree, _HOME, ignore_errors=True)

# Airflow reads these when it is first imported, which the tests beside this file do.
os.environ.update(
    AIRFLOW_HOME=_HOME,
    # Empty: each run of a Dag by ``dag.test`` parses and saves whatever lies there.
    AIRFLOW__CORE__DAGS_FOLDER=f"{_HOME}/dags",
    AIRFLOW__CORE__LOAD_EXAMPLES="False",
    AIRFLOW__DATABASE__SQL_ALCHEMY_CONN=f"sqlite:///{_HOME}/airflow.db",
    AIRFLOW__LOGGING__BASE_LOG_FOLDER=f"{_HOME}/logs",
)

AIRFLOW_VERSION = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])

TOPIC = "server.db.orders"
OTHER_TOPIC = "server.db.customers"

JOB = '''\
"""Stands for spark-submit and the job: takes the job's arguments, commits what is pending in the lake's state, writes the report."""
import argparse, json, os, sys
from pathlib import Path

sys.path.insert(0, {repository!r})
import fsspec
from airflow_cdc.jobs.write_report import write_report
from airflow_cdc.model.archive.archived_files import list_archive
from airflow_cdc.model.archive.interval import parse_interval
from airflow_cdc.model.job_argument import read_argument
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.microbatch import next_microbatch, pending_in
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.archive.survey import RecordLayout, Survey, TopicShape

Path({seen!r}).write_text(json.dumps({{"arguments": sys.argv, "environment": dict(os.environ)}}))
parser = argparse.ArgumentParser()
for name in ("archive", "lake", "flows", "report", "since", "until"):
    parser.add_argument("--" + name)
parser.add_argument("--table", action="append", default=[])
job = parser.parse_known_args([read_argument(text) for text in sys.argv[1:]])[0]
print("[airflow-cdc] applying", flush=True)

archive_fs, archive_root = fsspec.core.url_to_fs(job.archive)
lake_fs, lake_root = fsspec.core.url_to_fs(job.lake)
state = ArchiveState(lake_fs, lake_root, job.archive)
ledger, interval = state.ledger(), parse_interval(job.since, job.until)
new = state.unsurveyed(list_archive(archive_fs, archive_root).files, ledger)
if new:
    unknown = dict.fromkeys(TopicShape.__dataclass_fields__)
    known = {{"layout": RecordLayout.RECORD, "kind": "c", "records": 1}}
    shapes = [TopicShape(**{{**unknown, **known, "file": file.path, "topic": file.topic}}) for file in new]
    state.add(Survey(state.archive, ledger.surveyed_through + 1, tuple(new), tuple(shapes)))
    ledger = state.ledger()
outcomes = []
for topic in ledger.tables():
    if not matches_any(topic, job.table):
        continue
    flow, table, reports = FlowState(lake_fs, lake_root, topic), job.lake + "/" + topic, []
    while True:
        checkpoint = flow.checkpoint()
        planned, held = checkpoint.plan(state.archive)
        surveys = list(state.pending_surveys(checkpoint, ledger))
        outside = {{file.path for survey in surveys for file in pending_in(survey, topic, planned, held) if not interval.holds(file)}}
        batch = next_microbatch(
            flow=topic, number=checkpoint.number + 1, archive=state.archive, planned=planned, held=held, max_bytes=2**30,
            surveys=surveys, waiting=outside,
        )
        if batch is None:
            break
        files = len(batch.files)
        flow.write_intent(batch)
        reports.append(BatchReport(topic, batch.number, files, batch.size, EventCounts(read=files, merged=files), RowCounts(inserted=files),
                                   table_version=batch.number - 1, applied_through={{"0": Position(6 + batch.number, 1)}}))
        flow.write_commit(reports[-1], table)
    status = FlowStatus.APPLIED if reports else FlowStatus.UP_TO_DATE
    columns = {{"id": "INT", "document": "STRING", "total": "DECIMAL(10,2)"}} if reports else {{}}
    derived = ("total",) if reports else ()
    version = flow.checkpoint().table_version
    outcomes.append(FlowOutcome(topic, status, table, tuple(reports), table_version=version, columns=columns, document_columns=derived))
report = ApplyReport(job.archive, job.lake, tuple(outcomes))
write_report(job.report, report.to_json())
'''


def write_executable(path: Path, text: str) -> Path:
    """Write a script that can be run."""
    path.write_text(textwrap.dedent(text))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


class Scene:
    """An archive, a lake, their connections, and a spark-submit that needs no Spark."""

    def __init__(self, folder: Path, preamble: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.archive = folder / "archive"
        self.lake = folder / "lake"
        self.archive.mkdir()
        self._monkeypatch = monkeypatch
        self.connect("cdc_archive_default", conn_type="cdc_archive", host=str(self.archive))
        self.connect("cdc_lake_default", conn_type="cdc_lake", host=str(self.lake))
        self.connect("spark_default", conn_type="spark", host="local[2]")
        self._seen = folder / "seen.json"
        script = preamble + JOB.format(repository=str(REPOSITORY), seen=str(self._seen))
        self.spark_submit = write_executable(folder / "spark-submit", script)
        self._job = write_executable(folder / "job.py", script)
        self.go = folder / "go"

    def connect(self, conn_id: str, **fields: Any) -> None:
        """Define a connection."""
        self._monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", json.dumps(fields))

    def connect_uri(self, conn_id: str, uri: str) -> None:
        """Define a connection the way of Airflow's URIs."""
        self._monkeypatch.setenv(f"AIRFLOW_CONN_{conn_id.upper()}", uri)

    def land(self, name: str, *, topic: str = TOPIC, below: str = "partition=0") -> None:
        """Put a file into the archive."""
        file = self.archive / topic / below / f"{topic}+0+{name}.json"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text('{"op": "c"}\n')

    def submit_by(self, text: str) -> None:
        """Replace spark-submit by another script."""
        write_executable(self.spark_submit, text)

    def submit_leaves(self, report: Any, *, exit_code: int) -> None:
        """Replace spark-submit by one that leaves this report, or this text."""
        text = report if isinstance(report, str) else json.dumps(report)
        self.submit_by(f"""\
            #!{sys.executable}
            import json, os, sys
            seen = {{"arguments": sys.argv, "environment": dict(os.environ)}}
            if "--jdbc" in sys.argv:
                path = sys.argv[sys.argv.index("--jdbc") + 1]
                seen["secrets"] = {{"mode": os.stat(path).st_mode & 0o777, "path": path, "document": json.load(open(path))}}
            open({str(self._seen)!r}, "w").write(json.dumps(seen))
            open(sys.argv[sys.argv.index("--report") + 1], "w").write({text!r})
            print("Exception in thread main: the wall of Spark's log")
            sys.exit({exit_code})
            """)

    def submit_to_yarn(self, manager: ResourceManager, *, leaves: bool = True) -> None:
        """Replace spark-submit by YARN's: it ends, and the job goes on until the file ``go`` is there; or it waits for the job.

        Each submission gets an application of its own, the first is ``JOB``; ``submissions`` counts them.
        """
        extra = {"deploy-mode": "cluster", "yarn_resourcemanager_webapp_address": manager.url}
        self.connect("spark_default", conn_type="spark", host="yarn", extra=extra)
        submitted, run = self.folder / "submitted", f'{self._job} "$@"'
        left = f"(while [ ! -e {self.go} ]; do sleep 0.02; done; {run}) < /dev/null > /dev/null 2>&1 &"
        name = f"{JOB_ID[:-1]}$(wc -l < {submitted})"
        submits = f'echo x >> {submitted}\necho "Submitted application {name}"'
        self.submit_by(f"#!/bin/sh\n{submits}\n{left if leaves else run}\nexit 0\n")

    @property
    def submissions(self) -> int:
        """How often that spark-submit was called."""
        submitted = self.folder / "submitted"
        return len(submitted.read_text().split()) if submitted.exists() else 0

    def merge(self, **arguments: Any) -> Any:
        """Return a merge operator that submits by this scene's spark-submit, and is not skipped where the scene has no files."""
        from airflow_cdc.operators.merge import CdcMergeOperator

        given = {"task_id": "merge", "spark_binary": str(self.spark_submit), "skip_if_nothing_pending": False}
        return CdcMergeOperator(**{**given, **arguments})

    @staticmethod
    def save(dag: Any) -> None:
        """Make a Dag of a test known to Airflow's database: without that it cannot be run."""
        from airflow.models.dagbundle import DagBundleModel
        from airflow.models.serialized_dag import SerializedDagModel
        from airflow.serialization.serialized_objects import LazyDeserializedDAG, SerializedDAG
        from airflow.utils.session import create_session

        with create_session() as session:
            session.merge(DagBundleModel(name="tests"))
            session.commit()
            SerializedDAG.bulk_write_to_db("tests", None, [dag], session=session)
            SerializedDagModel.write_dag(LazyDeserializedDAG.from_dag(dag), bundle_name="tests", session=session)

    @property
    def arguments(self) -> list[str]:
        """The arguments that spark-submit was started with."""
        found: list[str] = json.loads(self._seen.read_text())["arguments"]
        return found

    @property
    def secrets(self) -> dict[str, Any]:
        """The file of secrets that the job was handed, as it was while the job ran."""
        found: dict[str, Any] = json.loads(self._seen.read_text())["secrets"]
        return found

    @property
    def pairs(self) -> set[tuple[str, str]]:
        """Every two arguments that stood one after the other."""
        return set(itertools.pairwise(self.arguments))

    @property
    def conf(self) -> dict[str, str]:
        """The Spark settings that spark-submit was given."""
        return dict(value.split("=", 1) for name, value in itertools.pairwise(self.arguments) if name == "--conf")

    @property
    def environment(self) -> dict[str, str]:
        """The environment that spark-submit was started in."""
        found: dict[str, str] = json.loads(self._seen.read_text())["environment"]
        return found


class _NoConnections:
    """Stands for the process that Airflow 3.1 asks for connections: it has none. Later ones need nobody where none is running."""

    def send(self, *_: Any) -> Any:
        from airflow.sdk.exceptions import ErrorType
        from airflow.sdk.execution_time.comms import ErrorResponse

        return ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)


@pytest.fixture(scope="session")
def preamble() -> Iterator[str]:
    """The beginning of scripts that run without the start of a Python."""
    with job_server() as preamble:
        yield preamble


@pytest.fixture
def scene(tmp_path: Path, preamble: str, monkeypatch: pytest.MonkeyPatch) -> Scene:
    from airflow.sdk.execution_time import task_runner

    for name in [name for name in os.environ if name.startswith("AIRFLOW_CONN_")]:
        monkeypatch.delenv(name)
    if not hasattr(task_runner, "SUPERVISOR_COMMS") and AIRFLOW_VERSION < (3, 2):
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", _NoConnections(), raising=False)
    return Scene(tmp_path, preamble, monkeypatch)


@pytest.fixture
def manager() -> Iterator[ResourceManager]:
    manager = ResourceManager()
    yield manager
    manager.server.shutdown()
    manager.server.server_close()


@pytest.fixture
def yarn(scene: Scene, manager: ResourceManager) -> Iterator[Scene]:
    """A scene whose job goes on when spark-submit has ended, until a file lets it."""
    scene.land("0000000000")
    scene.submit_to_yarn(manager)
    yield scene
    # Whatever waits for it shall not outlive the test.
    scene.go.touch()


@pytest.fixture
def context() -> dict[str, Any]:
    """What a run without a logical date hands to a task: by REST, by an asset, by a partition."""
    from airflow.sdk.execution_time.context import OutletEventAccessors

    instance = SimpleNamespace(dag_id="cdc", task_id="merge", run_id="manual__1", map_index=-1, try_number=1, stats_tags={}, pushed={})
    instance.xcom_push = instance.pushed.__setitem__
    return {"ti": instance, "outlet_events": OutletEventAccessors(), "params": {"tables": []}}


@pytest.fixture
def needs_state_stores() -> None:
    """What a task or a trigger remembers of its own, Airflow keeps from 3.3 on."""
    if AIRFLOW_VERSION < (3, 3):
        pytest.skip("Airflow has no state stores before 3.3")


@pytest.fixture(scope="session")
def airflow_database() -> None:
    """A fresh metadata database: only runs of whole Dags need one."""
    from airflow.utils.db import initdb

    initdb()


@pytest.fixture
def mail(scene: Scene) -> Iterator[MailServer]:
    """A mail server, which the connection ``smtp_default`` names."""
    if AIRFLOW_VERSION < (3, 2):
        pytest.skip("dag.test of Airflow 3.1 calls no callbacks")
    server = MailServer()
    scene.connect("smtp_default", **server.connection)
    yield server
    server.close()
