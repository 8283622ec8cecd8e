"""Clients of a Spark Connect server: what is shown of a URL, which settings reach a session, how sessions are released."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from airflow_cdc.model.errors import CdcError, ConfigurationError, SparkUnreachableError
from airflow_cdc.pipeline.spark import connect


class Client:
    """Stands for PySpark's client of one session."""

    def __init__(self, calls: list[str], name: str, refused: tuple[str, ...] = ()) -> None:
        self.calls, self.name, self.refused = calls, name, refused
        self.settings: dict[str, str] = {}
        self.policies: list[object] = [object()]

    def set_retry_policies(self, policies: list[object]) -> None:
        self.policies = policies

    def release_session(self) -> None:
        assert self.policies == [], "a server that is gone would be asked for ten minutes"
        self.calls.append(f"release {self.name}")
        if self.name == "gone":
            raise PySparkException("nobody answers")

    def close(self) -> None:
        self.calls.append(f"close {self.name}")

    def _set_all(self, options: dict[str, str], *, silent: bool) -> None:
        assert silent
        for name in self.refused:
            warnings.warn(f"Failed to set {name} to Some(s3cr3t) due to [CANNOT_MODIFY_CONFIG]", stacklevel=2)
        self.settings |= {name: value for name, value in options.items() if name not in self.refused}


class Session:
    """Stands for a session of a server."""

    def __init__(self, client: Client) -> None:
        self.client = self.conf = client


Session.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("sc://h:1", "sc://h:1"),
        ("sc://h:1/;token=s3cr3t", "sc://h:1"),
        ("sc://h:1;token=s3cr3t", "sc://h:1"),
        ("sc://u:s3cr3t@h:1/;use_ssl=true", "sc://h:1"),
    ],
)
def test_of_a_url_only_the_place_is_shown(url: str, shown: str) -> None:
    assert connect.endpoint_of(url) == shown


def test_every_session_is_released_while_the_server_answers_also_behind_one_that_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    monkeypatch.setattr(connect, "_opened", [Session(Client(calls, name)) for name in ("first", "gone", "last")])
    connect.release_sessions()
    connect.release_sessions()
    assert calls == ["release first", "close first", "release gone", "close gone", "release last", "close last"]


def test_a_session_that_is_released_is_not_released_again(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    sessions: list[Any] = [Session(Client(calls, name)) for name in ("batch", "first")]
    monkeypatch.setattr(connect, "_opened", list(sessions))
    connect.release_session(sessions[0])
    assert calls == ["release batch", "close batch"]
    connect.release_sessions()
    assert calls[2:] == ["release first", "close first"]


def test_a_classic_session_is_no_client_and_is_left_as_it_is(spark: SparkSession) -> None:
    assert not connect.is_client(spark)
    connect.release_session(spark)
    session = spark.newSession()
    connect.set_options(session, {"spark.sql.shuffle.partitions": "7", "x.y": "1"})
    assert session.conf.get("spark.sql.shuffle.partitions") == "7"
    connect.unset_options(session, ["x.y"])
    assert session.conf.get("x.y", None) is None
    assert spark.range(1).count() == 1


def test_hadoops_settings_lose_sparks_prefix_and_the_servers_own_are_named(
    caplog: pytest.LogCaptureFixture, recwarn: pytest.WarningsRecorder
) -> None:
    client = Client([], "c", refused=("spark.executor.memory",))
    asked = {
        "spark.hadoop.fs.s3a.bucket.b.secret.key": "s3cr3t",
        "spark.redaction.regex": "x",
        "spark.sql.x": "1",
        "spark.executor.memory": "s3cr3t",
    }
    connect._set_asked(Session(client), asked)
    assert client.settings == {"fs.s3a.bucket.b.secret.key": "s3cr3t", "spark.sql.x": "1"}
    assert "own, and were not set: spark.executor.memory." in caplog.text
    # PySpark's own warning shows the value.
    assert "s3cr3t" not in caplog.text + str([str(warning.message) for warning in recwarn])


class _Refused(PySparkException):
    """As PySpark's errors of gRPC are: with gRPC's word for what happened."""

    def __init__(self, status: str, condition: str | None = None) -> None:
        super().__init__("token=s3cr3t")
        self.status, self.condition = status, condition

    def getGrpcStatusCode(self) -> Any:  # noqa: N802 - PySpark's name.
        return type("Code", (), {"name": self.status})

    def getCondition(self) -> str | None:  # noqa: N802
        return self.condition


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (_Refused("UNAUTHENTICATED"), ConfigurationError),
        (_Refused("PERMISSION_DENIED"), ConfigurationError),
        (_Refused("UNKNOWN", "INVALID_CONNECT_URL"), ConfigurationError),
        (_Refused("UNAVAILABLE"), SparkUnreachableError),
    ],
)
def test_only_a_server_that_may_come_back_is_tried_again(problem: PySparkException, kind: type[CdcError]) -> None:
    error = connect._explained(problem, "sc://h:1")
    assert type(error) is kind
    assert "sc://h:1" in error.message


def test_a_server_that_went_away_under_a_run_is_distinguished_from_other_failures() -> None:
    assert isinstance(connect.gone(_Refused("UNAVAILABLE")), SparkUnreachableError)
    assert connect.gone(_Refused("INTERNAL")) is None
    assert connect.gone(PySparkException("x")) is None
