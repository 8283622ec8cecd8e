"""The job's report: where it is written, how it is read, and the task's outcome."""

from __future__ import annotations

import json
import tempfile
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException, ObjectStoragePath

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import StateTooNewError, StateUnreadableError
from airflow_cdc.model.files import read_json
from airflow_cdc.model.places import REPORTS_FOLDER
from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome, FlowStatus
from airflow_cdc.model.report.batch_report import total_events, total_rows
from airflow_cdc.model.report.flows_report import FlowsReport
from airflow_cdc.model.state_kind import JOB_REPORT

_NAMED_FAILURES = 10
_Report = TypeVar("_Report")


@dataclass(frozen=True)
class Outcome:
    """A task's outcome from its job's report."""

    result: dict[str, Any]
    """The XCom: small, plain JSON. It is pushed also where the task fails or is skipped."""
    error: AirflowException | None = None
    """The error that ends the task; None where it succeeds."""


@dataclass(frozen=True)
class ReportPlace:
    """The file of one report."""

    uri: str
    """URI passed to the job."""
    fs: Any
    path: str
    """The path in its file system."""
    name: str = ""
    """Path below the lake's root; empty where the report is not in a lake."""

    @property
    def is_there(self) -> bool:
        """Whether the report is written and not removed."""
        return bool(self.fs.exists(self.path))

    def read(self, parse: Callable[[dict[str, Any]], _Report]) -> _Report | None:
        """Return the report; None where the job wrote none.

        :param parse: makes the report from its JSON.
        :raises StateUnreadableError: when the file holds anything else. It is removed, because a cleared task would find it again.
        :raises StateTooNewError: when a newer version wrote it; it is removed too.
        """
        try:
            document = read_json(self.fs, self.path)
            return JOB_REPORT.parse(document, parse, where=self.uri, owner="the job") if document else None
        except (StateTooNewError, StateUnreadableError):
            self.remove()
            raise

    def remove(self) -> None:
        """Remove the file if it exists."""
        if self.is_there:
            self.fs.rm_file(self.path)


@contextmanager
def report_on_this_machine() -> Iterator[ReportPlace]:
    """Yield a report place for a job whose driver runs here; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="airflow-cdc-") as folder:
        path = str(Path(folder, "report.json"))
        yield ReportPlace(path, ObjectStoragePath(folder).fs, path)


def new_report_name() -> str:
    """Return a new report path below a lake's root, for a job whose driver runs elsewhere.

    The name is unique: another try of the task may still have a writing job, and another Airflow over the same lake may have equal Dag, run
    and task ids.
    """
    return f"{REPORTS_FOLDER}/{uuid.uuid4().hex}.json"


def lake_report(lake: CdcLakeHook, name: str) -> ReportPlace:
    """Return the place of a report in a lake.

    :param name: its path below the lake's root.
    """
    return ReportPlace(f"{lake.root}/{name}", lake.fs, f"{lake.fs_root}/{name}", name)


def summary(report: ApplyReport) -> dict[str, Any]:
    """Return the task's XCom: small, plain JSON; ``cuts`` only for a consistent run, ``error`` only where the run or a flow failed."""
    cuts = {"cuts": _cut_summary(report)} if report.cuts else {}
    error = {"error": report.error} if report.error else {}
    return {
        "archive": report.archive,
        "lake": report.lake,
        "events": dict(vars(total_events(batch for flow in report.flows for batch in flow.batches))),
        "rows": dict(vars(total_rows(batch for flow in report.flows for batch in flow.batches))),
        "flows": {flow.flow: _flow_summary(flow) for flow in report.flows},
        **cuts,
        **error,
    }


def _cut_summary(report: ApplyReport) -> dict[str, Any]:
    documents = (cut.to_json() for cut in report.cuts)
    return {cut["prefix"]: {name: cut[name] for name in ("before", "is_proven", "awaited")} for cut in documents}


def _flow_summary(flow: FlowOutcome) -> dict[str, Any]:
    short: dict[str, Any] = {"status": flow.status.value, "table": flow.table}
    if flow.batches:
        versions = [batch.table_version for batch in flow.batches if batch.table_version is not None]
        short["table_version"] = max(versions, default=None)
        short["engines"] = sorted({batch.engine for batch in flow.batches})
        short["events"] = dict(vars(flow.events))
        short["rows"] = dict(vars(flow.rows))
    if flow.status is FlowStatus.FAILED:
        short["error"] = flow.error
    return short


def asset_extra(report: ApplyReport) -> dict[str, Any]:
    """Return an asset event's extra: the tables that this run changed."""
    short = summary(report)
    applied = {name: flow for name, flow in short["flows"].items() if flow["status"] == FlowStatus.APPLIED.value}
    tables = {name: {"table": flow["table"], "table_version": flow["table_version"]} for name, flow in applied.items()}
    of_run: dict[str, Any] = {name: short[name] for name in ("archive", "lake", "events", "rows", "cuts") if name in short}
    return {**of_run, "tables": tables}


def log_report(log: Any, report: ApplyReport) -> None:
    """Write the report to the task's log: a line per flow, failed ones as errors."""
    for line in _lines(report):
        log.info(line)
    for flow in report.flows:
        if flow.status is FlowStatus.FAILED:
            log.error("%s: failed: %s", flow.flow, _cause(flow.error))
    if report.error:
        log.error("The run failed: %s", _cause(report.error))


def log_flows(log: Any, report: FlowsReport) -> None:
    """As above, for another job's report: a failed flow's last line is the error."""
    for flow in report.flows:
        *lines, last = flow.lines()
        for line in lines:
            log.info(line)
        (log.error if flow.error else log.info)(last)


def _lines(report: ApplyReport) -> Iterator[str]:
    for flow in report.flows:
        if flow.status is FlowStatus.UP_TO_DATE:
            yield f"{flow.flow}: up to date"
        elif flow.batches:
            rows = flow.rows
            parts = " + ".join(f"{value} {name}" for name, value in vars(flow.events).items() if value and name != "read")
            yield (
                f"{flow.flow}: {flow.status.value}, {flow.events.read} events read = {parts or 'nothing'}; "
                f"rows inserted {rows.inserted}, updated {rows.updated}, deleted {rows.deleted}; {flow.table}"
            )
            yield from flow.reject_lines()
        yield from flow.gap_lines()
    yield from report.transaction_lines()
    yield from report.set_aside_lines()
    if report.control_topics:
        yield f"Topics that are no tables: {', '.join(report.control_topics)}"
    if report.ignored_files:
        yield f"Files that are no archived records: {len(report.ignored_files)}, for example {report.ignored_files[0]}"


def failure(report: ApplyReport) -> AirflowException:
    """Return the exception for a failed report: without retries where any cause persists until somebody acts."""
    failed = [flow for flow in report.flows if flow.status is FlowStatus.FAILED]
    causes = [(flow.flow, flow.error) for flow in failed]
    if report.error is not None:
        causes.insert(0, ("The run", report.error))
    head = f"{len(failed)} of {len(report.flows)} flows failed." if failed else "The job stopped before it could apply any flow."
    return failure_of(head, causes)


def rejects_failure(flows: Sequence[str]) -> AirflowException:
    """Return the exception for flows with too many rejected records; a retry would not read them again.

    :param flows: one line per flow.
    """
    named = [*flows[:_NAMED_FAILURES], *([f"… and {len(flows) - _NAMED_FAILURES} more."] if len(flows) > _NAMED_FAILURES else [])]
    next_step = "Next step: look at the quarantine (airflow-cdc quarantine), mend the flow's settings and replay; all else is applied."
    return AirflowFailException("\n".join([f"Too many records of {len(flows)} flows were set aside (fail_on_rejects).", *named, next_step]))


def errors_of(report: FlowsReport) -> dict[str, Any]:
    """Return the XCom's entry for failures: ``{"errors": {"server.db.orders": {"type": …, …}}}``; empty without any."""
    causes = dict(report.causes())
    return {"errors": causes} if causes else {}


def failure_of(head: str, causes: Sequence[tuple[str, dict[str, Any] | None]]) -> AirflowException:
    """Return the exception for a job's reported causes, by flow: without retries where any persists until somebody acts."""
    lines = [f"{name}: {_cause(error)}" for name, error in causes[:_NAMED_FAILURES]]
    if len(causes) > _NAMED_FAILURES:
        lines.append(f"… and {len(causes) - _NAMED_FAILURES} more; the task's log names them all.")
    message = "\n".join([head, *lines])
    transient = all((error or {}).get("transient", False) for _, error in causes)
    return AirflowException(message) if transient else AirflowFailException(message)


def _cause(error: dict[str, Any] | None) -> str:
    if not error:
        return "the job gave no cause."
    text = f"{error.get('type', 'Error')}: {error.get('message', json.dumps(error))}"
    return f"{text} Next step: {error['next_step']}" if error.get("next_step") else text
