"""What of a lake's flows needs a person's look, by their state alone: no table is opened, no archive listed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta, timezone

from airflow_cdc.model.errors import CdcError
from airflow_cdc.model.files import FileSystem
from airflow_cdc.model.flow.new_topics import HeldTopic
from airflow_cdc.model.globs import matches_any
from airflow_cdc.model.look.standing import ArchiveLook, look_at, stop_of
from airflow_cdc.model.report.findings import Finding, FindingKind
from airflow_cdc.model.report.health import held_findings
from airflow_cdc.model.state.comparison import FlowComparisons
from airflow_cdc.model.state.lake import FlowState, archives_in, flows_in

_RECENT = timedelta(days=2)


def findings_of_lake(fs: FileSystem, root: str, tables: Iterable[str] = ()) -> Iterator[Finding]:
    """Yield what stops flows, and what their microbatches, and surveys of no flow, did in the last two days that needs a
    look.

    :param root: the lake's.
    :param tables: globs of flow names; none: every flow, and the topics that are no flows.
    """
    globs = tuple(tables)
    archives = [look_at(state) for state in archives_in(fs, root)]
    for name in flows_in(fs, root):
        if matches_any(name, globs):
            yield from _of_flow(fs, root, name, archives)
    if not globs:
        yield from held_findings(
            topic for archive in archives for topic in archive.state.held_topics().values() if _is_recent(archive, topic)
        )


def _is_recent(archive: ArchiveLook, topic: HeldTopic) -> bool:
    # Held topics stay in the archive, so without an end nobody could make this good.
    return topic.through > 0 and datetime.now(timezone.utc) - archive.state.surveyed_at(topic.through) < _RECENT


def _of_flow(fs: FileSystem, root: str, name: str, archives: Iterable[ArchiveLook]) -> Iterator[Finding]:
    state = FlowState(fs, root, name)
    try:
        if stop := stop_of(fs, root, state, archives):
            yield Finding(FindingKind.STOPPED, name, stop)
        yield from state.checkpoint(write=False).findings
        yield from FlowComparisons(fs, root).of(name, state.folder).findings
    except CdcError as error:
        # One flow's broken state must not hide what is wrong with the others.
        yield Finding(FindingKind.STOPPED, name, str(error))
