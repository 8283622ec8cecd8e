"""Every column name this package owns: one prefix, one list."""

from __future__ import annotations

PREFIX = "__cdc_"
"""Reserved: a source column that starts with it is refused."""

POSITION = "__cdc_position"
"""Target: struct<commit decimal(38,0), change decimal(38,0), serial bigint> of the event that last wrote the row."""
OP = "__cdc_op"
"""Target: code of the operation that last wrote the row."""
COMMITTED_AT = "__cdc_committed_at"
"""Target: timestamp, when the source committed that event (``source.ts_ms``)."""
MICROBATCH = "__cdc_microbatch"
"""Target: bigint, number of the microbatch that last wrote the row."""

OFFSET = "__cdc_offset"
"""Target: bigint, Kafka offset of that event; NULL where the archive does not tell it."""
TOLD_AT = "__cdc_told_at"
"""Target: array<struct<column string, position, known boolean>> of the values that the row's last event did not tell: the position of the
event that did. Not known: nothing told the value, it is NULL; an event behind ``position`` may yet. NULL where the last event tells all."""

TARGET_COLUMNS = (POSITION, OP, COMMITTED_AT, MICROBATCH, OFFSET, TOLD_AT)
"""Our own columns of a target table, in the order in which they follow the source's columns."""

# Columns of the frames on their way; none of them reaches a target table.
KIND = "__cdc_kind"
PARTITION = "__cdc_partition"
ORDINAL = "__cdc_ordinal"
FILE = "__cdc_file"
LINE = "__cdc_line"
RAW = "__cdc_raw"
RAW_KEY = "__cdc_raw_key"
REJECT = "__cdc_reject"
OP_IF_ABSENT = "__cdc_op_if_absent"
TRANSACTION = "__cdc_transaction"
UNAVAILABLE = "__cdc_unavailable"
ABSENT = "__cdc_absent"
SNAPSHOT = "__cdc_snapshot"
OLD_KEY = "__cdc_old_key"
MOVED = "__cdc_moved"
DEPENDS = "__cdc_depends"


def is_reserved(name: str) -> bool:
    """Tell whether a source column would collide with ours (Delta compares names without case)."""
    return name.lower().startswith(PREFIX)
