"""The version of each table that a task has announced to its assets: a change is announced even if the try that made it died.

    <lake>/_cdc/told/<installation>/<task>.json

Both names are hashes: of what identifies the Airflow (:func:`installation`), and of Dag, task and map index.
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
class Announcements:
    """The versions that one task has announced, kept in a file of the lake.

    A task announces nothing when its report names a failed flow. A task that dies after its job leaves no report, and the next try finds
    these tables up to date. So a table is announced when its version differs from the last announced one, whoever made it.
    """

    fs: FileSystem
    path: str
    run_id: str
    former_path: str
    """The file's path before paths named the installation."""

    def changed(self, report: ApplyReport) -> list[FlowOutcome]:
        """Return the flows whose table version is not announced yet; at the task's first run, the flows that this run changed."""
        announced = self._announced()
        return [flow for flow in report.flows if flow.table_version is not None and _is_news(flow, announced)]

    def write(self, report: ApplyReport) -> None:
        """Record the reported versions as announced."""
        before = self._announced() or {}
        now = {**before, **_versions(report.flows)}
        if now != before:
            self._put(AnnouncedVersions(self.run_id, before, now))

    def begin(self, report: ApplyReport) -> None:
        """At the first run, if it failed: record the unchanged tables as announced, so that only the others are announced later."""
        if self._announced() is None:
            found = _versions(flow for flow in report.flows if not flow.changed)
            self._put(AnnouncedVersions(announced=found))

    def _put(self, versions: AnnouncedVersions) -> None:
        ANNOUNCED_VERSIONS.replace(self.fs, self.path, versions.to_json())

    def _announced(self) -> Mapping[str, int] | None:
        """Return the versions announced before this run. What an earlier try of the same run meant to announce, Airflow has not
        recorded.
        """
        found = self._read(self.path)
        if found is None:
            found = self._read(self.former_path)
            if found is None:
                return None
            # Copied, not moved: another Airflow with the same names continues from this file too.
            self._put(found)
        return found.before if found.run_id == self.run_id else found.announced

    def _read(self, path: str) -> AnnouncedVersions | None:
        return ANNOUNCED_VERSIONS.read(self.fs, path, AnnouncedVersions.from_json, owner="a merge task")


def _is_news(flow: FlowOutcome, announced: Mapping[str, int] | None) -> bool:
    return flow.changed if announced is None else announced.get(flow.flow) != flow.table_version


def _versions(flows: Iterable[FlowOutcome]) -> dict[str, int]:
    return {flow.flow: flow.table_version for flow in flows if flow.table_version is not None}


def announcements(lake: CdcLakeHook, instance: Any) -> Announcements:
    """Return the versions that a task has announced.

    :param instance: the task instance.
    """
    task = short_hash(f"{instance.dag_id}/{instance.task_id}/{instance.map_index}")
    folder = f"{lake.fs_root}/{STATE_FOLDER}/told"
    return Announcements(lake.fs, f"{folder}/{short_hash(installation())}/{task}.json", instance.run_id, f"{folder}/{task}.json")


def installation() -> str:
    """Return what identifies this Airflow among those that share a lake: the URL that users open, else the URL that workers call.

    Empty where neither is configured. Workers know nothing else of their Airflow: a task cannot reach the metadata database, and its
    connection is hidden from it.
    """
    urls = (conf.get(*setting, fallback=None) for setting in (("api", "base_url"), ("core", "execution_api_server_url")))
    return next((url.rstrip("/") for url in urls if url), "")
