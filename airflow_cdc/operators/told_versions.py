"""Which version of each table a task has told its assets: so that a change is told though the try that made it died."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.announced_versions import AnnouncedVersions
from airflow_cdc.model.files import FileSystem, short_hash
from airflow_cdc.model.outcome import ApplyReport, FlowOutcome
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.state_kind import ANNOUNCED_VERSIONS


@dataclass(frozen=True)
class ToldVersions:
    """What one task has told, in a file of the lake.

    A task whose report names a failed flow tells nothing, and one that dies after its job leaves no report: the next try finds these
    tables up to date. So a table is told when its version is another than the one told last, whoever made it.
    """

    fs: FileSystem
    path: str
    run_id: str

    def changed(self, report: ApplyReport) -> list[FlowOutcome]:
        """Return the flows whose tables have a version that was not told; at the task's first run those that it changed."""
        told = self._told()
        return [flow for flow in report.flows if flow.table_version is not None and _is_news(flow, told)]

    def write(self, report: ApplyReport) -> None:
        """Write down that the changes are told."""
        before = self._told() or {}
        now = {**before, **_versions(report.flows)}
        if now != before:
            self._put(AnnouncedVersions(self.run_id, before, now))

    def begin(self, report: ApplyReport) -> None:
        """Write down, before anything was ever told, which tables a run that failed found as they were: the others are to be told."""
        if self._told() is None:
            found = _versions(flow for flow in report.flows if not flow.changed)
            self._put(AnnouncedVersions(told=found))

    def _put(self, versions: AnnouncedVersions) -> None:
        ANNOUNCED_VERSIONS.replace(self.fs, self.path, versions.to_json())

    def _told(self) -> Mapping[str, int] | None:
        """Return what was told before this run; what an earlier try of it meant to tell, Airflow has not recorded."""
        found = ANNOUNCED_VERSIONS.read(self.fs, self.path, AnnouncedVersions.from_json, owner="a merge task")
        if found is None:
            return None
        return found.before if found.run_id == self.run_id else found.told


def _is_news(flow: FlowOutcome, told: Mapping[str, int] | None) -> bool:
    return flow.changed if told is None else told.get(flow.flow) != flow.table_version


def _versions(flows: Iterable[FlowOutcome]) -> dict[str, int]:
    return {flow.flow: flow.table_version for flow in flows if flow.table_version is not None}


def told_versions(lake: CdcLakeHook, instance: Any) -> ToldVersions:
    """Return what a task has told.

    :param instance: the task instance.
    """
    task = short_hash(f"{instance.dag_id}/{instance.task_id}/{instance.map_index}")
    return ToldVersions(lake.fs, f"{lake.fs_root}/{STATE_FOLDER}/told/{task}.json", instance.run_id)
