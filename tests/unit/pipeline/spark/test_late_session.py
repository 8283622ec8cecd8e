"""A session that starts when it is first used."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.pipeline.spark import session as sessions
from airflow_cdc.pipeline.spark.connect import is_client, release_session
from airflow_cdc.pipeline.spark.late_session import chosen_master, is_idle, late_session, started
from airflow_cdc.pipeline.spark.session import late_session_for_batch, session_for_batch, start_late
from airflow_cdc.pipeline.spark.task_job import has_cluster


class Start:
    """Counts how often a session was started."""

    def __init__(self, failures: int = 0) -> None:
        self.count, self._failures = 0, failures

    def __call__(self, *_: Any, **__: Any) -> SparkSession:
        self.count += 1
        if self.count <= self._failures:
            raise OSError("no Java")
        return cast("SparkSession", SimpleNamespace(version="4.2", number=self.count))


def test_the_first_attribute_starts_it_once_for_all_threads() -> None:
    start = Start()
    session = late_session(start)
    assert (start.count, is_idle(session)) == (0, True)
    threads = [threading.Thread(target=lambda: session.version) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (start.count, is_idle(session), session.version) == (1, False, "4.2")


def test_a_start_that_failed_is_tried_again() -> None:
    session = late_session(Start(failures=1))
    with pytest.raises(OSError, match="no Java"):
        assert session.version
    assert is_idle(session)
    assert session.version == "4.2"


def test_what_asks_for_the_type_gets_the_session_itself() -> None:
    start = Start()
    session = late_session(start)
    assert isinstance(started(session), SimpleNamespace)
    assert started(started(session)) is started(session)
    assert start.count == 1


def test_to_release_one_that_was_never_used_starts_nothing() -> None:
    start = Start()
    session = late_session(start)
    assert not is_client(session)
    release_session(session)
    assert start.count == 0


def test_a_batch_s_session_starts_no_sooner_than_the_application(spark: SparkSession) -> None:
    application = late_session(lambda: spark)
    session = late_session_for_batch(application, batch_bytes=100 * 1024**2)
    assert (is_idle(application), is_idle(session)) == (True, True)
    assert session.conf.get("spark.sql.shuffle.partitions") == "4"
    assert (is_idle(application), is_idle(session)) == (False, False)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"


def test_nor_is_it_made_before_its_use_where_the_application_runs(spark: SparkSession) -> None:
    session = late_session_for_batch(spark, batch_bytes=100 * 1024**2)
    assert is_idle(session)
    assert (chosen_master(session), has_cluster(session)) == (spark.conf.get("spark.master"), False)
    assert started(session) is not spark


def test_in_a_yarn_container_it_starts_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    start = Start()
    monkeypatch.setattr(sessions, "start_session", start)
    monkeypatch.delenv("CONTAINER_ID", raising=False)
    assert is_idle(start_late("job"))
    assert start.count == 0
    monkeypatch.setenv("CONTAINER_ID", "container_1_0001_01_000001")
    assert not is_idle(start_late("job"))
    assert start.count == 1


def test_what_surely_needs_spark_starts_it(spark: SparkSession) -> None:
    application = late_session(lambda: spark)
    assert isinstance(session_for_batch(application, batch_bytes=0), SparkSession)
    assert not is_idle(application)
