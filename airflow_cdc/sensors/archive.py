"""CdcArchiveSensor: succeed when archived files wait to be applied."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import CdcError
from airflow_cdc.triggers.archive import CdcArchiveTrigger, look

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ArchiveNotReadableError(RuntimeError):
    """Raised when looking failed while ``soft_fail`` is set.

    ``soft_fail`` skips on every AirflowException. It is there for "nothing came in time"; a wrong root URL must not be skipped for ever.
    """


class CdcArchiveSensor(BaseSensorOperator):
    """Wait until an archive holds files that the lake's flows have not applied.

    It returns ``{"files": 4, "topics": {"server.db.orders": 3, …}}``. With ``timeout=0`` it looks once and never defers;
    together with ``soft_fail=True`` a run with nothing to do is skipped at once. What a consistent run left waiting for a transaction
    counts again when more is archived, be it only the transaction's END.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the lake whose state tells what is applied. (templated)
    :param tables: globs of flow names, as a sequence or one text with commas; none: every flow. (templated)
    :param min_files: how many files must wait.
    :param deferrable: wait in the triggerer instead of a worker's slot.
    """

    template_fields: Sequence[str] = ("archive_conn_id", "lake_conn_id", "tables")
    ui_color = "#e3eef9"

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        tables: str | Sequence[str] | None = None,
        min_files: int = 1,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.tables = tables
        self.min_files = min_files
        self.deferrable = deferrable

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        try:
            pending = look(self.archive_conn_id, self.lake_conn_id, table_globs(self.tables))
        except CdcError as error:
            raise self._failure(str(error), transient=error.transient) from error
        self._tell(pending)
        return PokeReturnValue(is_done=pending["files"] >= self.min_files, xcom_value=pending)

    def execute(self, context: Context) -> Any:
        """Look, and wait where nothing is there yet."""
        if not self.deferrable or self.timeout <= 0:
            return super().execute(context)
        # Without this look, a task whose files are already there would take the way through the triggerer.
        seen = self.poke(context)
        if not seen:
            self._defer()
        return seen.xcom_value

    def _defer(self) -> NoReturn:
        self.defer(
            trigger=CdcArchiveTrigger(
                archive_conn_id=self.archive_conn_id,
                lake_conn_id=self.lake_conn_id,
                tables=table_globs(self.tables),
                min_files=self.min_files,
                poke_interval=self.poke_interval,
            ),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Take up the trigger's event."""
        if event["status"] != "success":
            raise self._failure(event["message"], transient=event["transient"])
        pending: dict[str, Any] = event["pending"]
        self._tell(pending)
        return pending

    def _tell(self, pending: dict[str, Any]) -> None:
        self.log.info("%s files wait (at least %s are asked for).", pending["files"], self.min_files)
        for topic, files in pending["topics"].items():
            self.log.info("  %s: %s", topic, files)

    def _failure(self, message: str, *, transient: bool) -> Exception:
        if self.soft_fail:
            return ArchiveNotReadableError(message)
        return AirflowException(message) if transient else AirflowFailException(message)
