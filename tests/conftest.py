"""One Spark session for the whole run, and the few verbs in which the tests speak."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from zlib import crc32

import pytest
from hypothesis import settings
from pyspark.sql import SparkSession

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.pipeline.run.apply_archive import apply_archive
from airflow_cdc.pipeline.run.archive_run import ArchiveRun
from airflow_cdc.pipeline.spark.session import session_for_batch, start_session
from tests.support.late_spark import late_spark
from tests.support.versions import wrong_versions

# How long an example takes says how busy the machine is.
settings.register_profile("unhurried", deadline=None)
settings.load_profile("unhurried")
# At the interpreter's end py4j reports each closed connection to a stream that pytest has closed before.
logging.getLogger("py4j").setLevel(logging.WARNING)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--no-spark", action="store_true", help="leave out the tests that start Spark or a live Airflow (make check)")
    parser.addoption("--part", default="1/1", metavar="K/N", help="run the Kth of N parts of the tests (make test-deep PART=K/N)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what takes seconds to start, where ``--no-spark`` is given, and what belongs to other parts than ``--part``."""
    part, parts = map(int, config.getoption("--part").split("/"))
    without_slow = config.getoption("--no-spark")
    others = [
        item
        for item in items
        if crc32(item.nodeid.encode()) % parts != part % parts or (without_slow and _is_slow(item)) or _is_left_to_other_captures(item)
    ]
    if others:
        config.hook.pytest_deselected(items=others)
        left_out = set(others)
        items[:] = [item for item in items if item not in left_out]


def _is_slow(item: pytest.Item) -> bool:
    names = set(getattr(item, "fixturenames", ()))
    return "spark" in names or item.get_closest_marker("slow") is not None or "system" in item.path.parts


def _is_left_to_other_captures(item: pytest.Item) -> bool:
    """Whether a test takes Spark minutes, and others of its kind do the same by Spark: ``both_engines(by_spark=...)`` names those."""
    marker, called = item.get_closest_marker("both_engines"), getattr(item, "callspec", None)
    by_spark = marker.kwargs.get("by_spark") if marker else None
    return bool(by_spark and called and called.params["engine"] is Engine.SPARK and called.params["capture"] not in by_spark)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if metafunc.definition.get_closest_marker("both_engines") and "engine" in metafunc.fixturenames:
        engines = [pytest.param(None, id="auto"), pytest.param(Engine.SPARK, id="spark", marks=pytest.mark.deep)]
        metafunc.parametrize("engine", engines, indirect=True)


@pytest.fixture(scope="session")
def engine(request: pytest.FixtureRequest) -> Engine | None:
    """The engine of every run that a test does not give another; None: the default one."""
    return getattr(request, "param", None)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Spark with Delta on two cores; what it writes by itself goes to a temporary folder."""
    scratch = tmp_path_factory.mktemp("spark")
    os.environ["SPARK_LOCAL_DIRS"] = str(scratch)
    session = start_session(
        "airflow-cdc tests",
        master="local[2]",
        options={
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.sql.shuffle.partitions": "2",
            "spark.databricks.delta.snapshotPartitions": "2",
            # A VACUUM of a test's own would list a folder with as many tasks as that: 64 by our settings, ten thousand by Spark's.
            "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
            # What the UI would show of past queries, their plans, fills the default heap in a long run.
            "spark.driver.memory": "3g",
            "spark.sql.ui.retainedExecutions": "100",
            # The second compiler takes a third of all CPU, and two cores are busy. Many plans fill the code cache that is usual. They are
            # garbage at once: with room for it from the beginning, the collector takes half as long.
            "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -Xms3g -Xmn1g -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=512m",
        },
    )
    session.sparkContext.setLogLevel("ERROR")
    # The tests' own queries run once over a few rows. Sessions of runs do not inherit this (session_for_batch).
    for name, value in {"wholeStage": "false", "factoryMode": "NO_CODEGEN"}.items():
        session.conf.set(f"spark.sql.codegen.{name}", value)
    session.conf.set("spark.sql.adaptive.enabled", "false")
    # PySpark looks these classes up in the JVM for each function that a query names, a hundred times a microbatch.
    for name in ("functions", "org.apache.spark.sql.functions", "PythonUtils"):
        vars(session._jvm)[name] = getattr(session._jvm, name)
    yield session
    session.stop()


Apply = Callable[..., ApplyReport]


def check_versions(spark: SparkSession, lake: str, flows: Iterable[CdcFlow]) -> None:
    """Versions of a key overlap in no table that a test makes."""
    for flow in flows:
        if flow.mode is TableMode.VERSIONS:
            assert wrong_versions(spark, lake, flow) == [], flow.name


@pytest.fixture(scope="session")
def apply(spark: SparkSession, engine: Engine | None) -> Apply:
    """Apply an archive to a lake; every flow must succeed unless ``may_fail`` is set, and no versions may overlap.

    As in a run of its own, Spark is there only from when a flow asks for it.
    """

    def run(
        archive: Path | str,
        lake: Path | str,
        *,
        flows: Mapping[str, CdcFlow] | None = None,
        tables: tuple[str, ...] = (),
        may_fail: bool = False,
        **settings: object,
    ) -> ApplyReport:
        settings = {"engine": engine, **settings}
        with late_spark(spark) as late:
            report = apply_archive(ArchiveRun(late, str(archive), str(lake), flows or {}, tables, **settings))  # type: ignore[arg-type]
        if settings["engine"] is Engine.SPARK:
            assert {batch.engine for flow in report.flows for batch in flow.batches} <= {Engine.SPARK.value}
        if not may_fail:
            assert report.ok, [flow.error for flow in report.flows if flow.error]
        for flow in report.flows:
            assert flow.events.accounted() == flow.events.read, flow
        check_versions(spark, str(lake), (flows or {}).values())
        return report

    return run


@pytest.fixture
def apply_natively() -> Apply:
    """Apply an archive to a lake where no Spark is; every flow must succeed, by the native engine alone."""

    def run(archive: Path, lake: Path, *, flows: Mapping[str, CdcFlow] | None = None) -> ApplyReport:
        with late_spark() as none:
            report = apply_archive(ArchiveRun(none, str(archive), str(lake), flows or {}))
        assert report.ok, [flow.error for flow in report.flows if flow.error]
        assert {batch.engine for flow in report.flows for batch in flow.batches} <= {Engine.NATIVE.value}
        return report

    return run


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    folder = tmp_path / "archive"
    folder.mkdir()
    return folder


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.fixture(scope="module", params=["interpreted", pytest.param("compiled", marks=pytest.mark.deep)])
def session(spark: SparkSession, request: pytest.FixtureRequest) -> SparkSession:
    """The sessions of a small and of a large batch: Spark evaluates their expressions with different code."""
    made = session_for_batch(spark, batch_bytes=1 if request.param == "interpreted" else 2**24)
    assert (made.conf.get("spark.sql.codegen.wholeStage") == "false") is (request.param == "interpreted")
    return made
