"""``airflow-cdc completion``: the script by which a shell completes commands and options."""

from __future__ import annotations

from typing import Annotated

import typer

from airflow_cdc.completion_scripts import Shell, script


def completion(shell: Annotated[Shell, typer.Argument(metavar="SHELL", help="bash, zsh or fish.")]) -> None:
    """Print the script by which a shell completes commands, options and their choices."""
    from airflow_cdc.cli import app

    typer.echo(script(shell, typer.main.get_command(app)))
