"""Print a result as a table and keep it: JSON and a plot under ``results/``."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure
from rich.console import Console
from rich.table import Table

from benchmarks.measure import Result, Taken

RESULTS = Path(__file__).parent / "results"
_WIDTH = 140
"""Of tables that are printed to no terminal, in characters."""


def report(result: Result, *, size: str = "", folder: Path = RESULTS) -> None:
    """Print a result and keep it in a folder.

    :param size: named in the files where it is not the whole size.
    """
    console = _console()
    console.print(_table(result))
    for name, why in result.void_rows.items():
        console.print(f"[red]VOID[/red] {name}: {why}")
    if result.void:
        console.print(f"[red]VOID[/red]: {result.void}")
    for verdict in result.verdicts():
        mark = "[green]met[/green]" if verdict["met"] else "[yellow]not met[/yellow]"
        reach = f", reach for {_short(verdict['reach'])}" if verdict.get("reach") else ""
        console.print(
            f"  {verdict['what']} at most {_short(verdict['at_most'])}{reach}: {_short(verdict['found'])} {mark}", highlight=False
        )
    for name, fact in result.facts.items():
        if not isinstance(fact, dict):
            console.print(f"  {name}: {fact}", highlight=False)
    folder.mkdir(parents=True, exist_ok=True)
    stem = f"{result.scenario}-{size}" if size else result.scenario
    (folder / f"{stem}.json").write_text(json.dumps(_document(result), indent=1) + "\n", encoding="utf-8")
    _plot(result, folder / f"{stem}.svg")


def report_aims(results: Sequence[Result]) -> None:
    """Print once more what is aimed at in each of the scenarios, and whether it was met."""
    table = Table(title="What is aimed at, and what was found", title_justify="left")
    for heading in ("scenario", "of what", "at most", "is", ""):
        table.add_column(heading, justify="right" if heading in ("at most", "is") else "left")
    for result in results:
        void = "void" if result.void else ""
        for verdict in result.verdicts():
            met = "met" if verdict["met"] else "not met"
            table.add_row(result.scenario, verdict["what"], _short(verdict["at_most"]), _short(verdict["found"]), void or met)
    _console().print(table)


def _console() -> Console:
    return Console(width=None if sys.stdout.isatty() else _WIDTH)


def _short(figure: float) -> str:
    """Return a ratio, seconds or a count in few digits: a thirtieth must not look like nothing."""
    return f"{figure:,.2f}" if figure >= 0.1 else f"{figure:.3f}"


def _table(result: Result) -> Table:
    table = Table(title=result.title, title_justify="left")
    ratios = [("CPU", "cpu", result.against), ("wall", "wall", result.against), *([("CPU", "cpu", result.limit)] if result.limit else [])]
    # Of chosen contestants the one that others are held against may not be one.
    ratios = [ratio for ratio in ratios if ratio[2] in result.taken]
    headings = ["", "CPU s", "wall s", "peak GB", "MB written", "files", *(f"{word} / {other}" for word, _, other in ratios)]
    for heading in headings:
        table.add_column(heading, justify="right" if heading else "left", no_wrap=not heading)
    for name, taken in result.taken.items():
        peak = max(item.peak for item in taken) / 1e9
        written, touched = _most(taken, lambda item: item.bytes_written), _most(taken, lambda item: item.files_touched)
        figures = [f"{result.median(name, 'cpu'):.2f}", f"{result.median(name, 'wall'):.2f}", f"{peak:.1f}"]
        figures += ["" if written is None else f"{written / 1e6:.1f}", "" if touched is None else str(touched)]
        compared = [f"{result.ratio(name, figure, other):.2f}" for _, figure, other in ratios]
        table.add_row(f"{name} VOID" if name in result.void_rows else name, *figures, *compared)
    return table


def _most(taken: list[Taken], figure: Callable[[Taken], int | None]) -> int | None:
    return max((value for value in map(figure, taken) if value is not None), default=None)


def _document(result: Result) -> dict[str, Any]:
    return {
        "scenario": result.title,
        "medians": {name: {figure: round(result.median(name, figure), 3) for figure in ("cpu", "wall")} for name in result.taken},
        "budgets": result.verdicts(),
        "runs": {name: [asdict(item) for item in taken] for name, taken in result.taken.items()},
        "facts": result.facts,
        "void": result.void,
        "void_rows": result.void_rows,
    }


def _plot(result: Result, path: Path) -> None:
    """Draw the medians of CPU and wall seconds as bars, one pair a contestant, each run as a dot."""
    names = list(result.taken)[::-1]
    figure = Figure(figsize=(8, 1.2 + 0.5 * len(names)), layout="constrained")
    axes = figure.subplots()
    for place, (kind, colour) in enumerate((("wall", "#b8c4d6"), ("cpu", "#2f5d8a"))):
        heights = [row + 0.4 * place - 0.2 for row in range(len(names))]
        axes.barh(heights, [result.median(name, kind) for name in names], height=0.38, color=colour, label=f"{kind} seconds (median)")
        for height, name in zip(heights, names, strict=True):
            axes.plot([getattr(item, kind) for item in result.taken[name]], [height] * len(result.taken[name]), "k.", markersize=3)
    axes.set_yticks(range(len(names)), [f"{name} (void)" if name in result.void_rows else name for name in names])
    axes.set_xlim(left=0)
    axes.set_title(result.title, fontsize=9, loc="left")
    axes.legend(fontsize=8)
    # Without a date in it the file changes only with the figures.
    figure.savefig(path, metadata={"Date": None})
