"""What the demo prints."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from rich.console import Console

from airflow_cdc.demo.show import closing
from airflow_cdc.demo.stage import set_stage


def lines_of_closing(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    closing(Console(width=400), set_stage(folder / "demo"), 1.0)
    return [line.strip() for line in capsys.readouterr().out.splitlines()]


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A virtual environment with the command, that no shell has activated."""
    environment = tmp_path / "environment"
    (environment / "bin").mkdir(parents=True)
    (environment / "bin" / "activate").touch()
    (environment / "bin" / "airflow-cdc").touch(mode=0o755)
    monkeypatch.setattr(sys, "prefix", str(environment))
    monkeypatch.setenv("PATH", str(tmp_path))
    return environment


def test_the_commands_to_continue_with_are_found_by_the_readers_shell(
    environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = lines_of_closing(tmp_path, capsys)
    assert lines.index(f". {environment}/bin/activate") < lines.index(f"airflow-cdc tables --lake {tmp_path}/demo/lake")


def test_an_activated_environment_is_not_activated_again(
    environment: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(environment / "bin"))
    assert not any(line.startswith(". ") for line in lines_of_closing(tmp_path, capsys))
