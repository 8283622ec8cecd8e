"""Each command that prints an answer prints it as one JSON document too."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer

from airflow_cdc import __version__
from airflow_cdc.cli import app
from airflow_cdc.completion_scripts import Command, commands_of
from tests.support.events import TOPIC as FLOW
from tests.support.events import numbered, sqlserver, write_records
from tests.unit.cli.conftest import CLOSED_LATE, Run
from tests.unit.pipeline.look.test_key_story import ANN, Lake

pytestmark = CLOSED_LATE

NO_ANSWER = {
    ("completion",): "a script for a shell",
    ("demo",): "a story for people",
    ("metrics",): "OpenMetrics text",
    ("page",): "a server",
}
COMMANDS = [command for command in commands_of(typer.main.get_command(app)) if not command.subcommands]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: " ".join(command.path))
def test_every_command_with_an_answer_has_the_option(command: Command) -> None:
    has_json = any("--json" in option.names for option in command.options)
    assert has_json is (command.path not in NO_ANSWER)


@pytest.mark.parametrize(
    "arguments",
    [
        ("tables", "--lake", "LAKE"),
        ("history", FLOW, "--lake", "LAKE"),
        ("show", FLOW, "--lake", "LAKE"),
        ("key", FLOW, "1", "--lake", "LAKE"),
        ("explain", FLOW, "--lake", "LAKE"),
        ("files", "--lake", "LAKE"),
        ("diff", "LAKE", "LAKE"),
        ("quarantine", "list", "--lake", "LAKE"),
        ("quarantine", "show", FLOW, "--lake", "LAKE"),
        ("confirm-snapshot", FLOW, "--lake", "LAKE"),
        ("inspect", "ARCHIVE"),
        ("version",),
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_look_prints_one_document_and_nothing_else(arguments: tuple[str, ...], tmp_path: Path, run_alone: Run, no_spark: None) -> None:
    made = Lake(tmp_path)
    write_records(made.archive / "1.jsonl", numbered([sqlserver("c", commit=1, after=ANN)]))
    made.applied("1.jsonl")
    made.has_row(ANN, 1, 1, op="c")
    places = {"LAKE": str(made.lake), "ARCHIVE": str(made.archive)}
    ended = run_alone(*(places.get(word, word) for word in arguments), "--json")
    assert ended.code == 0
    assert isinstance(ended.document, dict)


def test_the_version_is_printed_either_way(run_alone: Run) -> None:
    assert run_alone("version").stdout == f"{__version__}\n"
    assert run_alone("version", "--json").document == {"version": __version__}
