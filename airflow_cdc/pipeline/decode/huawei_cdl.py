"""Huawei CDL: its two JSON spellings become a Debezium envelope, and an update of a key the two events that Debezium would send.

CDL JSON (``message_version`` 1.0) has names of its own; CDL's Debezium JSON (2.0) is an old Debezium's envelope with ``unique`` beside it.
Neither has a Kafka key, tombstones or a commit's position (docs/sources/huawei-cdl.md). ``LOB_COLUMNS`` names the columns of large
objects: where an update shows NULL in one, nothing tells whether it was set to NULL or left out. It keeps what it had.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame

from airflow_cdc.model.columns import KIND, OFFSET, ORDINAL
from airflow_cdc.pipeline import sql

CDL_JSON = "huawei-cdl-1.0"
CDL_DEBEZIUM_JSON = "huawei-cdl-2.0"
CONNECTORS = (CDL_JSON, CDL_DEBEZIUM_JSON)
"""What stands for ``source.connector``, which is the source's in 2.0 and absent in 1.0."""

KIND_MEMBERS = dict.fromkeys(("message_version", "OPERATION", "HEARTBEAT_IDENTIFIER"), "STRING")
"""Members by which :func:`kind` tells what a value is."""
SURVEYED_MEMBERS = dict.fromkeys(("data", "unique"), "STRING")
IMAGE = "data"
"""Member of 1.0 that holds the row after the event."""
KEY = "unique"
"""Member that holds the row's key: of an update the new one."""

_LOBS = "LOB_COLUMNS"
"""Member that names the columns of large objects, with commas between."""

_OPERATIONS = {"INSERT": "c", "UPDATE": "u", "DELETE": "d"}
_NUMBER = "DECIMAL(38,0)"
_LSN = f"try_cast(source.lsn AS {_NUMBER})"

# lsn is the change's: transactions interleave, so it goes down and up. The archive has them as they were committed. In files of
# values only the offset is the file's first; what follows is told by the place in the file.
COMMIT = f"coalesce(CAST({ORDINAL}.offset AS {_NUMBER}), {_LSN})"
CHANGE = (
    f"CASE WHEN {OFFSET} IS NOT NULL THEN coalesce({_LSN}, CAST(0 AS {_NUMBER}))"
    f" WHEN {ORDINAL}.offset IS NOT NULL THEN CAST({ORDINAL}.block * {2**64}BD + {ORDINAL}.row AS {_NUMBER}) ELSE {_LSN} END"
)


def connector(payload: str) -> str:
    """Return the SQL of a value's connector; ``payload`` is a struct with :data:`KIND_MEMBERS` and ``source.connector``."""
    return f"""CASE WHEN {payload}.message_version = '1.0' AND {payload}.OPERATION IS NOT NULL THEN '{CDL_JSON}'
        WHEN {payload}.message_version = '2.0' AND {payload}.op IS NOT NULL THEN '{CDL_DEBEZIUM_JSON}'
        ELSE {payload}.source.connector END"""


def kind(payload: str) -> str:
    """Return the SQL of what a value of CDL is, NULL for one that is none of 1.0 and no heartbeat."""
    operations = " ".join(f"WHEN {sql.text(name)} THEN '{code}'" for name, code in _OPERATIONS.items())
    return f"""CASE WHEN {payload}.message_version = '1.0' AND {payload}.OPERATION IS NOT NULL
            THEN CASE {payload}.OPERATION {operations} ELSE 'unknown' END
        WHEN {payload}.message_version IS NOT NULL AND {payload}.HEARTBEAT_IDENTIFIER IS NOT NULL THEN 'heartbeat' END"""


def decoded_members(image: str) -> dict[str, str]:
    """Return the members that a value has besides Debezium's; ``image`` is the DDL of a row's members."""
    transaction = "STRUCT<properties: ARRAY<STRUCT<name: STRING, value: STRING>>>"
    return {IMAGE: f"STRUCT<{image}>", KEY: "STRING", "TIMESTAMP": "STRING", _LOBS: "STRING", "transaction": transaction}


def as_debezium(payload: str, kinds: Iterable[str]) -> str:
    """Return the SQL of a value of either version as one struct: ``kinds``, ``before``, ``after``, ``source``, ``unique``."""

    def told(name: str) -> str:
        listed = f"filter({payload}.transaction.properties, property -> property.name = '{name}')"
        return f"coalesce({payload}.source.{name}, try_element_at({listed}, 1).value)"

    time = f"coalesce({payload}.source.ts_ms, {payload}.TIMESTAMP)"
    source = f"named_struct('ts_ms', {time}, 'lsn', {told('lsn')}, 'txId', {told('txId')})"
    members = {
        **{name: f"{payload}.{name}" for name in kinds},
        "before": f"{payload}.before",
        "after": f"coalesce({payload}.after, {payload}.{IMAGE})",
        "source": source,
        KEY: f"{payload}.{KEY}",
        _LOBS: f"{payload}.{_LOBS}",
    }
    return sql.struct_unless_null(payload, members)


def changes_key(keys: Sequence[str]) -> str:
    """Return the SQL that is true for a record whose one event moves a row from one key to another."""
    moved = " OR ".join(
        f"(payload.before.{name} IS NOT NULL AND NOT payload.before.{name} <=> payload.after.{name})" for name in map(sql.name, keys)
    )
    return f"{KIND} = 'u' AND payload.before IS NOT NULL AND payload.after IS NOT NULL AND ({moved or 'false'})"


def leaves_out(name: str, text: str) -> str:
    """Return the SQL that is true for a large object's column that an update, or the create behind a key change, does not tell.

    :param text: SQL of the column's value.
    """
    listed = f"array_contains(transform(split(payload.{_LOBS}, ','), name -> trim(name)), {sql.text(name)})"
    return f"{text} IS NULL AND ({KIND} = 'u' OR ({KIND} = 'c' AND payload.source.serial = 2)) AND coalesce({listed}, false)"


def split_key_changes(records: DataFrame, keys: Sequence[str], kinds: Iterable[str]) -> DataFrame:
    """Return the records with each update of a key as a delete of the old one and a create of the new one.

    Both keep the position but for the serial, 1 and 2, as SQL Server tells the two apart.

    :param records: with our kind, ``payload`` as :func:`as_debezium` makes it, and ``key``, the struct of the key's texts.
    """
    others = [name for name in records.columns if name not in (KIND, "payload", "key")]
    old = _part("'d'", _payload(kinds, serial=1, after="if(false, payload.after, NULL)"), "if(false, key, NULL)")
    new = _part("'c'", _payload(kinds, serial=2, before="if(false, payload.before, NULL)"), "key")
    parts = f"if({changes_key(keys)}, array({old}, {new}), array({_part(KIND, _payload(kinds, serial=1), 'key')}))"
    return records.selectExpr(*others, f"explode({parts}) AS part").selectExpr(*others, f"part.kind AS {KIND}", "part.payload", "part.key")


def _part(kind_sql: str, payload: str, key: str) -> str:
    return f"named_struct('kind', {kind_sql}, 'payload', {payload}, 'key', {key})"


def _payload(kinds: Iterable[str], *, serial: int, before: str = "payload.before", after: str = "payload.after") -> str:
    source = f"named_struct('ts_ms', payload.source.ts_ms, 'lsn', payload.source.lsn, 'txId', payload.source.txId, 'serial', {serial})"
    members = {**{name: f"payload.{name}" for name in kinds}, "before": before, "after": after, "source": source, _LOBS: f"payload.{_LOBS}"}
    return sql.struct_unless_null("payload", members)
