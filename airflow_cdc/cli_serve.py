"""``airflow-cdc serve``: a Spark Connect server with Delta, for those who have no cluster."""

from __future__ import annotations

import os
import secrets
import signal
import sys
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from airflow_cdc.cli_common import EXIT_FAILED, EXIT_USAGE, AsJson, Master, SparkConf, settings_of
from airflow_cdc.console import error_text, print_json
from airflow_cdc.model.errors import CdcError, ConfigurationError


def serve(
    port: Annotated[int, typer.Option(help="Port to listen on; 0: a free one.", min=0, max=65535)] = 15002,
    host: Annotated[str, typer.Option(help="Address to listen on.")] = "127.0.0.1",
    master: Master = "local[*]",
    conf: SparkConf = None,
    packages: Annotated[
        list[str] | None, typer.Option("--packages", help="Maven coordinates of more jars; may be repeated.", show_default=False)
    ] = None,
    no_token: Annotated[bool, typer.Option("--no-token", help="Let in whoever reaches the port, without a token.")] = False,
    as_json: AsJson = False,
) -> None:
    """Run a Spark Connect server with Delta in the foreground, until Ctrl-C or SIGTERM.

    Merges that connect to it start no Spark of their own. Clients need the token in the printed URL, or the one that is in
    SPARK_CONNECT_AUTHENTICATE_TOKEN. Exit code 0 when it was ended, 1 when it ended by itself, 2 on usage.
    """
    from airflow_cdc.runtime import connect_server

    console = Console(stderr=True)
    settings = settings_of(conf)
    if packages:
        settings["spark.jars.packages"] = ",".join(filter(None, (*packages, settings.get("spark.jars.packages"))))
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    try:
        port = connect_server.free_port(host, port)
        is_local, known = connect_server.is_loopback(host), os.environ.get(connect_server.TOKEN_VARIABLE)
        token = None if no_token else known or secrets.token_urlsafe(32)
        if token is None or not is_local:
            _warn(console, host, has_token=token is not None)
        options = connect_server.server_options(host, port, settings)
        with connect_server.running_server(master, host, port, options, token=token) as server:
            # Without TLS, PySpark sends a token to no other name.
            shown = "localhost" if token and is_local else f"[{host}]" if ":" in host else host
            url = f"sc://{shown}:{port}" + (f"/;token={token}" if token and not known else "")
            if as_json:
                print_json({"url": url})
            else:
                sys.stdout.write(f"Spark Connect is ready, Ctrl-C ends it: {url}\n")
                sys.stdout.flush()
            code = server.wait()
        console.print(f"The server ended by itself with exit code {code}: see its log above.", highlight=False)
        raise typer.Exit(EXIT_FAILED)
    except KeyboardInterrupt:
        console.print("The server was ended.", highlight=False)
    except CdcError as error:
        console.print(error_text(error))
        raise typer.Exit(EXIT_USAGE if isinstance(error, ConfigurationError) else EXIT_FAILED) from error


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    # Once: a second signal must not break off the end.
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, signal.SIG_IGN)
    raise KeyboardInterrupt


def _warn(console: Console, host: str, *, has_token: bool) -> None:
    if has_token:
        what = (
            f"nothing that reaches {host} is encrypted, and PySpark sends a token to another machine through TLS alone: put a proxy with "
            "TLS in front."
        )
    else:
        what = (
            f"whoever reaches {host} can run what they like in this server, as this user and with its credentials: no token is asked "
            "for, and nothing is encrypted. Keep the port behind a firewall."
        )
    console.print(f"Warning: {what}", style="yellow", highlight=False)
