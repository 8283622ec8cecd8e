"""``airflow-cdc page``: the page of Airflow's UI over one lake, for those who have no Airflow running."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Annotated
from urllib.error import URLError
from urllib.request import urlopen

import typer
from rich.console import Console

from airflow_cdc.cli_common import EXIT_FAILED, EXIT_USAGE, Lake
from airflow_cdc.console import error_text
from airflow_cdc.model.errors import CdcError, ConfigurationError, UnexpectedError

_HOST = "127.0.0.1"
_PATIENCE = 180.0
"""Seconds for which the server may start."""


def page(
    lake: Lake,
    port: Annotated[int, typer.Option(help="Port to listen on; 0: a free one.", min=0, max=65535)] = 8080,
    home: Annotated[
        Path | None, typer.Option(help="Folder of an Airflow whose runs to show too. Default: one for this time.", show_default=False)
    ] = None,
) -> None:
    """Open the page over a lake: Airflow's API server on this machine alone, where everybody is logged in. Starts no Spark.

    It runs in the foreground until Ctrl-C. No scheduler runs: a run that is started in the page waits.
    Exit code 0 when it was ended, 1 when the server ended by itself, 2 when the port is taken.
    """
    from airflow_cdc.runtime.connect_server import free_port

    console = Console(stderr=True)
    # The server must end with this process, however that is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with tempfile.TemporaryDirectory(prefix="airflow-cdc-page-") as scratch:
            _serve(console, _environment(lake, free_port(_HOST, port), home or Path(scratch)))
    except KeyboardInterrupt:
        console.print("The page was ended.", highlight=False)
    except CdcError as error:
        console.print(error_text(error))
        raise typer.Exit(EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILED) from error


def _environment(lake: str, port: int, home: Path) -> dict[str, str]:
    folder = home.absolute()
    return {
        **os.environ,
        "AIRFLOW_HOME": str(folder),
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": f"sqlite:///{folder}/airflow.db",
        "AIRFLOW__CORE__DAGS_FOLDER": str(folder / "dags"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        # Nobody else reaches the address below.
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        "AIRFLOW__API__HOST": _HOST,
        "AIRFLOW__API__PORT": str(port),
        "AIRFLOW__API__WORKERS": "1",
        "AIRFLOW__API_AUTH__JWT_SECRET": secrets.token_urlsafe(48),
        "AIRFLOW_CONN_CDC_LAKE_DEFAULT": json.dumps({"conn_type": "cdc_lake", "host": lake}),
    }


def _serve(console: Console, environment: dict[str, str]) -> None:
    """Run the server until it ends.

    :raises UnexpectedError: where it ends by itself, or does not answer.
    """
    log = Path(environment["AIRFLOW_HOME"]) / "page.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    with log.open("wb") as output, console.status("Airflow starts"):
        airflow = [sys.executable, "-m", "airflow"]
        if subprocess.run([*airflow, "db", "migrate"], env=environment, stdout=output, stderr=output, check=False).returncode:
            raise _failure("Airflow's database could not be made", log)
        server = subprocess.Popen([*airflow, "api-server"], env=environment, stdout=output, stderr=output)
        url = f"http://{_HOST}:{environment['AIRFLOW__API__PORT']}"
        try:
            _wait(server, url, log)
        except BaseException:
            server.terminate()
            raise
    sys.stdout.write(f"The page is ready at {url}/plugin/cdc; Ctrl-C ends it.\n")
    sys.stdout.flush()
    try:
        server.wait()
    finally:
        server.terminate()
        with suppress(subprocess.TimeoutExpired):
            server.wait(10)
    raise _failure(f"Airflow's API server ended by itself with exit code {server.returncode}", log)


def _wait(server: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if server.poll() is not None:
            raise _failure(f"Airflow's API server did not start (exit code {server.returncode})", log)
        with suppress(URLError, OSError), urlopen(f"{url}/api/v2/version", timeout=5):
            return
        time.sleep(0.5)
    raise _failure(f"Airflow's API server did not answer within {_PATIENCE:.0f} seconds", log)


def _failure(what: str, log: Path) -> UnexpectedError:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines()[-15:]
    return UnexpectedError("\n".join([f"{what}. The end of its log:", *lines]), next_step="Mend what the log names, and try again.")
