"""What the demo prints."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from airflow_cdc.console import plain
from airflow_cdc.demo.events import Row, SourceTable
from airflow_cdc.demo.stage import Stage
from airflow_cdc.demo.story import AFTERNOON, REASONS, Shop, rows_kept_by_last_event

_MARKS = {"+": "green", "-": "red", "~": "yellow", " ": "dim"}
_LONGEST_CELL = 28


def opening(console: Console, stage: Stage) -> None:
    """Say what will be seen and where it lies."""
    console.rule("[bold]airflow-cdc: archived change events become exact Delta tables[/bold]", align="left")
    for name, path in (("archive", stage.archive), ("lake", stage.lake), ("Dag", stage.dag_file), ("logs", stage.folder / "*.log")):
        console.print(f"  {name:8}[dim]{_short(path)}[/dim]", highlight=False)


def round_begins(console: Console, number: int, what: str, files: list[Path]) -> None:
    """Say which files landed."""
    console.print()
    console.rule(f"[bold]Round {number}:[/bold] {what}", align="left")
    size = sum(file.stat().st_size for file in files) / 1024
    console.print(
        f"  {len(files)} files landed in the archive ({size:,.0f} KiB): SQL Server by a Kafka Connect sink, PostgreSQL as whole records"
    )


def afternoon(console: Console) -> None:
    """Say what happened in the sources since the first round."""
    for table, story in AFTERNOON.items():
        console.print(f"    [cyan]{table:10}[/cyan] {story}", highlight=False)


def tasks(console: Console, ended: Mapping[str, Mapping[str, Any]]) -> None:
    """Say how the Dag's tasks ended."""
    for name, task in sorted(ended.items(), key=lambda item: item[0] != "wait_for_files"):
        good = task["state"] == "success"
        result = task["result"] or {}
        seen = f": saw {result['files']} files of {len(result['topics'])} topics" if "topics" in result else ""
        seconds = f"{task['seconds'] or 0:.1f} s"
        console.print(f"  [{'green' if good else 'red'}]{task['state']}[/] {name}{seen} [dim]({seconds})[/dim]", highlight=False)


def counts(console: Console, result: Mapping[str, Any]) -> None:
    """Show where every event went, as the merge task hands it on."""
    names = [name for name, total in result["events"].items() if total or name in ("read", "merged")]
    table = Table("flow", *names, "rows", "version", box=None, padding=(0, 2), header_style="bold cyan")
    for column in table.columns[1:]:
        column.justify = "right"
    for flow, outcome in result["flows"].items():
        events, rows = outcome.get("events", {}), outcome.get("rows", {})
        changed = f"+{rows.get('inserted', 0)} ~{rows.get('updated', 0)} -{rows.get('deleted', 0)}"
        table.add_row(flow, *[_count(events.get(name, 0)) for name in names], changed, str(outcome.get("table_version", "")))
    console.print(table)
    parts = " + ".join(name for name in names if name != "read")
    console.print(f"  [dim]read = {parts}: no event is lost without a word[/dim]", highlight=False)


def changes(console: Console, shop: Shop, before: Mapping[str, list[Row]], after: Mapping[str, list[Row]]) -> None:
    """Show the small tables row by row, with what changed and why."""
    for table in shop.tables:
        if table is not shop.orders:
            console.print(_changes(table, before[table.topic], after[table.topic]))


def _changes(table: SourceTable, before: list[Row], after: list[Row]) -> Table:
    key = table.keys[0]
    old, new = ({row[key]: row for row in rows} for rows in (before, after))
    columns = [column.name for column in table.columns]
    shown = Table("", *columns, "why", title=table.topic, title_justify="left", title_style="bold", header_style="bold cyan")
    for value in sorted(old.keys() | new.keys()):
        mark = "+" if value not in old else "-" if value not in new else " " if old[value] == new[value] else "~"
        cells = [_cell(old.get(value, {}).get(name), new.get(value, {}).get(name), mark) for name in columns]
        shown.add_row(Text(mark), *cells, Text(REASONS.get((table.name, value), "")), style=_MARKS[mark])
    return shown


def _cell(old: Any, new: Any, mark: str) -> Text:
    if mark == "~" and old != new:
        return Text.assemble((_text(old), "dim strike"), " ", (_text(new), "bold yellow"))
    return Text(_text(old if mark == "-" else new))


def quarantine(console: Console, records: list[Row]) -> None:
    """Show what was set aside."""
    for record in records:
        place = f"{record['file']}, line {record['line']}"
        console.print(f"  Set aside in the quarantine: [yellow]{record['reason']}[/yellow] of {record['flow']}, {place}", highlight=False)
        console.print(f"    {record['raw'][:100]}…", style="dim", markup=False, highlight=False, no_wrap=True)


def compared(console: Console, lake: Mapping[str, list[Row]], source: Mapping[str, list[Row]]) -> bool:
    """Compare every table with its source's rows, value by value; return whether all are equal."""
    different = [topic for topic in source if _bag(lake[topic]) != _bag(source[topic])]
    for topic in different:
        found, expected = _bag(lake[topic]), _bag(source[topic])
        console.print(f"  [red]{topic} is not as its source:[/red]", highlight=False)
        for name, rows in (("only in the lake", found - expected), ("only in the source", expected - found)):
            for row in sorted(rows)[:3]:
                console.print(f"    {name}: {row}", markup=False, highlight=False)
    equal = len(source) - len(different)
    total = sum(map(len, source.values()))
    style = "red" if different else "green"
    console.print(
        f"  [{style}]{equal} of {len(source)} tables are equal to their sources, value by value[/] ({total} rows)", highlight=False
    )
    return not different


def last_event_per_key(console: Console, shop: Shop) -> None:
    """Say what the usual merge would have made of the moved keys."""
    kept, rows = rows_kept_by_last_event(shop.queue), len(shop.queue.rows)
    console.print(
        f"  Taking each key's last event, as is common, would have left {kept} of the {rows} rows of {shop.queue.topic}.", highlight=False
    )


def closing(console: Console, stage: Stage, seconds: float) -> None:
    """Say where to look on."""
    lake = _short(stage.lake)
    console.print()
    console.rule(f"[bold]Done[/bold] in {seconds:.0f} s", align="left")
    for command in (
        f"airflow-cdc tables --lake {lake}",
        f"airflow-cdc show pg.public.queue --lake {lake}",
        f"airflow-cdc quarantine list --lake {lake}",
    ):
        console.print(f"  {command}", style="bold", highlight=False)


def _count(value: int) -> str:
    return f"{value:,}" if value else "·"


def _text(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _bag(rows: list[Row]) -> set[str]:
    return set(_lines(rows))


def _lines(rows: list[Row]) -> Iterator[str]:
    for row in rows:
        yield json.dumps(plain(row), ensure_ascii=False, sort_keys=True)


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
