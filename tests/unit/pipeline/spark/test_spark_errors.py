"""What an unforeseen failure is taken for: Spark's, the storage's, or a defect; a Java that is gone is not the storage."""

from __future__ import annotations

import socket

import pytest
from py4j.clientserver import ClientServer, JavaParameters, PythonParameters
from py4j.java_gateway import GatewayParameters, JavaGateway
from pyspark.errors import AnalysisException

from airflow_cdc.model.errors import CdcError, SparkFailedError, StorageFailedError, UnexpectedError
from airflow_cdc.pipeline.spark.spark_errors import unforeseen


def free_port() -> int:
    with socket.socket() as place:
        place.bind(("127.0.0.1", 0))
        return int(place.getsockname()[1])


def call_java_that_is_gone() -> None:
    JavaGateway(gateway_parameters=GatewayParameters(port=free_port())).jvm.java.lang.System.nanoTime()


def call_java_that_is_gone_from_a_pinned_thread() -> None:
    gateway = ClientServer(JavaParameters(port=free_port()), PythonParameters(port=0, auto_gc=False))
    try:
        gateway.jvm.java.lang.System.nanoTime()
    finally:
        gateway.shutdown_callback_server()


def ask_a_store_that_is_gone() -> None:
    socket.create_connection(("127.0.0.1", free_port()), timeout=5)


def found_by(call: object) -> CdcError:
    assert callable(call)
    try:
        call()
    except Exception as problem:  # noqa: BLE001
        return unforeseen(problem, "Flow a", "See the log.")
    raise AssertionError("it did not fail")


@pytest.mark.parametrize("call", [call_java_that_is_gone, call_java_that_is_gone_from_a_pinned_thread])
def test_a_java_that_is_gone_is_sparks_failure_and_says_so(call: object) -> None:
    error = found_by(call)
    assert type(error) is SparkFailedError
    assert error.transient
    assert error.message.startswith("Flow a: Spark's Java process ended under the run (")
    assert "was it killed" in error.next_step


def test_a_failure_that_came_of_a_java_that_is_gone_is_that_too() -> None:
    def wrapped() -> None:
        try:
            call_java_that_is_gone()
        except Exception as error:
            raise ValueError("no rows") from error

    assert type(found_by(wrapped)) is SparkFailedError


def test_a_store_that_does_not_answer_is_no_java() -> None:
    error = found_by(ask_a_store_that_is_gone)
    assert type(error) is StorageFailedError
    assert error.message.startswith("Flow a: ConnectionRefusedError: ")


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (AnalysisException("no column"), SparkFailedError),
        (PermissionError("no entry"), StorageFailedError),
        (KeyError("x"), UnexpectedError),
    ],
)
def test_other_failures_are_told_apart_by_their_type(problem: Exception, kind: type[CdcError]) -> None:
    error = unforeseen(problem, "Flow a", "See the log.")
    assert (type(error), error.next_step) == (kind, "See the log.")
