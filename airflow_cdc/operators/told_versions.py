"""Which version of each table a task has announced to its assets: a change is announced though the try that made it died.

    <lake>/_cdc/told/<installation>/<task>.json

Both names are hashes: of what names the Airflow (:func:`installation`), and of Dag, task and map index.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from airflow.providers.common.compat.sdk import conf

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import StateUnreadableError
from airflow_cdc.model.files import FileSystem, read_json, replace_json, short_hash
from airflow_cdc.model.outcome import ApplyReport, FlowOutcome
from airflow_cdc.model.places import STATE_FOLDER


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
            replace_json(self.fs, self.path, {"run_id": self.run_id, "before": before, "told": now})

    def begin(self, report: ApplyReport) -> None:
        """Write down, before anything was ever told, which tables a run that failed found as they were: the others are to be told."""
        if self._told() is None:
            found = _versions(flow for flow in report.flows if not flow.changed)
            replace_json(self.fs, self.path, {"run_id": None, "before": {}, "told": found})

    def _told(self) -> dict[str, Any] | None:
        """Return what was told before this run; what an earlier try of it meant to tell, Airflow has not recorded."""
        document = read_json(self.fs, self.path)
        if document is None:
            document = read_json(self.fs, self.former_path)
            if document is None:
                return None
            # Copied, and not moved: another Airflow with these names goes on from it too.
            replace_json(self.fs, self.path, document)
        told = document.get("before" if document.get("run_id") == self.run_id else "told")
        if not isinstance(told, dict):
            raise StateUnreadableError(
                f"{self.path} has another shape than expected.", next_step="Remove it; tables that change from now on are told."
            )
        return told


def _is_news(flow: FlowOutcome, told: dict[str, Any] | None) -> bool:
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
