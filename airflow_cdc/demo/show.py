"""What the demo prints."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from airflow_cdc.console import plain
from airflow_cdc.demo.events import Row, SourceTable
from airflow_cdc.demo.stage import Stage
from airflow_cdc.demo.story import AFTERNOON, REASONS, Shop, rows_kept_by_last_event

_MARKS = {"+": "green", "-": "red", "~": "yellow", " ": "dim"}
_LONGEST_CELL = 24
_ROWS_NAMED = 3


def opening(console: Console, stage: Stage) -> None:
    """Introduce the demo and its folders."""
    _headline(console, "airflow-cdc: archived change events become exact Delta tables")
    places = {"archive": stage.archive, "lake": stage.lake, "Dag": stage.dag_file, "logs": stage.folder / "*.log"}
    _print(console, _grid((name, Text(_short(path), style="dim")) for name, path in places.items()))


def round_begins(console: Console, number: int, what: str, files: list[Path]) -> None:
    """Show which files landed."""
    console.print()
    _headline(console, f"Round {number}: {what}")
    size = sum(file.stat().st_size for file in files) / 1024
    _print(console, f"{len(files)} files landed ({size:,.0f} KiB): SQL Server's by a Kafka Connect sink, PostgreSQL's as whole records")


def afternoon(console: Console) -> None:
    """Show the sources' changes since the first round."""
    _print(console, _grid(AFTERNOON.items()))


def tasks(console: Console, ended: Mapping[str, Mapping[str, Any]]) -> None:
    """Show how the Dag's tasks ended."""
    for name, task in sorted(ended.items(), key=lambda item: item[0] != "wait_for_files"):
        result = task["result"] or {}
        seen = f": {result['files']} files of {len(result['topics'])} topics wait" if "topics" in result else ""
        state = Text(task["state"], style="green" if task["state"] == "success" else "red")
        _print(console, Text.assemble("Airflow task ", (name, "bold"), seen, ": ", state, (f" ({task['seconds'] or 0:.1f} s)", "dim")))


def counts(console: Console, shop: Shop, result: Mapping[str, Any]) -> None:
    """Show the outcome of every event, from the merge task's result."""
    names = [name for name, total in result["events"].items() if total or name in ("read", "merged")]
    shown = Table(box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold cyan")
    shown.add_column("table", no_wrap=True)
    for name in names:
        shown.add_column(name, justify="right", overflow="fold")
    shown.add_column("rows", justify="right", no_wrap=True)
    shown.add_column("engine", no_wrap=True)
    for table in shop.tables:
        outcome = result["flows"][table.topic]
        rows = outcome["rows"]
        changed = f"+{rows['inserted']} ~{rows['updated']} -{rows['deleted']}"
        shown.add_row(table.name, *[_count(outcome["events"][name]) for name in names], changed, ", ".join(outcome["engines"]))
    console.print()
    _print(console, shown)
    console.print()
    parts = " + ".join(name for name in names if name != "read")
    _print(console, Text(f"No event is lost without a word: read = {parts}", style="dim"))


def changes(console: Console, shop: Shop, before: Mapping[str, list[Row]], after: Mapping[str, list[Row]]) -> None:
    """Show the small tables row by row, with each change and its reason."""
    for table in shop.tables:
        if table is not shop.orders:
            console.print()
            _print(console, Text(table.topic, style="bold"))
            _print(console, _changes(table, before[table.topic], after[table.topic]))


def _changes(table: SourceTable, before: list[Row], after: list[Row]) -> Table:
    key = table.keys[0]
    old, new = ({row[key]: row for row in rows} for rows in (before, after))
    columns = [column.name for column in table.columns]
    shown = Table("", *columns, "why", box=box.SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), header_style="bold cyan")
    for value in sorted(old.keys() | new.keys()):
        mark = "+" if value not in old else "-" if value not in new else " " if old[value] == new[value] else "~"
        cells = [_cell(old.get(value, {}).get(name), new.get(value, {}).get(name), mark) for name in columns]
        shown.add_row(Text(mark), *cells, Text(REASONS.get((table.name, value), "")), style=_MARKS[mark])
    return shown


def _cell(old: Any, new: Any, mark: str) -> Text:
    if mark == "~" and old != new:
        return Text.assemble((_text(old), "dim"), (" → ", "dim"), (_text(new), "bold"))
    return Text(_text(old if mark == "-" else new))


def quarantine(console: Console, records: list[Row]) -> None:
    """Show the quarantined records."""
    for record in records:
        console.print()
        place = f"line {record['line']} of {record['file']}"
        _print(console, Text.assemble("In the quarantine: ", (record["reason"], "yellow"), f", {place}:"))
        raw = record["raw"]
        _print(console, Text(f"{raw[:44]} … {raw[-44:]}", style="dim"))


def compared(console: Console, lake: Mapping[str, list[Row]], source: Mapping[str, list[Row]]) -> bool:
    """Compare every table with its source's rows by value; return whether all are equal."""
    different = [topic for topic in source if _bag(lake[topic]) != _bag(source[topic])]
    for topic in different:
        _print(console, Text(f"{topic} is not as its source:", style="red"))
        found, expected = _bag(lake[topic]), _bag(source[topic])
        for name, rows in (("only in the lake", found - expected), ("only in the source", expected - found)):
            for row in sorted(rows)[:_ROWS_NAMED]:
                _print(console, Text(f"  {name}: {row}"))
    equal, total = len(source) - len(different), sum(map(len, source.values()))
    verdict = f"{equal} of {len(source)} tables, read by delta-rs, are equal to their sources, value by value ({total} rows)"
    _print(console, Text(verdict, style="bold red" if different else "bold green"))
    return not different


def last_event_per_key(console: Console, shop: Shop) -> None:
    """Show how many rows a merge by each key's last event would have kept."""
    kept, rows = rows_kept_by_last_event(shop.queue), len(shop.queue.rows)
    _print(console, f"Taking each key's last event, as is common, would have left {kept} of the {rows} rows of {shop.queue.topic}.")


def closing(console: Console, stage: Stage, seconds: float) -> None:
    """Show the commands to continue with."""
    lake = _short(stage.lake)
    console.print()
    _headline(console, f"Done in {seconds:.0f} s. Look on:")
    activate = Path(sys.prefix, "bin", "activate")
    if shutil.which("airflow-cdc") is None and activate.exists():
        _print(console, Text(f". {_short(activate)}", style="bold"))
    for command in ("tables", "show pg.public.queue", "quarantine list"):
        _print(console, Text(f"airflow-cdc {command} --lake {lake}", style="bold"))
    _print(console, Text(f"airflow-cdc page --lake {lake}", style="bold"))


def _headline(console: Console, text: str) -> None:
    console.rule(Text(text, style="bold"), align="left")


def _print(console: Console, what: RenderableType) -> None:
    console.print(Padding(what, (0, 0, 0, 2)), highlight=False)


def _grid(rows: Any) -> Table:
    grid = Table.grid(padding=(0, 2))
    for name, value in rows:
        grid.add_row(Text(name, style="cyan"), value)
    return grid


def _count(value: int) -> str:
    return f"{value:,}" if value else "·"


def _text(value: Any) -> str:
    text = "NULL" if value is None else str(value)
    return text if len(text) <= _LONGEST_CELL else f"{text[: _LONGEST_CELL - 1]}…"


def _bag(rows: list[Row]) -> set[str]:
    return {json.dumps(plain(row), ensure_ascii=False, sort_keys=True) for row in rows}


def _short(path: Path) -> str:
    return str(path.relative_to(Path.cwd())) if path.is_relative_to(Path.cwd()) else str(path)
