"""Calls in other threads, with the credentials of the lake that they are for."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import copy_context
from typing import TypeVar

_Answer = TypeVar("_Answer")


def carried(call: Callable[..., _Answer]) -> Callable[..., _Answer]:
    """Return a call that runs in any thread as if it ran here: what :mod:`contextvars` hold goes along."""
    context = copy_context()
    # One context is entered by one thread at a time.
    return lambda *arguments: context.copy().run(call, *arguments)
