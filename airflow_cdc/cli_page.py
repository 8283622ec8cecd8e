"""``airflow-cdc page``: the page of Airflow's UI over one lake, without Airflow."""

from __future__ import annotations

import secrets
import signal
import sys
from typing import Annotated

import typer
from rich.console import Console

from airflow_cdc.cli_common import EXIT_USAGE, Lake
from airflow_cdc.console import error_text
from airflow_cdc.model.errors import ConfigurationError

_HOST = "127.0.0.1"


def page(
    lake: Lake,
    port: Annotated[int, typer.Option(help="Port to listen on; 0: a free one.", min=0, max=65535)] = 8080,
) -> None:
    """Open the page over a lake, on this machine alone. It reads, and starts neither Airflow nor Spark.

    It runs in the foreground until Ctrl-C. Its address has a token, without which nothing is answered.
    Exit code 0 when it was ended, 2 when the port is taken.
    """
    from airflow_cdc.runtime.connect_server import free_port

    console = Console(stderr=True)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        _serve(lake, free_port(_HOST, port))
    except KeyboardInterrupt:
        console.print("The page was ended.", highlight=False)
    except ConfigurationError as error:
        console.print(error_text(error))
        raise typer.Exit(EXIT_USAGE) from error


def _serve(lake: str, port: int) -> None:
    import uvicorn

    from airflow_cdc.plugins.page.alone import alone_app

    token = secrets.token_urlsafe(32)
    # The log of requests would hold the token.
    config = uvicorn.Config(alone_app(lake, token, port), host=_HOST, port=port, log_level="warning", access_log=False, server_header=False)
    server = uvicorn.Server(config)
    listening = config.bind_socket()
    # Who asks before the server does waits for it.
    listening.listen()
    sys.stdout.write(f"The page is ready, Ctrl-C ends it: http://{_HOST}:{port}/?token={token}\n")
    sys.stdout.flush()
    server.run(sockets=[listening])
