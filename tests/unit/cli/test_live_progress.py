"""Live progress: a line per flow on a terminal, and nothing elsewhere."""

from __future__ import annotations

import io

from rich.console import Console
from rich.progress import Progress

from airflow_cdc.live_progress import LiveProgress, live_progress
from airflow_cdc.pipeline.run.step import BEGUN, DONE, ENDED, Step


def test_a_line_has_stage_files_records_rate_and_how_much_is_left() -> None:
    now = [0.0]
    progress = Progress(console=Console(file=io.StringIO()))
    live = LiveProgress(progress, clock=lambda: now[0])
    live.show(Step("a.b", BEGUN, 1, files=2, bytes=30, records=60, pending_bytes=90))
    (task,) = progress.tasks
    assert (task.fields["flow"], task.fields["stage"], task.completed, task.total) == ("a.b", "planned 1", 0, 90)
    live.show(Step("a.b", "intent", 1))
    assert task.fields["stage"] == "reading 1"
    now[0] = 2.0
    live.show(Step("a.b", DONE, 1, files=2, bytes=30, records=60))
    assert (task.completed, task.total) == (30, 90)
    assert [task.fields[name] for name in ("stage", "files", "records", "rate")] == ["committed 1", "2 files", "60 records", "30/s"]
    live.show(Step("a.b", BEGUN, 2, files=1, bytes=60, records=9, pending_bytes=60))
    assert (task.completed, task.total) == (30, 90)
    live.show(Step("c", BEGUN, 1, files=1, bytes=5, records=1, pending_bytes=5))
    live.show(Step("a.b", ENDED))
    assert [each.finished for each in progress.tasks] == [True, False]


def test_a_terminal_shows_it_with_the_runs_lines_above() -> None:
    screen = io.StringIO()
    console = Console(file=screen, force_terminal=True, width=160)
    with live_progress(console) as watch:
        watch(Step("pg.public.carts", BEGUN, 1, files=2, bytes=30, records=60, pending_bytes=30))
        console.print("a line of the run")
        watch(Step("pg.public.carts", DONE, 1, files=2, bytes=30, records=60))
        watch(Step("pg.public.carts", ENDED))
    shown = screen.getvalue()
    assert "a line of the run" in shown
    assert "pg.public.carts" in shown
    assert "60 records" in shown


def test_elsewhere_nothing_is_added_to_the_runs_lines() -> None:
    screen = io.StringIO()
    with live_progress(Console(file=screen)) as watch:
        watch(Step("a", BEGUN, 1, pending_bytes=1))
    assert screen.getvalue() == ""
