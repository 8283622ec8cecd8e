"""Output of ``airflow-cdc schema`` for people."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from rich.text import Text

from airflow_cdc.console import stdout_console, table
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.flow.source_schema import SourceSchema

if TYPE_CHECKING:
    from airflow_cdc.pipeline.upkeep.import_schemas import ImportedSchema, SchemaImport
    from airflow_cdc.pipeline.upkeep.show_schema import ShownSchema

_UNKNOWN = "unknown"
_SHOWN = 20


def print_import(done: SchemaImport, lake: str, *, dry_run: bool) -> None:
    """Print each flow's schema, what was left aside and why, and the next step."""
    columns = ("flow", "connector", "columns", "known", "unknown", "key", "against the one before")
    rows = [_row(each) for each in done.schemas]
    title = f"Schemas that would be handed over to {lake}" if dry_run else f"Schemas handed over to {lake}"
    console = stdout_console()
    console.print(table(title, columns, rows, right=("columns", "known")))
    for each in done.aside[:_SHOWN]:
        _line(f"left aside: {printable(each.what)}: {printable(each.reason)}")
    if len(done.aside) > _SHOWN:
        _line(f"left aside: {len(done.aside) - _SHOWN:,} more, which --json lists")
    for line in _hints(done.schemas):
        _line(line)
    if dry_run:
        _line("Nothing was written. Next step: the same without --dry-run.")
    else:
        _line(f'Next step: airflow-cdc apply --archive … --lake "{lake}"')


def _row(each: ImportedSchema) -> list[object]:
    schema, unknown = each.schema, each.unknown
    changes = "first one" if each.changes is None else "\n".join(map(printable, each.changes)) or "the same"
    return [
        printable(schema.flow),
        schema.connector or _UNKNOWN,
        len(schema.columns),
        len(schema.columns) - len(unknown),
        Text(printable(", ".join(unknown)) or "-"),
        printable(", ".join(schema.keys)) or _UNKNOWN,
        Text(changes),
    ]


def _hints(schemas: Iterable[ImportedSchema]) -> Iterable[str]:
    for each in schemas:
        flow = printable(each.schema.flow)
        if not each.in_archive:
            yield f"{flow}: no archive of this lake has a topic of that name; name another one by --flow."
        if each.table:
            yield f"{flow} has a table already: columns that would be read otherwise keep their types until airflow-cdc retype {flow}."


def print_schema(found: ShownSchema) -> None:
    """Print a flow's known columns, one line each."""
    rows = [
        [printable(name), known.sql_type, known.spelled or "-", known.origin.value, Text(known.doubt)]
        for name, known in found.settled.items()
    ]
    if rows:
        columns = ("column", "type", "spelled", "from", "in doubt")
        stdout_console().print(table(f"Types of {printable(found.flow)}", columns, rows))
    elif found.handed_over is None:
        _line("No run has settled a column yet, and no event that was looked into carries its schema.")
    if found.handed_over:
        _print_handed_over(found.handed_over)


def _print_handed_over(schema: SourceSchema) -> None:
    from airflow_cdc.pipeline.upkeep.import_schemas import becomes, connect_word

    rows = [
        [
            printable(column.name),
            column.native or "-",
            connect_word(column.field) or _UNKNOWN,
            becomes(column, schema.connector) or _UNKNOWN,
        ]
        for column in schema.columns
    ]
    title = f"Schema of {printable(schema.flow)}, as it was handed over"
    stdout_console().print(table(title, ("column", "database's type", "Connect type", "becomes"), rows))
    facts = {"key": ", ".join(schema.keys), "connector": schema.connector, "from": schema.origin, "settings": _settings(schema)}
    for name, fact in facts.items():
        if fact:
            _line(f"{name}: {printable(fact)}")


def _settings(schema: SourceSchema) -> str:
    return ", ".join(f"{name}={value}" for name, value in schema.settings.items())


def _line(text: str) -> None:
    stdout_console().print(text, markup=False, highlight=False, soft_wrap=True)
