"""Base of this package's triggers: look in a thread, and report the result or the failure."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Any

from airflow.triggers.base import BaseTrigger, TriggerEvent

from airflow_cdc.model.errors import CdcError, storage_refusal


@dataclass(frozen=True)
class Answer:
    """Result of one look."""

    is_done: bool
    """Whether the awaited state is reached."""
    found: dict[str, Any]
    """Small JSON object for the task's XCom."""


class CdcLookTrigger(BaseTrigger):
    """Look repeatedly, and fire when the answer is there or when looking fails.

    The event is ``{"status": "success", "found": …}`` or ``{"status": "error", "message": …, "transient": …}``. Between two looks only the
    duration of the failures is kept, so a restart of the triggerer changes nothing.

    :param poke_interval: seconds between two looks.
    :param question: arguments of :meth:`look`, as plain JSON values.
    """

    def __init__(self, *, poke_interval: float, **question: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.poke_interval = poke_interval
        self.question = question

    @staticmethod
    def look(**question: Any) -> Answer:
        """Look once, for sensor and trigger alike. It may block.

        :raises CdcError: when there is nothing to look at.
        """
        raise NotImplementedError

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument, as plain JSON values."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {**self.question, "poke_interval": self.poke_interval}

    def tolerates(self, error: Exception, seconds: float) -> bool:
        """Return whether to look again after an error.

        :param seconds: how long all looks have failed.
        """
        return False

    def event_of_error(self) -> dict[str, Any]:
        """Return further fields of an error's event."""
        return {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until the answer is there, or until an error is not tolerated."""
        failing_since: float | None = None
        while True:
            try:
                # File systems and connection look-ups block: in the event loop they would hold up every other trigger of the triggerer.
                answer = await asyncio.to_thread(self.look, **self.question)
            except Exception as error:  # noqa: BLE001 - raised here, it would reach the task without its text.
                failing_since = failing_since or time.monotonic()
                if not self.tolerates(error, time.monotonic() - failing_since):
                    yield TriggerEvent({"status": "error", **failure_of(error), **self.event_of_error()})
                    return
                # Logged each time: a reader of the log need not search for the beginning.
                self.log.warning("The look failed and is repeated in %s seconds: %s", self.poke_interval, failure_of(error)["message"])
                await asyncio.sleep(self.poke_interval)
                continue
            failing_since = None
            if answer.is_done:
                yield TriggerEvent({"status": "success", "found": answer.found})
                return
            await asyncio.sleep(self.poke_interval)


def failure_of(error: Exception) -> dict[str, Any]:
    """Return an error as a task receives it: the message, and whether a retry may help."""
    known = error if isinstance(error, CdcError) else storage_refusal(error)
    if known:
        return {"message": str(known), "transient": known.transient}
    return {"message": f"{type(error).__name__}: {error}", "transient": True}
