"""Which version of each table a task has announced to its assets: a change is announced though the try that made it died.

    <lake>/_cdc/told/<installation>/<task>.json

Both names are hashes: of what names the Airflow (:func:`installation`), and of Dag, task and map index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from airflow.providers.common.compat.sdk import conf

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.files import FileSystem, short_hash
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome
from airflow_cdc.model.state.announced_versions import AnnouncedVersions
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
    former_path: str
    """Where it lay before its path named the installation."""

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
        found = self._read(self.path)
        if found is None:
            found = self._read(self.former_path)
            if found is None:
                return None
            # Copied, and not moved: another Airflow with these names goes on from it too.
            self._put(found)
        return found.before if found.run_id == self.run_id else found.told

    def _read(self, path: str) -> AnnouncedVersions | None:
        return ANNOUNCED_VERSIONS.read(self.fs, path, AnnouncedVersions.from_json, owner="a merge task")


def _is_news(flow: FlowOutcome, told: Mapping[str, int] | None) -> bool:
    return flow.changed if told is None else told.get(flow.flow) != flow.table_version


def _versions(flows: Iterable[FlowOutcome]) -> dict[str, int]:
    return {flow.flow: flow.table_version for flow in flows if flow.table_version is not None}


def told_versions(lake: CdcLakeHook, instance: Any) -> ToldVersions:
    """Return what a task has told.

    :param instance: the task instance.
    """
    task = short_hash(f"{instance.dag_id}/{instance.task_id}/{instance.map_index}")
    folder = f"{lake.fs_root}/{STATE_FOLDER}/told"
    return ToldVersions(lake.fs, f"{folder}/{short_hash(installation())}/{task}.json", instance.run_id, f"{folder}/{task}.json")


def installation() -> str:
    """Return what names this Airflow among those that share a lake: the URL at which users reach it, else the one at which workers do.

    Empty where neither is configured. Workers know no more of their Airflow: the metadata database is out of a task's reach, its
    connection hidden from it.
    """
    urls = (conf.get(*setting, fallback=None) for setting in (("api", "base_url"), ("core", "execution_api_server_url")))
    return next((url.rstrip("/") for url in urls if url), "")
