"""``airflow-cdc inspect``: what an archive holds, without a lake."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from airflow_cdc.cli_common import AsJson, Globs, usage
from airflow_cdc.console import print_json, stdout_console, table
from airflow_cdc.model.archive.topics import printable
from airflow_cdc.model.files import absolute_uri

if TYPE_CHECKING:
    from collections.abc import Iterator

    from airflow_cdc.pipeline.look.inspect_archive import ArchiveFound, TopicFound

ArchiveArgument = Annotated[str, typer.Argument(metavar="ARCHIVE", help="Root URI of the archive.", callback=absolute_uri)]
_MOST_LINES = 20


def inspect(
    archive: ArchiveArgument,
    tables: Globs = None,
    samples: Annotated[bool, typer.Option("--samples", help="Print one event of each topic as archived.")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what an archive holds: topics, connectors, columns, spans, gaps, repeated offsets, schema changes. Needs no lake and no Spark.

    Exit code 0 also where some files were not read, 2 on usage and for an archive that is not there.
    """
    from airflow_cdc.pipeline.look.inspect_archive import inspect_archive

    with usage():
        found = inspect_archive(archive, tables or ())
    if as_json:
        print_json(found.to_json())
        return
    console = stdout_console()
    columns = ("topic", "connector", "files", "MiB", "records", "kinds", "key", "columns", "offsets", "missing", "repeated", "types")
    rows = [_cells(topic) for topic in found.topics]
    title = f"Archive {archive}: {found.files:,} files, {len(found.topics):,} topics"
    console.print(table(title, columns, rows, right=("files", "MiB", "records", "missing", "repeated")))
    for line in _lines(found):
        console.print(printable(line), markup=False, highlight=False, soft_wrap=True)
    for topic in found.topics if samples else ():
        console.print(f"{topic.topic}: {topic.sample or 'no event'}", markup=False, highlight=False, soft_wrap=True)


def _cells(topic: TopicFound) -> list[Any]:
    spans = (f"{partition}: {first}–{last}" for partition, (first, last) in topic.offsets.items())
    return [
        topic.topic,
        "control records" if topic.is_control else ", ".join(topic.connectors) or "not named",
        topic.files,
        Text(f"{topic.bytes / 1024**2:.1f}"),
        topic.records,
        " ".join(f"{kind}:{count}" for kind, count in topic.kinds.items()),
        ", ".join(topic.keys) or "-",
        Text(str(len(topic.columns))),
        Text("\n".join(spans) or "not recorded"),
        topic.missing,
        topic.repeated,
        "-" if topic.is_control else "in the events" if topic.has_types else "not in the events",
    ]


def _lines(found: ArchiveFound) -> Iterator[str]:
    for topic in found.topics:
        yield from (f"{gap}" for gap in topic.gaps)
        for overlap in topic.overlaps:
            yield f"topic {topic.topic}, partition {overlap.partition}: offsets {overlap.first}–{overlap.last} come again in {overlap.file}"
        for change in topic.changes:
            parts = (("added", change.added), ("removed", change.removed), ("of another type", change.retyped))
            yield f"topic {topic.topic}: from {change.file} on: " + "; ".join(
                f"{what} {', '.join(names)}" for what, names in parts if names
            )
    yield from _some("left aside, no data by its name", dict.fromkeys(found.ignored, ""))
    yield from _some("not read", found.unread)
    if found.unread:
        yield f'to survey these by Spark: airflow-cdc apply --archive "{found.archive}" --lake LAKE, with a new folder as LAKE'


def _some(title: str, files: Any) -> Iterator[str]:
    for path, reason in list(files.items())[:_MOST_LINES]:
        yield f"{title}: {path}" + (f": {reason}" if reason else "")
    if len(files) > _MOST_LINES:
        yield f"{title}: {len(files) - _MOST_LINES} more"
