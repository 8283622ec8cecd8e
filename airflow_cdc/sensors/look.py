"""Base of this package's sensors: look, in a worker or in the triggerer, and log the result."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, ClassVar, NoReturn

from airflow.providers.common.compat.sdk import (
    AirflowException,
    AirflowFailException,
    BaseSensorOperator,
    PokeReturnValue,
    conf,
)

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.links.tasks import FlowLink
from airflow_cdc.triggers.look import CdcLookTrigger, failure_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class ArchiveNotReadableError(RuntimeError):
    """Raised when looking failed while ``soft_fail`` is set.

    ``soft_fail`` skips on every AirflowException. It is meant for "nothing came in time"; a wrong root URL must not be skipped for ever.
    """


class CdcLookSensor(BaseSensorOperator):
    """Wait until a look at an archive and a lake gives the awaited answer.

    With ``timeout=0`` it looks once and never defers; together with ``soft_fail=True`` a run that need not go on is skipped at once.

    :param archive_conn_id: connection of the archive. (templated)
    :param lake_conn_id: connection of the lake. (templated)
    :param deferrable: wait in the triggerer instead of a worker's slot.
    """

    template_fields: Sequence[str] = ("archive_conn_id", "lake_conn_id")
    operator_extra_links = (FlowLink(),)
    ui_color = "#e3eef9"
    trigger_class: ClassVar[type[CdcLookTrigger]]

    def __init__(
        self,
        *,
        archive_conn_id: str = CdcArchiveHook.default_conn_name,
        lake_conn_id: str = CdcLakeHook.default_conn_name,
        deferrable: bool = conf.getboolean("operators", "default_deferrable", fallback=False),
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.archive_conn_id = archive_conn_id
        self.lake_conn_id = lake_conn_id
        self.deferrable = deferrable

    def question(self, context: Context) -> dict[str, Any]:
        """Return the arguments of the trigger's ``look``, besides the two connections."""
        raise NotImplementedError

    def log_answer(self, found: dict[str, Any]) -> None:
        """Log the answer."""
        self.log.info("Seen: %s", found)

    def poke(self, context: Context) -> PokeReturnValue:
        """Look once."""
        try:
            answer = self.trigger_class.look(**self._asked(context))
        except Exception as error:
            failure = failure_of(error)
            raise self._failure(failure["message"], transient=failure["transient"]) from error
        self.log_answer(answer.found)
        return PokeReturnValue(is_done=answer.is_done, xcom_value=answer.found)

    def execute(self, context: Context) -> Any:
        """Look, and wait if the answer is not there yet."""
        if not self.deferrable or self.timeout <= 0:
            return super().execute(context)
        # Without this look, a task would pass through the triggerer even if the answer is already there.
        seen = self.poke(context)
        if not seen:
            self._defer(context)
        return seen.xcom_value

    def execute_complete(self, context: Context, event: dict[str, Any]) -> dict[str, Any]:
        """Resume with the trigger's event."""
        if event["status"] != "success":
            raise self._failure(event["message"], transient=event["transient"])
        found: dict[str, Any] = event["found"]
        self.log_answer(found)
        return found

    def _asked(self, context: Context) -> dict[str, Any]:
        return {"archive_conn_id": self.archive_conn_id, "lake_conn_id": self.lake_conn_id, **self.question(context)}

    def _defer(self, context: Context) -> NoReturn:
        self.defer(
            trigger=self.trigger_class(**self._asked(context), poke_interval=self.poke_interval),
            method_name="execute_complete",
            timeout=timedelta(seconds=self.timeout),
        )

    def _failure(self, message: str, *, transient: bool) -> Exception:
        if self.soft_fail:
            return ArchiveNotReadableError(message)
        return AirflowException(message) if transient else AirflowFailException(message)
