"""WarnAbove: what a flow may show before it asks for a person's look (docs/reference/flows-file.md#warn_above)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from airflow_cdc.model.plain_json import JsonObject


@dataclass(frozen=True)
class WarnAbove(JsonObject, omits_defaults=True):
    """Bounds over today and yesterday (UTC); more is a finding. None: never one."""

    rejected: float | None = 0.0
    """Share, from 0 to 1, of the records read that are in the quarantine; also of the last microbatch's alone."""
    rows_not_found: float | None = 0
    """Rows that an update or a delete should have found and did not."""
    unavailable_unresolved: float | None = 0
    """Rows merged with NULL for a value that neither an event nor a row carries."""
    missing_offsets: float | None = 0
    """Kafka offsets that the archive lacks between those that were applied."""
    schema_changes: float | None = 0
    """Columns that were added, renamed, widened, or that took values of another type as text."""
    rows_unconfirmed: float | None = 0
    """Rows that the newest full snapshot did not find, until somebody decides about it."""


def warn_above(value: Any) -> WarnAbove:
    """Return bounds as a flows file gives them: numbers by name, null for never.

    :raises TypeError, ValueError: for any other form; the message is what is expected.
    """
    names = [each.name for each in fields(WarnAbove)]
    if not isinstance(value, Mapping) or not set(value) <= set(names):
        raise TypeError(f"numbers by name, of {names}")
    for name, bound in value.items():
        most = 1 if name == "rejected" else math.inf
        # A bool is an int.
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float) or not 0 <= bound <= most):
            raise ValueError(f"for {name} {'a share from 0 to 1' if most == 1 else 'a number from 0 on'}, or null for never")
    return WarnAbove(**value)
