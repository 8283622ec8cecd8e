"""Sessions of a Spark Connect server: open and clone them, and release them while the server answers.

For a session with Spark in its own process, nothing here has an effect or imports Spark Connect's packages.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import logging
import os
import threading
import warnings
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession

from airflow_cdc.model.errors import ConfigurationError, SparkUnreachableError, first_line
from airflow_cdc.pipeline.spark.fitting_spark import refuse_other_server

_SECONDS_TO_ANSWER, _SECONDS_TO_RELEASE = 20.0, 10.0
_REFUSALS = ("UNAUTHENTICATED", "PERMISSION_DENIED")
_HADOOP = "spark.hadoop."
_FIXED = ("spark.redaction.regex",)
"""Our settings that apply to a whole server; ``airflow-cdc serve`` sets them."""

_opened: list[Any] = []
_reopen: list[Callable[[], SparkSession]] = []
"""Opens another session at this process's server, with the same settings."""
_lock = threading.Lock()
_log = logging.getLogger(__name__)


def is_client(session: SparkSession) -> bool:
    """Return whether a session is one of a Spark Connect server."""
    return type(session).__module__.startswith("pyspark.sql.connect")


def analysed(rows: DataFrame) -> DataFrame:
    """Return the frame, once Spark has analysed it: a client of Spark Connect asks for that only when it needs a schema or rows.

    Without it, a ``try`` around the making of a frame catches nothing there: a table is missed only where its rows are used.

    :raises AnalysisException: for a file, table or column that is not there.
    """
    _ = rows.schema
    return rows


def computed(rows: DataFrame) -> DataFrame:
    """Return rows computed now, once, and kept by Spark until nothing refers to them."""
    held = rows.localCheckpoint()
    if is_client(rows.sparkSession):
        # PySpark hands them to the thread's active session. Ours is another one, and the server knows them in no other.
        at_server: Any = held
        at_server._session = at_server._plan._spark_session = rows.sparkSession
    return held


def with_columns(rows: DataFrame, columns: Mapping[str, Column]) -> DataFrame:
    """Return rows with columns added, which may be none: Spark Connect's own ``withColumns`` fails for none."""
    return rows.withColumns(dict(columns)) if columns else rows


def endpoint_of(url: str) -> str:
    """Return scheme and host of a Spark Connect URL, without its parameters: the token is a secret."""
    return f"sc://{urlsplit(url).netloc.rpartition('@')[2].partition(';')[0]}"


def open_session(url: str, app_name: str, options: Mapping[str, str], ours: Mapping[str, str]) -> SparkSession:
    """Open a session at a Spark Connect server; :func:`release_sessions` must be called before the process ends.

    :param url: ``sc://host:port``, with ``/;token=…`` and other parameters if the server requires them.
    :param options: the user's Spark settings. Those of a whole application cannot be set on a running server; a warning names them.
    :param ours: session settings that the pipeline needs; the user's override them.
    :raises SparkUnreachableError: if the server does not answer.
    :raises ConfigurationError: if the URL is invalid, or the server refuses the client or has no Delta.
    """
    where = endpoint_of(url)
    try:
        _reach(url, where)
        session: SparkSession = _begun(SparkSession.builder.remote(url).appName(app_name).getOrCreate())
        _refuse_without_delta(session, where)
        refuse_other_server(session, where)
        set_options(session, ours)
        _set_asked(session, options)
        _reopen[:] = [partial(_opened_again, url, app_name, options, ours)]
    except ImportError as error:
        raise ConfigurationError(
            f"A client of Spark Connect cannot start here: {first_line(error)}", next_step='Install "airflow-cdc[connect]".'
        ) from error
    except PySparkException as error:
        raise _explained(error, where) from error
    return session


def another_session(session: SparkSession) -> SparkSession:
    """Return another session at the same server, with its own settings and views."""
    # Classic sessions have newSession instead. The client of Spark 4.0 has neither, and opens one anew.
    at_server: Any = session
    cloned: SparkSession = _begun(at_server.cloneSession()) if hasattr(at_server, "cloneSession") else _reopen[0]()
    return cloned


def _opened_again(url: str, app_name: str, options: Mapping[str, str], ours: Mapping[str, str]) -> SparkSession:
    session: Any = _begun(SparkSession.builder.remote(url).appName(app_name).create())
    set_options(session, ours)
    with warnings.catch_warnings():
        # The first session told what the server refuses.
        warnings.simplefilter("ignore")
        session.conf._set_all(_asked(options), silent=True)
    reopened: SparkSession = session
    return reopened


def _begun(session: Any) -> Any:
    with _lock:
        _opened.append(session)
    _be_impatient(session)
    return session


def set_options(session: SparkSession, options: Mapping[str, str]) -> None:
    """Set Spark settings of any session; at a server, in one call instead of one per setting."""
    if is_client(session):
        at_server: Any = session.conf
        at_server._set_all(dict(options), silent=False)
        return
    for name, value in options.items():
        session.conf.set(name, value)


def unset_options(session: SparkSession, names: Iterable[str]) -> None:
    """Unset Spark settings of any session; at a server, in one call."""
    if not is_client(session):
        for name in names:
            session.conf.unset(name)
        return
    from pyspark.sql.connect.proto import ConfigRequest

    session.client.config(ConfigRequest.Operation(unset=ConfigRequest.Unset(keys=list(names))))


def release_session(session: SparkSession) -> None:
    """End a session that is no longer needed. Classic sessions need no release."""
    if not is_client(session):
        return
    with _lock:
        if session in _opened:
            _opened.remove(session)
    _release([session])


def release_sessions() -> None:
    """End every session that this process has opened, and everything that they run at the server.

    Without this the process does not end: at interpreter exit each client asks the server to delete its cached models, in threads that
    can no longer be started, or for ten minutes if the server is gone. And the server keeps each session for an hour. (A cloned session's
    own ``stop`` fails: PySpark 4.2 omits an attribute.)
    """
    with _lock:
        sessions = list(_opened)
        _opened.clear()
    if not sessions:
        return
    # A server that neither answers nor refuses must not block the process.
    release = threading.Thread(target=_release, args=(sessions,), name="release-sessions", daemon=True)
    release.start()
    release.join(_SECONDS_TO_RELEASE)
    if release.is_alive():
        import atexit

        for session in sessions:
            atexit.unregister(session.client._on_exit)


def _release(sessions: Iterable[Any]) -> None:
    for session in sessions:
        client = session.client
        client.set_retry_policies([])
        # PySpark releases results in the background. After the session is gone, the server would log an error for each.
        concurrent.futures.wait(getattr(client, "_release_futures", ()), timeout=1)
        with contextlib.suppress(Exception):
            client.release_session()
        with contextlib.suppress(Exception):
            client.close()


def _reach(url: str, where: str) -> None:
    import grpc
    from pyspark.sql.connect.client.core import DefaultChannelBuilder

    if urlsplit(url).hostname in {"localhost", "127.0.0.1", "::1"}:
        # gRPC would use a proxy from the environment (https_proxy) even for this machine.
        # It reads this variable in lower case only.
        others = os.environ.get("no_grpc_proxy") or os.environ.get("no_proxy") or ""  # noqa: SIM112
        os.environ["no_grpc_proxy"] = ",".join(filter(None, (others, "localhost,127.0.0.1,::1")))  # noqa: SIM112
    # PySpark's client would retry for ten minutes.
    builder = DefaultChannelBuilder(url)
    channel = builder.toChannel()
    try:
        grpc.channel_ready_future(channel).result(timeout=_SECONDS_TO_ANSWER)
    except grpc.FutureTimeoutError as error:
        is_encrypted = builder.secure and urlsplit(url).hostname != "localhost"
        how = " by TLS, which PySpark takes where there is a token and the host is not named localhost" if is_encrypted else ""
        raise _unreachable(where, f"did not answer within {_SECONDS_TO_ANSWER:g} s{how}") from error
    finally:
        # Closing waits a fifth of a second for gRPC's own check of the channel.
        threading.Thread(target=channel.close, name="close-channel", daemon=True).start()


def _be_impatient(session: Any) -> None:
    from pyspark.sql.connect.client.retries import DefaultPolicy

    # About one minute per call instead of ten: Airflow retries later, and alerts people meanwhile.
    session.client.set_retry_policies([DefaultPolicy(max_retries=9, max_backoff=10_000)])


def _refuse_without_delta(session: Any, where: str) -> None:
    extensions = session.conf.get("spark.sql.extensions", "")
    if "DeltaSparkSessionExtension" not in extensions:
        raise ConfigurationError(
            f"The Spark Connect server {where} has no Delta: its spark.sql.extensions is {extensions or 'empty'}.",
            next_step="Start it with Delta's jars, extension and catalog, as `airflow-cdc serve` does.",
        )


def _set_asked(session: Any, options: Mapping[str, str]) -> None:
    asked = _asked(options)
    if not asked:
        return
    # Without PySpark's warnings: they contain the value, which may be a secret. And the same Dag may run by spark-submit elsewhere, where
    # memory and similar settings apply.
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        session.conf._set_all(asked, silent=True)
    messages = [str(warning.message) for warning in caught]
    refused = sorted(name for name in asked if any(f"Failed to set {name} " in text for text in messages))
    if refused:
        _log.warning("These settings are the Spark Connect server's own, and were not set: %s.", ", ".join(refused))


def _asked(options: Mapping[str, str]) -> dict[str, str]:
    # Spark strips the prefix only from an application's settings. A session's settings are passed to Hadoop unchanged.
    return {name.removeprefix(_HADOOP): value for name, value in options.items() if name not in _FIXED}


def _explained(error: PySparkException, where: str) -> ConfigurationError | SparkUnreachableError:
    status = _status_of(error)
    if status in _REFUSALS:
        return ConfigurationError(
            f"The Spark Connect server {where} refuses this client: {status}.",
            next_step="Give the connection the token that the server asks for (its password field).",
        )
    if error.getCondition() == "INVALID_CONNECT_URL":
        return ConfigurationError(
            f"{where} is no URL of a Spark Connect server, or what follows the host in it cannot be read.",
            next_step="Spell it sc://host:port, or sc://host:port/;use_ssl=true and so on.",
        )
    return _unreachable(where, f"failed: {first_line(error)}")


def gone(problem: PySparkException) -> SparkUnreachableError | None:
    """Return the error for a server that went away during use; None if something else failed."""
    return _unreachable("of this job", "is gone") if _status_of(problem) == "UNAVAILABLE" else None


def _status_of(problem: PySparkException) -> str:
    # gRPC's status; Spark's own errors have none, or UNKNOWN.
    status = getattr(problem, "getGrpcStatusCode", lambda: None)()
    return str(getattr(status, "name", ""))


def _unreachable(where: str, seen: str) -> SparkUnreachableError:
    return SparkUnreachableError(
        f"The Spark Connect server {where} {seen}.",
        next_step="See that it runs (`airflow-cdc serve`, or your cluster's) and that this machine reaches it; the next run goes on.",
    )
