"""Write the reference pages that are made of the code: ``.venv/bin/python scripts/reference.py`` (``make docs`` runs it).

They are kept in the repository, so that its host shows them and links to them hold; ``tests/unit/test_reference.py`` fails where one is
not what the code gives. A page more is a function more in :data:`PAGES`.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from pathlib import Path
from typing import Any, get_args

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
# Airflow writes its settings where it is imported: not into the user's own home.
os.environ.setdefault("AIRFLOW_HOME", str(ROOT / "build" / "airflow"))

from reference_docstrings import described_members, markdown, parameters_of, purpose_of, table  # noqa: E402
from reference_schema import report_schema  # noqa: E402
from reference_where import LEAD, where_parts  # noqa: E402

from airflow_cdc.get_provider_info import get_provider_info  # noqa: E402
from airflow_cdc.model.errors import CdcError, RejectReason  # noqa: E402

FOLDER = ROOT / "docs" / "reference"
_ORIGIN = "<!-- Made of the code by scripts/reference.py: `make docs` writes it anew. -->"
_KINDS = (("operators", "Operators"), ("sensors", "Sensors"), ("triggers", "Triggers"), ("hooks", "Hooks"))
_OWN = "airflow_cdc."


def main() -> int:
    """Write every page that differs; return the exit code."""
    for name, page in PAGES.items():
        path, text = FOLDER / name, page()
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"reference: {path.relative_to(ROOT)} is written anew")
    return 0


def _page(title: str, lead: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _ORIGIN, lead, *(part.strip() for part in parts if part.strip())]) + "\n"


# Operators, sensors, triggers, hooks


def operators_page() -> str:
    """Return the page on the classes that a Dag uses."""
    groups = dict(_classes_by_kind())
    listed = [cls for classes in groups.values() for cls in classes]
    shared = sorted({base for cls in listed for base in cls.__mro__[1:] if base.__module__.startswith(_OWN)} - {*listed}, key=_name)
    groups["Base classes"] = shared
    links = {cls.__name__ for classes in groups.values() for cls in classes}
    parts = [f"## {title}\n\n" + "\n\n".join(_class_entry(cls, links) for cls in classes) for title, classes in groups.items() if classes]
    parts.insert(len(_KINDS), "## Decorators\n\n" + "\n\n".join(map(_decorator_entry, get_provider_info()["task-decorators"])))
    lead = (
        "Reference: every class of this provider that a Dag may use, with its own arguments. Arguments of a base class are described "
        "there; those of Airflow's own classes in Airflow's documentation. *Templated* arguments are rendered by Airflow. What sensors "
        "wait for and cost is in [sensors and the watcher](sensors.md)."
    )
    return _page("Operators, sensors, triggers and hooks", lead, *parts)


def _classes_by_kind() -> Iterator[tuple[str, list[type[Any]]]]:
    info = get_provider_info()
    for kind, title in _KINDS:
        modules = [name for entry in info.get(kind, []) for name in entry["python-modules"]]
        found = {cls for name in modules for cls in _public_classes(importlib.import_module(name))}
        yield title, sorted(found, key=_name)


def _public_classes(module: Any) -> Iterator[type[Any]]:
    for name, thing in vars(module).items():
        if inspect.isclass(thing) and thing.__module__ == module.__name__ and name.startswith("Cdc"):
            yield thing


def _name(cls: type[Any]) -> str:
    return cls.__name__


def _class_entry(cls: type[Any], links: set[str]) -> str:
    def linked(text: str) -> str:
        return re.sub(r"`(\w+)`", lambda name: f"[{name[0]}](#{name[1].lower()})" if name[1] in links - {cls.__name__} else name[0], text)

    described = parameters_of(cls)
    parameters = inspect.signature(cls.__init__).parameters if "__init__" in vars(cls) else {}
    rows = [
        (f"`{name}`", _type_of(parameters.get(name)), _default_of(name, parameters.get(name)), linked(_sentence(text)))
        for name, text in described.items()
        if name != "kwargs"
    ]
    parts = [f"### {cls.__name__}", f"`{cls.__module__}.{cls.__name__}`", linked(purpose_of(cls))]
    if rows:
        parts.append(table(("argument", "type", "default", "meaning"), rows))
    if "kwargs" in described:
        parts.append(f"Further arguments: {linked(described['kwargs'])}")
    return "\n\n".join(part for part in parts if part)


def _decorator_entry(entry: Mapping[str, str]) -> str:
    module, _, name = entry["class-name"].rpartition(".")
    function = getattr(importlib.import_module(module), name)
    described = [f"- `{argument}`: {text}" for argument, text in parameters_of(function).items() if argument != "kwargs"]
    further = f"Further arguments: {parameters_of(function)['kwargs']}"
    return "\n\n".join([f"### @task.{entry['name']}", f"`{entry['class-name']}`", purpose_of(function), "\n".join(described), further])


def _sentence(text: str) -> str:
    return (text[:1].upper() + text[1:]).replace("(templated)", "*Templated.*")


def _type_of(parameter: inspect.Parameter | None) -> str:
    if parameter is None or parameter.annotation is parameter.empty:
        return ""
    # A bar would end the table's cell.
    return " or ".join("none" if part.strip() == "None" else f"`{part.strip()}`" for part in str(parameter.annotation).split(" | "))


def _default_of(name: str, parameter: inspect.Parameter | None) -> str:
    if name == "deferrable":
        return "Airflow's `[operators] default_deferrable`"
    if parameter is None:
        return ""
    if parameter.default is parameter.empty:
        return "required"
    return "" if parameter.default is None else f"`{parameter.default!r}`"


# Connections


def connections_page() -> str:
    """Return the page on the connections' fields."""
    lead = (
        "Reference: the fields of this provider's connection types in Airflow's form, by the names under which `extra` holds them. "
        "`airflow connections add NAME --conn-type TYPE --conn-host ROOT --conn-extra JSON` makes one without the form. How storage is "
        "reached: [object stores and HDFS](../how-to/object-stores.md#connections)."
    )
    return _page("Connections", lead, *map(_connection_entry, get_provider_info()["connection-types"]))


def _connection_entry(entry: Mapping[str, Any]) -> str:
    module, _, name = entry["hook-class-name"].rpartition(".")
    hook = getattr(importlib.import_module(module), name)
    behaviour = entry["ui-field-behaviour"]
    host = ("`host`", behaviour["relabeling"]["host"], "text", "", f"Required. Such as `{behaviour['placeholders']['host']}`.")
    rows = [host, *(_field_row(name, field) for name, field in entry["conn-fields"].items())]
    head = f"## {entry['hook-name']}\n\nType `{entry['connection-type']}`, default id `{hook.default_conn_name}`. {purpose_of(hook)}"
    return f"{head}\n\n{table(('field', 'label', 'type', 'default', 'meaning'), rows)}"


def _field_row(name: str, field: Mapping[str, Any]) -> tuple[str, ...]:
    schema = field["schema"]
    kinds = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
    kind = ", ".join(f"`{value}`" for value in schema["enum"]) if "enum" in schema else " or ".join(k for k in kinds if k != "null")
    return (
        f"`{name}`",
        field["label"],
        kind.replace("string", "text"),
        f"`{schema['default']}`" if "default" in schema else "",
        field["description"],
    )


# Errors


def errors_page() -> str:
    """Return the page on the types of errors and the reasons of rejects."""
    # They are known when their modules are.
    importlib.import_module("airflow_cdc.runtime")
    rows = [(f"`{cls.__name__}`", _kind_of_error(cls), _raised(cls)) for cls in sorted(_own_errors(CdcError), key=_name)]
    reasons = [(f"`{reason.value}`", described_members(RejectReason)[reason.name]) for reason in RejectReason]
    lead = (
        "Reference: the types of errors that this package raises on purpose, and the reasons for which a record is rejected. A *terminal* "
        "error fails the task at once; a *transient* one leaves it to Airflow's retries. The [report](report.md#applyreport) has an "
        "error's type, message and next step. What to do is in [when something is red](../how-to/when-something-is-red.md), and by a text "
        "in [errors by their text](../how-to/errors-by-text.md)."
    )
    errors = "## Errors\n\n" + table(("type", "kind", "raised"), rows)
    return _page("Errors and reject reasons", lead, errors, "## Reject reasons\n\n" + table(("reason", "meaning"), reasons))


def _kind_of_error(cls: type[CdcError]) -> str:
    return "transient: retried" if cls.transient else "terminal"


def _raised(cls: type[CdcError]) -> str:
    return _sentence(markdown(cls.__doc__ or "").removeprefix("Raised "))


def _own_errors(root: type[CdcError]) -> Iterator[type[CdcError]]:
    for kind in root.__subclasses__():
        if kind.__module__.startswith(_OWN):
            if kind.__name__ not in {"TerminalError", "TransientError"}:
                yield kind
            yield from _own_errors(kind)


# The command line


def options_page() -> str:
    """Return the page on the options of every command, as its parser declares them."""
    import typer.main

    from airflow_cdc.cli import app

    lead = (
        "Reference: every option of every command, from the parser: the text of `--help` on one page. What the commands print, and their "
        "exit codes, are in [command line](cli.md)."
    )
    return _page("Options of the command line", lead, *map(_command_entry, *zip(*_commands(typer.main.get_command(app)), strict=True)))


def _commands(group: Any, *parents: str) -> Iterator[tuple[str, Any]]:
    for title, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, *parents, title)
        else:
            yield " ".join([*parents, title]), command


def _command_entry(title: str, command: Any) -> str:
    rows = [_option_row(parameter) for parameter in command.params if not getattr(parameter, "hidden", False) and parameter.name != "help"]
    options = table(("option", "type", "default", "meaning"), rows) if rows else ""
    return f"## {title}\n\n{markdown(command.help or '')}\n\n{options}"


def _option_row(parameter: Any) -> tuple[str, str, str, str]:
    is_option = parameter.param_type_name == "option"
    names = ", ".join(f"`{name}`" for name in (parameter.opts if is_option else [parameter.metavar or parameter.name.upper()]))
    default = getattr(parameter, "default", None)
    shown = "" if default in (None, False) or callable(default) else f"`{getattr(default, 'value', default)}`"
    given = getattr(parameter, "envvar", None)
    variable = f" Environment variable `{given}`." if given else ""
    meaning = f"{markdown(parameter.help or '')}{variable}"
    return names, _kind_of_option(parameter), "required" if parameter.required else shown, meaning


def _kind_of_option(parameter: Any) -> str:
    if getattr(parameter, "is_flag", False):
        return "flag"
    kind = parameter.type_descriptor.annotation
    if inspect.isclass(kind) and issubclass(kind, Enum):
        return ", ".join(f"`{member.value}`" for member in kind)
    # That of a list is the kind of its items.
    (kind,) = get_args(kind) or (kind,)
    return {str: "text", int: "whole number", float: "number", Path: "path"}[kind]


# Reports


def schema_document() -> str:
    """Return the JSON Schema of the reports."""
    return json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n"


PAGES: dict[str, Callable[[], str]] = {
    "where-it-runs.md": lambda: _page("Where it runs", LEAD, *where_parts()),
    "operators.md": operators_page,
    "connections.md": connections_page,
    "errors.md": errors_page,
    "options.md": options_page,
    "report.schema.json": schema_document,
}
"""By the file's name in ``docs/reference``: what writes it."""


if __name__ == "__main__":
    sys.exit(main())
