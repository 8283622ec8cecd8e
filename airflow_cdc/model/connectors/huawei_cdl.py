"""Huawei CDL: its two JSON forms (``pipeline/decode/huawei_cdl.py``).

CDL JSON (``message_version`` 1.0) has names of its own; CDL's Debezium JSON (2.0) is an old Debezium envelope with ``unique`` beside it.
Neither has a Kafka key, tombstones or a commit's position. Source: Huawei's documentation of both.
"""

from __future__ import annotations

from airflow_cdc.model.columns import OFFSET, ORDINAL
from airflow_cdc.model.connectors.connector import (
    AS_LOCAL_TIMESTAMP,
    AS_TEXT,
    CDL_JSON,
    NUMBER,
    Connector,
    Images,
    PositionRule,
    Snapshots,
    Transactions,
    Types,
    Values,
)

_LSN = f"try_cast(source.lsn AS {NUMBER})"
_IS_1_0 = "payload.message_version = '1.0' AND payload.OPERATION IS NOT NULL"
_IS_2_0 = "payload.message_version = '2.0' AND payload.op IS NOT NULL"
_KIND = f"""CASE WHEN {_IS_1_0}
        THEN CASE payload.OPERATION WHEN 'INSERT' THEN 'c' WHEN 'UPDATE' THEN 'u' WHEN 'DELETE' THEN 'd' ELSE 'unknown' END
    WHEN payload.message_version IS NOT NULL AND payload.HEARTBEAT_IDENTIFIER IS NOT NULL THEN 'heartbeat' END"""

HUAWEI_CDL = Connector(
    # source.connector names the source in 2.0, and is absent in 1.0.
    names=("huawei-cdl-1.0", "huawei-cdl-2.0"),
    title="Huawei CDL",
    position=PositionRule(
        fields=("lsn", "txId"),
        # lsn is the change's: transactions interleave, so it falls and rises. The archive is in commit order. In files of values only, the
        # offset is the file's first; the order behind it is the place in the file.
        commit=f"coalesce(CAST({ORDINAL}.offset AS {NUMBER}), {_LSN})",
        change=f"CASE WHEN {OFFSET} IS NOT NULL THEN coalesce({_LSN}, CAST(0 AS {NUMBER}))"
        f" WHEN {ORDINAL}.offset IS NOT NULL THEN CAST({ORDINAL}.block * {2**64}BD + {ORDINAL}.row AS {NUMBER}) ELSE {_LSN} END",
        serial="1",
        # Positions are the archive's own.
        goes_back=False,
        is_offset=True,
    ),
    transactions=Transactions(identity="source.txId", share_commit=False),
    # A snapshot sends creates.
    snapshots=Snapshots(are_marked=False),
    images=Images(before_has_omitted=True, before_has_fillers=True, reads_are_whole=False, names_may_change=False),
    # After any vendor's prefix, such as com.xxx. The decimal's scale is not available: its text keeps every digit.
    types=Types(by_ending={"cdc.data.timestamp": AS_LOCAL_TIMESTAMP, "cdc.data.Decimal": AS_TEXT}),
    values=Values(
        shape=CDL_JSON,
        members=("message_version", "OPERATION", "HEARTBEAT_IDENTIFIER"),
        recognised={"huawei-cdl-1.0": _IS_1_0, "huawei-cdl-2.0": _IS_2_0},
        kind=_KIND,
        operation="OPERATION",
        image="data",
        key="unique",
        null_key_means_no_key=False,
    ),
)
"""The entry."""
