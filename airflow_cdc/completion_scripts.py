"""Completion scripts for shells, made from the commands: static, so that no Python starts at each press of the key."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

PROGRAM = "airflow-cdc"


class Shell(str, Enum):
    """A shell with a completion script."""

    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


@dataclass(frozen=True)
class Option:
    """An option of a command."""

    names: tuple[str, ...]
    help: str
    takes_value: bool
    choices: tuple[str, ...]


@dataclass(frozen=True)
class Command:
    """A command, or a group of commands."""

    path: tuple[str, ...]
    """Words behind the program's name; empty for the program itself."""
    help: str
    options: tuple[Option, ...]
    subcommands: tuple[str, ...]


def commands_of(group: Any, path: tuple[str, ...] = ()) -> Iterator[Command]:
    """Yield a click command, and those below it.

    :param group: what ``typer.main.get_command`` returns.
    """
    below: Mapping[str, Any] = getattr(group, "commands", {})
    options = tuple(_option(parameter) for parameter in group.params if parameter.opts and parameter.opts[0].startswith("-"))
    own_help = Option(("--help",), "Show the help.", takes_value=False, choices=())
    yield Command(path, _first_sentence(group.help), (*options, own_help), tuple(below))
    for name, command in below.items():
        yield from commands_of(command, (*path, name))


def _option(parameter: Any) -> Option:
    # Typer's own parameters describe their type where Click's have it.
    kind = getattr(parameter, "type", None) or getattr(parameter, "type_descriptor", None)
    choices = tuple(str(getattr(choice, "value", choice)) for choice in getattr(kind, "choices", None) or ())
    return Option(tuple(parameter.opts), _first_sentence(parameter.help), not getattr(parameter, "is_flag", False), choices)


def _first_sentence(text: str | None) -> str:
    return " ".join((text or "").split()).partition(". ")[0].rstrip(".")


def script(shell: Shell, group: Any) -> str:
    """Return the completion script of a shell.

    :param group: what ``typer.main.get_command`` returns.
    """
    return _WRITERS[shell](list(commands_of(group)))


def _bash(commands: Sequence[Command]) -> str:
    steps = [f"      {_pattern(command.path)}) path={_pattern(command.path)} ;;" for command in commands if command.path]
    values = [
        f"    {'|'.join(_pattern((*command.path, name)) for name in option.names)})"
        + (f' COMPREPLY=($(compgen -W "{" ".join(option.choices)}" -- "$cur"));' if option.choices else "")
        + " return ;;"
        for command in commands
        for option in command.options
        if option.takes_value
    ]
    words = [f'    {_pattern(command.path)}) words="{" ".join(_words(command))}" ;;' for command in commands]
    return "\n".join(
        [
            "_airflow_cdc() {",
            '  local cur="${COMP_WORDS[COMP_CWORD]}" path="" words="" i',
            "  COMPREPLY=()",
            "  for ((i = 1; i < COMP_CWORD; i++)); do",
            '    case "$path ${COMP_WORDS[i]}" in',
            *steps,
            "    esac",
            "  done",
            "  # The value of an option: its choices, or a file's name.",
            '  case "$path ${COMP_WORDS[COMP_CWORD-1]}" in',
            *values,
            "  esac",
            '  case "$path" in',
            *words,
            "  esac",
            '  COMPREPLY=($(compgen -W "$words" -- "$cur"))',
            "}",
            f"complete -o default -F _airflow_cdc {PROGRAM}",
        ]
    )


def _pattern(path: Sequence[str]) -> str:
    return shlex.quote("".join(f" {word}" for word in path))


def _words(command: Command) -> list[str]:
    return [*command.subcommands, *(name for option in command.options for name in option.names)]


def _zsh(commands: Sequence[Command]) -> str:
    return f"autoload -U +X compinit && compinit\nautoload -U +X bashcompinit && bashcompinit\n{_bash(commands)}"


def _fish(commands: Sequence[Command]) -> str:
    groups = {command.path[0] for command in commands if command.subcommands and command.path}
    lines = []
    for command in commands:
        if not command.path:
            seen = "__fish_use_subcommand"
        else:
            seen = "; and ".join(f"__fish_seen_subcommand_from {word}" for word in command.path)
            others = sorted(groups - {command.path[0]})
            seen += f"; and not __fish_seen_subcommand_from {' '.join(others)}" if others else ""
        for name in command.subcommands:
            described = next(each.help for each in commands if each.path == (*command.path, name))
            lines.append(_fish_line(seen, f"-f -a {name}", described))
        for option in command.options:
            spelled = " ".join(f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}" for name in option.names)
            value = f" -xa {shlex.quote(' '.join(option.choices))}" if option.choices else " -r" if option.takes_value else ""
            lines.append(_fish_line(seen, spelled + value, option.help))
    return "\n".join(lines)


def _fish_line(seen: str, what: str, described: str) -> str:
    text = described.replace("\\", "\\\\").replace("'", "\\'")
    return f"complete -c {PROGRAM} -n '{seen}' {what} -d '{text}'"


_WRITERS: Mapping[Shell, Callable[[Sequence[Command]], str]] = {Shell.BASH: _bash, Shell.ZSH: _zsh, Shell.FISH: _fish}
