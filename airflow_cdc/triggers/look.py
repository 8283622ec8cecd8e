"""What all triggers of this package share: look in a thread, tell what was seen, or why it could not be."""

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
    """What one look saw."""

    is_done: bool
    """Whether it is what was waited for."""
    told: dict[str, Any]
    """A small JSON object for the task's XCom."""


class CdcLookTrigger(BaseTrigger):
    """Look again and again, and fire when the answer is there, or when looking fails.

    The event is ``{"status": "success", "told": …}`` or ``{"status": "error", "message": …, "transient": …}``. Nothing is
    remembered between two looks but for how long they have failed, so a restart of the triggerer changes nothing.

    :param poke_interval: seconds between two looks.
    :param question: what :meth:`look` is asked with, as plain JSON values.
    """

    def __init__(self, *, poke_interval: float, **question: Any) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.poke_interval = poke_interval
        self.question = question

    @staticmethod
    def look(**question: Any) -> Answer:
        """Look once; the one question that sensor and trigger ask. It may block.

        :raises CdcError: when there is nothing to look at.
        """
        raise NotImplementedError

    def serialize(self) -> tuple[str, dict[str, Any]]:
        """Return the class path and every argument, as plain JSON values."""
        kind = type(self)
        return f"{kind.__module__}.{kind.__qualname__}", {**self.question, "poke_interval": self.poke_interval}

    def tolerates(self, error: Exception, seconds: float) -> bool:
        """Return whether to look again after an error.

        :param seconds: for how long every look has failed.
        """
        return False

    def event_of_error(self) -> dict[str, Any]:
        """Return what the event of an error tells beside it."""
        return {}

    async def run(self) -> AsyncIterator[TriggerEvent]:
        """Look until the answer is there, or until an error is not tolerated."""
        failing_since: float | None = None
        while True:
            try:
                # File systems and connection look-ups block: on the loop they would hold up every other trigger of the triggerer.
                answer = await asyncio.to_thread(self.look, **self.question)
            except Exception as error:  # noqa: BLE001 - raised here, it would reach the task without its text.
                failing_since = failing_since or time.monotonic()
                if not self.tolerates(error, time.monotonic() - failing_since):
                    yield TriggerEvent({"status": "error", **failure_of(error), **self.event_of_error()})
                    return
                # Each time: who reads the log while it lasts must not look for its beginning.
                self.log.warning("The look failed and is repeated in %s seconds: %s", self.poke_interval, failure_of(error)["message"])
                await asyncio.sleep(self.poke_interval)
                continue
            failing_since = None
            if answer.is_done:
                yield TriggerEvent({"status": "success", "told": answer.told})
                return
            await asyncio.sleep(self.poke_interval)


def failure_of(error: Exception) -> dict[str, Any]:
    """Return what a task is told of an error: the message, and whether to try again."""
    told = error if isinstance(error, CdcError) else storage_refusal(error)
    if told:
        return {"message": str(told), "transient": told.transient}
    return {"message": f"{type(error).__name__}: {error}", "transient": True}
