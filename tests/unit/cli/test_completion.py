"""``airflow-cdc completion``: what a real bash completes with the script, and what the other shells are given."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import typer

from airflow_cdc.cli import app
from airflow_cdc.completion_scripts import Shell, commands_of, script
from tests.unit.cli.conftest import CLOSED_LATE, Run

pytestmark = CLOSED_LATE
GROUP = typer.main.get_command(app)


def completed(tmp_path: Path, *words: str) -> list[str]:
    """Return what bash completes behind the words; the last one is unfinished."""
    (tmp_path / "completion.bash").write_text(script(Shell.BASH, GROUP))
    bash = shutil.which("bash")
    assert bash
    program = """
source completion.bash
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
function=$(complete -p airflow-cdc | sed 's/.*-F \\([^ ]*\\).*/\\1/')
"$function"
printf '%s\\n' "${COMPREPLY[@]}"
"""
    command = [bash, "--noprofile", "--norc", "-eu", "-c", program, "bash", "airflow-cdc", *words]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=30, check=True)
    return ended.stdout.split()


def test_bash_completes_commands_and_those_of_a_group(tmp_path: Path) -> None:
    assert completed(tmp_path, "app") == ["apply"]
    assert completed(tmp_path, "quarantine", "") == ["list", "show", "replay", "--help"]
    assert set(GROUP.commands) <= set(completed(tmp_path, ""))  # type: ignore[attr-defined]


def test_bash_completes_the_options_of_the_command_and_no_others(tmp_path: Path) -> None:
    assert completed(tmp_path, "apply", "--fl") == ["--flows"]
    assert completed(tmp_path, "schema", "show", "--") == ["--lake", "--json", "--help"]
    assert "--limit" in completed(tmp_path, "show", "pg.public.carts", "--")
    # A flow may have a command's name.
    assert completed(tmp_path, "history", "apply", "--al") == ["--all"]


def test_bash_completes_an_options_choices_and_leaves_a_path_to_itself(tmp_path: Path) -> None:
    assert completed(tmp_path, "apply", "--engine", "") == ["auto", "spark", "native"]
    assert completed(tmp_path, "apply", "--lake", "") == []


def test_every_command_and_option_is_in_the_script_of_every_shell() -> None:
    for command in commands_of(GROUP):
        for option in command.options:
            for name in option.names:
                assert name in script(Shell.BASH, GROUP)
                assert f"-l {name[2:]}" in script(Shell.FISH, GROUP)
    assert script(Shell.ZSH, GROUP).endswith(script(Shell.BASH, GROUP))
    assert "bashcompinit" in script(Shell.ZSH, GROUP)


def test_the_lines_for_fish_are_quoted() -> None:
    for line in script(Shell.FISH, GROUP).splitlines():
        assert line.startswith("complete -c airflow-cdc -n '")
        assert line.replace("\\'", "").count("'") % 2 == 0


def test_the_script_is_printed_and_an_unknown_shell_refused(run_alone: Run) -> None:
    assert run_alone("completion", "bash").stdout == script(Shell.BASH, GROUP) + "\n"
    assert run_alone("completion", "tcsh").code == 2


@pytest.mark.skipif(shutil.which("zsh") is None, reason="needs zsh")
def test_zsh_takes_the_script(tmp_path: Path) -> None:
    (tmp_path / "completion.zsh").write_text(script(Shell.ZSH, GROUP))
    subprocess.run(["zsh", "-f", "-c", "source completion.zsh"], cwd=tmp_path, timeout=30, check=True)
