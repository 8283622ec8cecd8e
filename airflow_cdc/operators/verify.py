"""CdcVerifyOperator: submit the Spark job that compares a lake's tables with another lake's, or with their source."""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.providers.common.compat.sdk import AirflowException, AirflowFailException

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.hooks.storage import existing_connection
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.report.verification import VerifyReport
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.job_report import Outcome, failure_of
from airflow_cdc.operators.spark_target import spark_target
from airflow_cdc.operators.submit import CdcSubmitOperator
from airflow_cdc.runtime.private_file import write_privately

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcVerifyOperator(CdcSubmitOperator):
    """Compare a lake's tables with another lake's by count and checksum, or one table with a query of its source by its rows.

    Or check, with ``history``, the row versions that tables keep; or, with none of these, that no key of a table has several rows.

    It returns the job's report (:class:`airflow_cdc.model.report.verification.VerifyReport`) as JSON: for each table both counts, the
    differences, and the microbatch and position at which it stood. A source that changes while the table waits for its next run differs:
    let the query end where the table does.

    A source's password goes to the job in a file that only this user can read and that is removed afterwards; the driver must run on this
    machine.

    :param lake_conn_id: connection of the lake. (templated)
    :param other_lake_conn_id: connection of the other lake; this, ``jdbc_conn_id``, ``history``, or none. (templated)
    :param jdbc_conn_id: connection of type ``jdbc``: host is the JDBC URL. (templated)
    :param query: returns the source's rows, with the table's column names. (templated)
    :param driver: class of the JDBC driver, where the URL does not imply it; give its jar by ``jars`` or ``packages``.
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. With a source, the name of one flow.
        (templated)
    :param history: check each row's versions instead: that none overlap, by position or by time, and at most one is current.
    :param fail_if_different: fail the task when something differs, versions overlap, or a key has several rows.
    :param kwargs: other arguments of ``SparkSubmitOperator``.
    """

    template_fields: Sequence[str] = (
        *CdcSubmitOperator.template_fields,
        "lake_conn_id",
        "other_lake_conn_id",
        "jdbc_conn_id",
        "query",
        "tables",
    )
    template_fields_renderers = {"query": "sql"}  # noqa: RUF012 - Airflow's own spelling
    ui_color = "#c8dce6"
    job = "verify.py"

    def __init__(
        self,
        *,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        other_lake_conn_id: str | None = None,
        jdbc_conn_id: str | None = None,
        query: str | None = None,
        driver: str | None = None,
        tables: str | Sequence[str] | None = None,
        history: bool = False,
        fail_if_different: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.lake_conn_id = lake_conn_id
        self.other_lake_conn_id = other_lake_conn_id
        self.jdbc_conn_id = jdbc_conn_id
        self.query = query
        self.driver = driver
        self.tables = tables
        self.history = history
        self.fail_if_different = fail_if_different

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job, wait for it, and turn its report into the task's outcome."""
        with as_airflow_errors():
            lake = CdcLakeHook(self.lake_conn_id)
            with self._against() as against:
                others = [CdcLakeHook(self.other_lake_conn_id)] if self.other_lake_conn_id else []
                return self.submit(context, lake, lambda place: self._arguments(lake.root, against, place), others=others)

    def parse(self, document: dict[str, Any]) -> VerifyReport:
        """Return the job's report from its JSON."""
        return VerifyReport.from_json(document)

    def outcome(self, context: Context, lake: CdcLakeHook, report: VerifyReport) -> Outcome:
        """Return the result; differences fail the task unless ``fail_if_different`` is off."""
        for line in report.lines():
            self.log.info(line)
        error: AirflowException | None = None
        if report.error:
            error = failure_of("The comparison did not come to its end.", [("The run", report.error)])
        elif self.fail_if_different and not report.equal:
            is_doubled = any(table.doubled for table in report.tables)
            found = "Versions overlap." if self.history else "Keys have several rows." if is_doubled else "Tables differ."
            head = found if report.tables else "Nothing was compared."
            error = AirflowFailException("\n".join([head, *report.lines()]))
        return Outcome(report.to_json(), error)

    @contextlib.contextmanager
    def _against(self) -> Iterator[list[str]]:
        """Yield the job's arguments for the other side of the comparison."""
        if sum(map(bool, (self.other_lake_conn_id, self.jdbc_conn_id, self.history))) > 1:
            raise ConfigurationError(
                "Tables are compared with at most one other side: another lake, a query on their source, or their own history.",
                next_step="Give other_lake_conn_id; or jdbc_conn_id with a query; or history; or none of them, to check the keys.",
            )
        if self.other_lake_conn_id:
            yield ["--other", CdcLakeHook(self.other_lake_conn_id).root]
            return
        if self.history:
            yield ["--history"]
            return
        if not self.jdbc_conn_id:
            yield []
            return
        with _secret_file(self._jdbc_options()) as path:
            # The file's name is not secret; a variable would not reach a driver on YARN or Kubernetes.
            yield ["--jdbc", path]

    def _jdbc_options(self) -> dict[str, str]:
        target = spark_target(self._conn_id, deploy_mode=self._deploy_mode, spark_binary=self._spark_binary)
        connection = existing_connection(str(self.jdbc_conn_id), "a connection of type jdbc whose host is the JDBC URL")
        wrong = {
            f"connection {self.jdbc_conn_id} has a host that begins with jdbc:": not (connection.host or "").startswith("jdbc:"),
            "a query is given": not self.query,
            "tables name one flow": len(table_globs(self.tables)) != 1,
            "the driver runs on this machine (deploy mode client)": not target.driver_is_here,
        }
        if any(wrong.values()):
            lacking = [what for what, is_wrong in wrong.items() if is_wrong]
            raise ConfigurationError(
                f"A table cannot be compared with its source unless {' and '.join(lacking)}.",
                next_step="Correct the task or the connection.",
            )
        options = {
            "url": connection.host,
            "query": self.query,
            "user": connection.login,
            "password": connection.password,
            "driver": self.driver,
        }
        return {name: value for name, value in options.items() if value}

    def _arguments(self, lake: str, against: list[str], report: str) -> Iterator[str]:
        yield from ("--lake", lake, *against)
        for glob in table_globs(self.tables):
            yield from ("--table", glob)
        yield from ("--report", report)


@contextlib.contextmanager
def _secret_file(document: Mapping[str, str]) -> Iterator[str]:
    """Yield the path of a file that only this user can read; it is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="airflow-cdc-") as folder:
        path = Path(folder, "options.json")
        write_privately(path, json.dumps(document))
        yield str(path)
