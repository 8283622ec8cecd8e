"""A process that handles requests one after the other, so that Airflow starts once for two requests."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from itertools import takewhile
from pathlib import Path
from types import TracebackType
from typing import Any

_POLL_SECONDS = 0.2
_SECONDS_TO_END = 20
_LINES_SHOWN = 20
_RAISED = re.compile(r"[\w.]+(Exception|Error): ")
_LOGGED = re.compile(r"\d{4}-\d\d-\d\dT")


class WorkerFailedError(RuntimeError):
    """Raised when a worker failed or ended before it answered."""


class Worker:
    """A Python module run as its own process; its output goes to a log file.

    :param module: a module that calls :func:`serve`.
    :param environment: its environment variables.
    :param folder: where the log and the answers go.
    """

    def __init__(self, module: str, environment: Mapping[str, str], folder: Path) -> None:
        self.name = module.rsplit(".", 1)[-1]
        self.log = folder / f"{self.name}.log"
        self._answer = folder / f"{self.name}.json"
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module], stdin=subprocess.PIPE, stdout=log, stderr=log, env=dict(environment), cwd=folder
            )

    def ask(self, order: Mapping[str, Any], watch: Callable[[str], None] = lambda line: None) -> dict[str, Any]:
        """Send a request and return the answer.

        :param watch: called with every line that the worker logs meanwhile.
        :raises WorkerFailedError: when the worker failed or ended.
        """
        assert self._process.stdin
        self._answer.unlink(missing_ok=True)
        with self.log.open(encoding="utf-8", errors="replace") as log:
            log.seek(0, os.SEEK_END)
            # A worker that has already ended is detected below, with its exit code.
            with suppress(BrokenPipeError):
                self._process.stdin.write(f"{json.dumps({**order, 'answer': str(self._answer)})}\n".encode())
                self._process.stdin.flush()
            while not self._answer.exists() and self._process.poll() is None:
                time.sleep(_POLL_SECONDS)
                for line in log:
                    watch(line)
            for line in log:
                watch(line)
        if not self._answer.exists():
            raise WorkerFailedError(f"{self.name} ended with exit code {self._process.returncode}:{self.last_words()}")
        answer: dict[str, Any] = json.loads(self._answer.read_text())
        if "failed" in answer:
            raise WorkerFailedError(f"{self.name} failed:{self.last_words()}")
        return answer

    def last_words(self) -> str:
        """Return the last exception in the log, or the log's last lines where there is none, for an error message."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        raised = [number for number, line in enumerate(lines) if _RAISED.match(line)]
        words = lines[raised[-1] :] if raised else lines[-_LINES_SHOWN:]
        message = list(takewhile(lambda line: not _LOGGED.match(line), words)) or words
        return "\n  ".join(["", *message[:_LINES_SHOWN], f"The whole log: {self.log}"])

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        # It ends when its input ends; an interrupted merge ends with it, through die_with_parent.
        if self._process.stdin:
            with suppress(BrokenPipeError):
                self._process.stdin.close()
        try:
            self._process.wait(0 if kind else _SECONDS_TO_END)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def serve(handle: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """Answer requests from stdin until it ends."""
    for line in sys.stdin:
        order = json.loads(line)
        answer = Path(order.pop("answer"))
        try:
            document = handle(order)
        except Exception as error:  # noqa: BLE001 - the caller gets the failure.
            traceback.print_exc()
            document = {"failed": f"{type(error).__name__}: {error}"}
        draft = answer.with_suffix(".draft")
        draft.write_text(json.dumps(document))
        draft.replace(answer)
