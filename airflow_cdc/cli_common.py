"""What the commands of the command line share: options, Spark, exit codes."""

from __future__ import annotations

import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple, TypeVar

import typer
from rich.console import Console
from rich.text import Text

from airflow_cdc.console import divert_stderr, error_text
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.errors import ArchiveNotFoundError, CdcError, ConfigurationError, first_line
from airflow_cdc.model.files import absolute_uri, is_local

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXIT_FAILED, EXIT_USAGE = 1, 2
_Answer = TypeVar("_Answer")


def _refuse_token_in_sight(context: typer.Context, url: str | None) -> str | None:
    source = context.get_parameter_source("connect")
    if url and "token=" in url and source and source.name == "COMMANDLINE":
        raise typer.BadParameter("every user of the machine reads a token on a command line; put the URL into AIRFLOW_CDC_CONNECT.")
    return url


Archive = Annotated[str, typer.Option(help="Root URI of the archive.", show_default=False, callback=absolute_uri)]
FlowsFile = Annotated[Path | None, typer.Option(help="YAML or JSON file with settings of flows.", show_default=False)]
Flow = Annotated[str, typer.Argument(metavar="FLOW", help="Name of a flow.")]
Lake = Annotated[str, typer.Option(help="Root URI of the lake.", show_default=False, callback=absolute_uri)]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Report what would be done; change nothing.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on stdout and nothing else there.")]
Globs = Annotated[list[str] | None, typer.Option("--table", help="Glob of flow names; may be repeated.", show_default=False)]
Master = Annotated[str, typer.Option(help="Spark master.", envvar="AIRFLOW_CDC_SPARK_MASTER")]
Connect = Annotated[
    str | None,
    typer.Option(
        help="URL of a Spark Connect server that does the work, such as sc://127.0.0.1:15002.",
        envvar="AIRFLOW_CDC_CONNECT",
        show_default=False,
        callback=_refuse_token_in_sight,
    ),
]
SparkConf = Annotated[list[str] | None, typer.Option("--conf", help="Spark setting key=value; may be repeated.", show_default=False)]


@contextmanager
def spark_command(command: str, master: str, conf: list[str] | None, connect: str | None = None) -> Iterator[tuple[SparkSession, Console]]:
    """Start Spark with its log in a file; end the command with the right exit code when something goes wrong.

    For ``apply`` it starts only when it is first used: the native engine may do all of the work.
    """
    settings = settings_of(conf)
    handle, log = tempfile.mkstemp(prefix=f"airflow-cdc-{command}-", suffix=".log")
    os.close(handle)
    console = divert_stderr(Path(log))
    failed = True
    try:
        from airflow_cdc.pipeline.spark.connect import release_sessions
        from airflow_cdc.pipeline.spark.session import start_late, start_session

        try:
            start = start_late if command == "apply" else start_session
            yield start(f"airflow-cdc {command}", master=master, options=settings, remote=connect), console
        finally:
            release_sessions()
        failed = False
    except CdcError as error:
        console.print(error_text(error))
        failed = not isinstance(error, ConfigurationError | ArchiveNotFoundError)
        raise typer.Exit(EXIT_FAILED if failed else EXIT_USAGE) from error
    except typer.Exit as ending:
        failed = ending.exit_code == EXIT_FAILED and command == "apply"
        raise
    except Exception as error:
        # Into the log, which is where stderr goes.
        traceback.print_exc()
        next_step = "Next step: see the end of the log; unless a setting is wrong, please report it."
        console.print(Text(f"{type(error).__name__}: {first_line(error)}\n  {next_step}"))
        raise typer.Exit(EXIT_FAILED) from error
    finally:
        if failed:
            console.print(f"Spark's log: {log}", highlight=False)
        else:
            Path(log).unlink(missing_ok=True)


def settings_of(items: list[str] | None, hint: str = "--conf") -> dict[str, str]:
    """Return options of the form key=value as a mapping."""
    settings = {}
    for item in items or []:
        key, equals, value = item.partition("=")
        if not equals:
            raise typer.BadParameter(f"{item!r} is not key=value", param_hint=hint)
        settings[key] = value
    return settings


@contextmanager
def usage() -> Iterator[None]:
    """End the command before Spark starts when its arguments are wrong: nobody waits ten seconds for a typing error."""
    try:
        yield
    except CdcError as error:
        Console(stderr=True).print(error_text(error))
        raise typer.Exit(EXIT_USAGE if isinstance(error, ConfigurationError | ArchiveNotFoundError) else EXIT_FAILED) from error


def check_archive(archive: str) -> None:
    """Refuse a local archive that is not there; other stores are asked by the run.

    :raises ArchiveNotFoundError: for such an archive.
    """
    from airflow_cdc.model.archive.archived_files import missing_archive
    from airflow_cdc.pipeline.spark.storage import file_system

    fs, root = file_system(archive)
    if is_local(fs) and not fs.exists(root):
        raise missing_archive(root)


class SparkOptions(NamedTuple):
    """The options of a command about Spark."""

    master: str
    conf: list[str] | None
    connect: str | None


def _check_server(url: str | None) -> None:
    # Whether or not the answer needs it: a typing error must not wait for the day on which it does.
    if url and not url.startswith("sc://"):
        raise ConfigurationError(f"{url} is no URL of a Spark Connect server.", next_step="Spell it sc://host:port.")


def answer(command: str, natively: Callable[[], _Answer], in_spark: Callable[[SparkSession], _Answer], options: SparkOptions) -> _Answer:
    """Return the answer of a command that only looks: read in this process, or by Spark where nothing else can read it."""
    from airflow_cdc.pipeline.look.native_table import NeedsSparkError

    settings_of(options.conf)
    try:
        with usage():
            _check_server(options.connect)
            return natively()
    except NeedsSparkError as reason:
        Console(stderr=True).print(f"Spark starts: {reason}", style="dim", highlight=False, markup=False, soft_wrap=True)
    with spark_command(command, *options) as (spark, _):
        return in_spark(spark)


def progress_on(console: Console) -> Callable[[str], None]:
    """Return a function that prints lines of progress."""
    return lambda line: console.print(printable(line), style="dim", highlight=False, markup=False)
