"""Every column name this package owns: one prefix, one list.

Tables and logs of existing lakes hold these texts: a text stays where its constant has a better name.
"""

from __future__ import annotations

PREFIX = "__cdc_"
"""Reserved prefix: a source column that starts with it is refused."""

POSITION = "__cdc_position"
"""Target: struct<commit decimal(38,0), change decimal(38,0), serial bigint> of the event that last wrote the row."""
OP = "__cdc_op"
"""Target: code of the operation that last wrote the row."""
COMMITTED_AT = "__cdc_committed_at"
"""Target: timestamp, when the source committed that event (``source.ts_ms``)."""
MICROBATCH = "__cdc_microbatch"
"""Target: bigint, number of the microbatch that last wrote the row."""

PARTITION = "__cdc_partition"
"""Target, change log: int, Kafka partition of that event; NULL where the archive does not record it. From a topic's second life on, the
lane (:mod:`airflow_cdc.model.position.lives`): 65,536 more for each earlier life."""
OFFSET = "__cdc_offset"
"""Target: bigint, Kafka offset of that event in its partition; of a file of values, the first offset that its name gives. NULL where the
archive records neither."""
VALUE_POSITIONS = "__cdc_told_at"
"""Target: array<struct<column string, position, known boolean>>, values that the row's last event did not carry: each with the position
of the event that did. Not known: no event carried the value and it is NULL; an event behind ``position`` may still supply it. NULL where
the last event carries all values."""

DELETED = "__cdc_deleted"
"""Target that flags deletes: boolean, whether the row is gone from the source."""
DELETED_AT = "__cdc_deleted_at"
"""Target that flags deletes: timestamp, when the source committed what removed the row; NULL for live rows and where the time is not
known."""

TARGET_COLUMNS = (POSITION, OP, COMMITTED_AT, MICROBATCH, PARTITION, OFFSET, VALUE_POSITIONS)
"""Our own columns of a target table, in the order in which they follow the source's columns."""
FLAGGED_COLUMNS = (*TARGET_COLUMNS, DELETED, DELETED_AT)
"""As above, for a table that flags deletes."""

TRANSACTION = "__cdc_transaction"
"""Change log: string, the transaction's identifier as the connector writes it."""
UNAVAILABLE = "__cdc_unavailable"
"""Change log: array<string>, the columns whose value is unavailable in the event; NULL where there are none."""
CHANGE_LOG_COLUMNS = (POSITION, OP, COMMITTED_AT, MICROBATCH, PARTITION, OFFSET, TRANSACTION, UNAVAILABLE)
"""Our own columns of a target table that is a change log."""

END_POSITION = "__cdc_end_position"
"""Versions: like :data:`POSITION`, of the event that ended the version; NULL while it is current."""
# The default names of four columns: a flow may choose others for its table (airflow_cdc/model/flow/scd_columns.py).
VALID_FROM = "__cdc_valid_from"
"""Versions: timestamp, when the source committed the event that began the version."""
VALID_TO = "__cdc_valid_to"
"""Versions: timestamp, when the source committed the event that ended it; NULL while it is current."""
IS_CURRENT = "__cdc_is_current"
"""Versions: boolean, whether the version is the source's current one."""
PREVIOUS_KEY = "__cdc_previous_key"
"""Versions: struct of the key columns: the row's key at the commit before the one that moved it; NULL for all other versions."""
VERSION_COLUMNS = (POSITION, END_POSITION, VALID_FROM, VALID_TO, IS_CURRENT, OP, OFFSET, MICROBATCH, PREVIOUS_KEY)
"""Our own columns of a target table that keeps every version."""

CONTENT = "__cdc_content"
"""Without a key: string, hash of the row's values; equal rows share it."""
IDENTITY = "__cdc_identity"
"""string: together with the position it identifies an event. It includes a snapshot read's offset, because equal rows are read at one
position."""
SENT_AT = "__cdc_sent_at"
"""bigint: when the connector sent the event, in milliseconds, where several rows may share one position: PostgreSQL logs COPY's rows as
one record. The event's raw value is then part of the identity. NULL elsewhere."""
COPY = "__cdc_copy"
"""Without a key: bigint, number of the row among equal rows, from 1."""
MULTISET_COLUMNS = (POSITION, OP, COMMITTED_AT, MICROBATCH, CONTENT, COPY)
"""Our own columns of a target table without a key."""

# Columns of intermediate frames; none of those below reaches a target table.
KIND = "__cdc_kind"
ORDINAL = "__cdc_ordinal"
"""An event's place in the archive (:data:`airflow_cdc.pipeline.decode.decode_events.ORDINAL_TYPE`)."""
FILE = "__cdc_file"
LINE = "__cdc_line"
RAW = "__cdc_raw"
RAW_KEY = "__cdc_raw_key"
REJECT = "__cdc_reject"
OP_IF_ABSENT = "__cdc_op_if_absent"
ABSENT = "__cdc_absent"
SNAPSHOT = "__cdc_snapshot"
OLD_KEY = "__cdc_old_key"
MOVED = "__cdc_moved"
DEPENDS = "__cdc_depends"
BEGAN = "__cdc_began"
PASSED = "__cdc_passed"
CARRIED = "__cdc_told"
LEFT_OUT = "__cdc_left_out"
CUT = "__cdc_cut"
TABLE = "__cdc_table"
ADDED = "__cdc_added"
TAKEN = "__cdc_taken"


def is_reserved(name: str) -> bool:
    """Return whether a source column would collide with ours (Delta compares names case-insensitively)."""
    return name.lower().startswith(PREFIX)
