"""``airflow-cdc key``: the story of one row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from airflow_cdc.cli_common import AsJson, Flow, Lake, usage
from airflow_cdc.console import plain, print_json, stdout_console, table

if TYPE_CHECKING:
    from airflow_cdc.pipeline.look.story import KeyStory, StoryEvent

_OPERATIONS = {"r": "read", "c": "create", "u": "update", "d": "delete", None: "tombstone"}
_STYLE = {"merged": "green", "rejected": "red", "stale": "yellow", "held": "yellow", "unclear": "magenta"}
_LONGEST_VALUE = 40


def key(
    flow: Flow,
    key: Annotated[str, typer.Argument(metavar="KEY", help="Value of the key column; of several: column=value,column=value, or JSON.")],
    lake: Lake,
    as_json: AsJson = False,
) -> None:
    """Show why a row is as it is: the key's archived events in order, what became of each and why, and the row today. Starts no Spark.

    Exit code 0 whether there are any or not, 1 when the state cannot be read, 2 on usage and for a flow that the lake does not know.
    """
    from airflow_cdc.pipeline.look.key_story import key_story

    with usage():
        story = key_story(lake, flow, key)
    if as_json:
        print_json(story.to_json())
        return
    console = stdout_console()
    columns = ("", "position", "operation", "transaction", "microbatch", "what became of it", "why", "changed")
    rows = [_cells(number, event) for number, event in enumerate(story.events)]
    named = ", ".join(f"{name}={value}" for name, value in story.key.items())
    console.print(table(f"{flow}, {named}: {len(story.events)} archived events", columns, rows))
    for line in _lines(story):
        console.print(line, markup=False, highlight=False, soft_wrap=True)


def _cells(number: int, event: StoryEvent) -> list[Any]:
    judged = event.judged
    why = judged.why + (f" (event {judged.by + 1})" if judged.by is not None else "")
    changes = (f"{change.column}: {_short(change.before)} → {_short(change.after)}" for change in event.changes)
    return [
        Text(str(number + 1)),
        Text(event.spelled or "-"),
        Text(_OPERATIONS.get(event.op, str(event.op))),
        Text(event.transaction or "-"),
        Text(", ".join(map(str, event.microbatches)) or "-"),
        Text(judged.outcome.value, style=_STYLE.get(judged.outcome.value, "")),
        Text(why if judged.is_proven else f"{why}; by the order of events"),
        Text("\n".join(changes)),
    ]


def _short(value: Any) -> str:
    text = "NULL" if value is None else str(plain(value))
    return text if len(text) <= _LONGEST_VALUE else text[: _LONGEST_VALUE - 1] + "…"


def _lines(story: KeyStory) -> list[str]:
    lines = [f"row {'today' if row.is_live else 'of the past'}: {_row(row.values)} (microbatch {row.microbatch})" for row in story.rows]
    lines = lines or ["row today: none"]
    lines += [f"delete marker: written by microbatch {marker.microbatch}" for marker in story.deleted]
    lines += [f"microbatch {each.microbatch} removed the rows before the {each.what} at {each.spelled}" for each in story.removals]
    lines += [f"not searched: {path}: {reason}" for path, reason in story.unread.items()]
    return [*lines, *(f"note: {note}" for note in story.notes)]


def _row(values: Any) -> str:
    return ", ".join(f"{name}={_short(value)}" for name, value in values.items())
