"""The first files of a project: flows file, settings of its Dags, and the Dag file, from what an archive holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from airflow_cdc.model.archive.topics import printable

if TYPE_CHECKING:
    from airflow_cdc.pipeline.look.inspect_archive import ArchiveFound, TopicFound

FLOWS, SETTINGS, DAG = "flows.yaml", "airflow_cdc.yaml", "cdc_tables.py"
_MOST_NAMED = 5

_DAG = '''"""Apply archived change events to Delta tables by the Dags that ``airflow_cdc.yaml`` asks for, beside this file."""

from __future__ import annotations

from pathlib import Path

from airflow_cdc.dag_factory import cdc_dags

globals().update(cdc_dags(Path(__file__).with_name("airflow_cdc.yaml")))
'''

_SETTINGS = """# The Dags of cdc_tables.py beside this file. Every setting: docs/reference/dags-file.md
archive_conn_id: cdc_archive_default
lake_conn_id: cdc_lake_default
spark_conn_id: spark_default
# A path or URL that the job's driver reaches.
flows_file: {flows}

defaults:
  schedule: "*/10 * * * *"
  retries: 2

dags:
- dag_id: cdc_tables
  tables: ["*"]
"""


def starter_files(found: ArchiveFound, folder: Path) -> dict[Path, str]:
    """Return the files' texts by path.

    :param folder: where they are to lie.
    """
    return {
        folder / FLOWS: flows_text(found),
        folder / SETTINGS: _SETTINGS.format(flows=_quoted(str(folder / FLOWS))),
        folder / DAG: _DAG,
    }


def flows_text(found: ArchiveFound) -> str:
    """Return a flows file with one entry for each topic that carries rows."""
    tables = [topic for topic in found.topics if not topic.is_control]
    control = [topic.topic for topic in found.topics if topic.is_control]
    lines = [f"# The flows of archive {printable(found.archive)}. Every setting: docs/reference/flows-file.md"]
    lines += [f"# No tables, and needs no entry: {name}" for name in control]
    lines += ["flows:", *(line for topic in tables for line in _flow(topic))] if tables else ["flows: []"]
    return "\n".join(lines) + "\n"


def _flow(topic: TopicFound) -> Iterator[str]:
    yield f"- topic: {_quoted(topic.topic)}"
    if topic.keys:
        yield f"  # keys: {json.dumps(list(topic.keys), ensure_ascii=False)}   as the records' keys name them"
    else:
        yield "  # The records have no key. Name its columns here, or the table is one without a key."
        yield "  # keys: []"
    if not topic.has_types and topic.columns:
        yield "  # The events carry no types. Declare those that JSON does not show, or use airflow-cdc schema pull or import."
        yield "  # columns:"
        for name in topic.columns:
            yield f"  #   {_quoted(name)}:"
    if len(topic.tables) > 1:
        yield f"  # Several tables share the topic: {', '.join(topic.tables)}"
        yield "  # table_column:"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def unknowns(found: ArchiveFound) -> Iterator[str]:
    """Yield what the archive did not show, and what to do about each."""
    tables = [topic for topic in found.topics if not topic.is_control]
    has_changes = any("schema_change" in topic.kinds for topic in found.topics)
    if not tables:
        yield "no topic with rows of a table was found; a run surveys by Spark what was not read here"
    yield from _of("keys: the records have none; name the columns in flows.yaml", [topic for topic in tables if not topic.keys])
    types = "the schema-change topic may supply them, otherwise " if has_changes else ""
    untyped = [topic for topic in tables if not topic.has_types and topic.columns]
    yield from _of(f"types: the events carry none; {types}declare them, or use airflow-cdc schema pull or import", untyped)
    yield from _of("the source: no record names its connector", [topic for topic in tables if not topic.connectors])
    yield from _of("the source: the records name several connectors", [topic for topic in tables if len(topic.connectors) > 1])
    yield from _of(
        "rows from before the first event: no snapshot read is in the archive", [topic for topic in tables if not topic.kinds.get("r")]
    )
    yield from _of(
        "whether the snapshot is complete: a run proves it, and its report shows it", [topic for topic in tables if topic.kinds.get("r")]
    )
    yield from _of("offsets: some are missing; on_gap decides what a run does", [topic for topic in tables if topic.missing])
    yield from _of("offsets: the archive records none, so nothing shows what is missing", [topic for topic in tables if not topic.offsets])
    yield from _of("broken lines: they will be in the quarantine", [topic for topic in tables if topic.kinds.get("malformed")])
    if found.unread:
        yield f"{len(found.unread)} files were not read, so topics may lack here: airflow-cdc inspect names each with the reason"


def _of(what: str, topics: list[TopicFound]) -> Iterator[str]:
    if topics:
        named = ", ".join(topic.topic for topic in topics[:_MOST_NAMED])
        more = f" and {len(topics) - _MOST_NAMED} more" if len(topics) > _MOST_NAMED else ""
        yield f"{what} ({named}{more})"
