"""Output of ``airflow-cdc quarantine`` for people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.text import Text

from airflow_cdc.console import shown_of, stdout_console, table
from airflow_cdc.model.archive.topics import printable

if TYPE_CHECKING:
    from airflow_cdc.pipeline.look.quarantined import QuarantineGroup


def print_groups(groups: Sequence[QuarantineGroup], lake: str, limit: int) -> None:
    """Print groups of records, the largest first, each with its first record."""
    shown = groups[:limit]
    total = sum(group.records for group in groups)
    columns = ("flow", "reason", "column", "records", "first at", "seen")
    rows = [
        [group.flow, group.reason, group.column or "-", group.records, _place(group.example), group.example["detail"] or "-"]
        for group in shown
    ]
    title = f"Quarantine of {lake} ({shown_of(total, total, 'records')}, {shown_of(len(shown), len(groups), 'groups')})"
    console = stdout_console()
    console.print(table(title, columns, [[_printable(cell) for cell in row] for row in rows], right=("records",)))
    if len(shown) < len(groups):
        _line(f"Next step: --limit {len(groups)} shows all groups, --all every record.")
    if shown and shown[0].flow:
        _line(f'Next step: airflow-cdc quarantine show "{printable(shown[0].flow)}" --lake "{lake}" shows the raw text.')


def print_records(records: Sequence[Mapping[str, Any]], lake: str) -> None:
    """Print one line per record."""
    columns = ("flow", "microbatch", "reason", "detail", "file", "line", "offset")
    rows = [[_printable(record[column]) for column in columns] for record in records]
    title = f"Quarantine of {lake} ({shown_of(len(records), len(records), 'records')})"
    stdout_console().print(table(title, columns, rows, right=("microbatch", "line", "offset"), data=True))


def print_raw(records: Sequence[Mapping[str, Any]], flow: str, total: int) -> None:
    """Print a flow's records with their raw text.

    :param total: number of records, shown or not.
    """
    console = stdout_console()
    for record in records:
        console.print(Text.assemble((record["reason"], "bold"), f" {_place(record)} (microbatch {record['microbatch']})"))
        console.print(record["detail"] or "", highlight=False, markup=False)
        console.print(record["raw"], highlight=False, markup=False, style="dim")
    hint = "; --all shows every one" if len(records) < total else ""
    _line(f"{printable(flow)}: {shown_of(len(records), total, 'records')} in the quarantine{hint}")


def _place(record: Mapping[str, Any]) -> str:
    return f"{record['file']}:{record['line']}"


def _printable(cell: Any) -> Any:
    # A record's own names may hold any character.
    return printable(cell) if isinstance(cell, str) else cell


def _line(text: str) -> None:
    stdout_console().print(text, markup=False, highlight=False, soft_wrap=True)
