"""Links from a task: to its flows and their rejected records in the page, and to its Spark application."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import BaseOperatorLink, conf

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.links.page import flow_page, flows_page, quarantine_page
from airflow_cdc.model.globs import is_glob

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import TaskInstanceKey


class FlowLink(BaseOperatorLink):
    """To the task's flow; to the list of them where it has several."""

    name = "Flows"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address."""
        flow = _only_flow(operator)
        return flow_page(operator.lake_conn_id, flow) if flow else flows_page(operator.lake_conn_id)


class QuarantineLink(BaseOperatorLink):
    """To the rejected records of the task's flow; to the list of flows, which counts them, where it has several."""

    name = "Quarantine"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the page's address."""
        flow = _only_flow(operator)
        return quarantine_page(operator.lake_conn_id, flow) if flow else flows_page(operator.lake_conn_id)


class SparkLink(BaseOperatorLink):
    """To the Spark application, where its address is known; empty otherwise.

    With ``[airflow_cdc] spark_history_url`` it leads to the history server, else for a job on YARN to its ResourceManager, which leads on
    to the running application's interface.
    """

    name = "Spark"

    def get_link(self, operator: Any, *, ti_key: TaskInstanceKey) -> str:
        """Return the application's address."""
        history = str(conf.get("airflow_cdc", "spark_history_url", fallback="") or "").rstrip("/")
        hook = getattr(operator, "_hook", None)
        application = getattr(hook, "_yarn_application_id", None)
        if history:
            return f"{history}/history/{application}/" if application else f"{history}/"
        if not (hook and application):
            return ""
        try:
            return f"{hook._get_yarn_rm_base_url().rstrip('/')}/cluster/app/{application}"
        except ValueError:
            # The Spark connection names no ResourceManager.
            return ""


def _globs(operator: Any) -> list[str]:
    return list(table_globs(getattr(operator, "tables", None)))


def _only_flow(operator: Any) -> str | None:
    """Return the flow of a task that has one, by its settings or by its job's report."""
    names = _globs(operator)
    if not (len(names) == 1 and not is_glob(names[0]) and not names[0].startswith("!")):
        names = [flow.flow for flow in getattr(getattr(operator, "report", None), "flows", ())]
    return names[0] if len(names) == 1 else None
