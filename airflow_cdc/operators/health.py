"""CdcHealthOperator: fail while flows of a lake need a person's look; starts no Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowFailException, BaseOperator

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.links.tasks import FlowLink
from airflow_cdc.metrics import send_known_lag
from airflow_cdc.model.look.lag_findings import flows_behind
from airflow_cdc.model.look.lake_findings import findings_of_lake
from airflow_cdc.model.report.findings import Finding, FindingKind, summary_of
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.triggers.look import failure_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_TOLD = "cdc_told"
"""Key in XCom: what was said, and when."""
_SAID_AGAIN_AFTER = 86_400.0
"""Seconds after which a finding that is still there is said again."""


class CdcHealthOperator(BaseOperator):
    """Look once at a lake and its archive, and fail while anything there needs a person's look.

    That is: flows that are behind or stopped; within the last two days (UTC) rejected records, missing offsets, changed columns and the
    like, above each flow's ``warn_above`` in the flows file; rows that nobody has confirmed or removed; topics that no flow can take; and a
    lake or an archive that cannot be read. It sends the lag to Airflow's metrics, as the lag sensor does.

    A :class:`~airflow_cdc.notifications.flows.CdcNotifier` as its ``on_failure_callback`` says each finding when it appears, and again
    after a day: the task may run every few minutes. It returns ``{"findings": []}``.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the lake. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow, and topics that are none. (templated)
    :param max_seconds: greatest age, in seconds, of the last applied event's commit in the source, for flows with anything pending.
    """

    template_fields: Sequence[str] = ("archive_conn_id", "lake_conn_id", "tables")
    operator_extra_links = (FlowLink(),)
    ui_color = "#e3eef9"

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        max_seconds: float = 3600,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.max_seconds = max_seconds
        self.news: tuple[Finding, ...] | None = None
        """The findings to say now; None before the look."""

    def execute(self, context: Context) -> dict[str, Any]:
        """Look, and fail with all findings."""
        with as_airflow_errors():
            globs = table_globs(self.tables)
        looks = [_tried(lambda: self._behind(globs), "lag"), _tried(lambda: self._lake(globs), "lake")]
        found = summary_of(f"lake {self.lake_conn_id}", [finding for findings, _ in looks for finding in findings])
        self._choose_news(context, found.findings, is_blind=any(failed for _, failed in looks))
        if found.findings:
            raise AirflowFailException(f"{found.title}\n{found.text}")
        self.log.info("Nothing needs a look.")
        return {"findings": []}

    def _behind(self, globs: Sequence[str]) -> Iterable[Finding]:
        archive, lake = CdcArchiveHook(self.archive_conn_id), CdcLakeHook(self.lake_conn_id)
        _, behind = archive.lag(lake, globs)
        send_known_lag(lake, globs, behind)
        return flows_behind(behind, self.max_seconds)

    def _lake(self, globs: Sequence[str]) -> Iterable[Finding]:
        lake = CdcLakeHook(self.lake_conn_id)
        return findings_of_lake(lake.fs, lake.fs_root, globs)

    def _choose_news(self, context: Context, findings: Sequence[Finding], *, is_blind: bool) -> None:
        instance, now = context["ti"], time.time()
        # Of the run before, whatever its end: a failed task keeps what it pushed.
        before = instance.xcom_pull(task_ids=self.task_id, key=_TOLD, map_indexes=instance.map_index, include_prior_dates=True)
        told = {(kind, name): at for kind, name, at in before or () if now - at < _SAID_AGAIN_AFTER}
        self.news = tuple(finding for finding in findings if _name(finding) not in told)
        # What a failed look did not see is not gone.
        kept = told if is_blind else {}
        names = dict.fromkeys([*kept, *map(_name, findings)])
        instance.xcom_push(_TOLD, [[*name, told.get(name, now)] for name in names])


def _name(finding: Finding) -> tuple[str, str]:
    # Without a flow the text begins with what it is about.
    return finding.kind.value, finding.flow or finding.text.partition(":")[0]


def _tried(look: Callable[[], Iterable[Finding]], what: str) -> tuple[list[Finding], bool]:
    """Return what a look finds, and whether it failed: then that is the finding. An outage of a night shall be one message, not forty."""
    try:
        return list(look()), False
    except Exception as error:  # noqa: BLE001 - each store's client has exceptions of its own.
        return [Finding(FindingKind.STOPPED, None, f"The {what} cannot be looked at: {failure_of(error)['message']}")], True
