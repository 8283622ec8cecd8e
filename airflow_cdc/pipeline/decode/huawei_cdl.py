"""Huawei CDL: converts its two JSON forms to a Debezium envelope.

A key change is one update, which is split (:mod:`airflow_cdc.pipeline.decode.key_changes`).

:mod:`airflow_cdc.model.connectors.huawei_cdl` describes the two forms, docs/sources/huawei-cdl.md what was observed of them.

``LOB_COLUMNS`` names the columns of large objects. An update's NULL in one of them is ambiguous: set to NULL, or left out. The column
keeps its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import KIND, RAW_KEY
from airflow_cdc.model.connectors.huawei_cdl import HUAWEI_CDL
from airflow_cdc.pipeline.decode.key_changes import HALF
from airflow_cdc.pipeline.decode.record_key import parse_key
from airflow_cdc.pipeline.decode.value_shape import ValueShape
from airflow_cdc.pipeline.spark import sql

_IMAGE, _KEY = HUAWEI_CDL.values.image, HUAWEI_CDL.values.key
_LOBS = "LOB_COLUMNS"
"""Member that names the columns of large objects, separated by commas."""


class CdlJson(ValueShape):
    """CDL's two JSON forms."""

    images = ("after", _IMAGE)
    splits_key_changes = False

    def members(self, *, before: str, after: str, source: str) -> dict[str, str]:
        """Return Debezium's members, and those of 1.0."""
        transaction = "STRUCT<properties: ARRAY<STRUCT<name: STRING, value: STRING>>>"
        own = {_IMAGE: f"STRUCT<{after}>", _KEY: "STRING", "TIMESTAMP": "STRING", _LOBS: "STRING", "transaction": transaction}
        return {**super().members(before=before, after=after, source=source), **own}

    def respelled(self, records: DataFrame, kinds: Iterable[str], *, has_keys: bool) -> DataFrame:
        """Return records as a Debezium envelope, with the key from the value where the record has none."""
        key = f"coalesce({RAW_KEY}, payload.{_KEY})"
        return records.withColumns({RAW_KEY: F.expr(key), "payload": F.expr(as_debezium("payload", kinds))})

    def parsed_key(self, members: str, keys: Sequence[str], *, wrapped: bool, bare: bool) -> str:
        """Return the parsed key of every record; an update's is the new key."""
        return parse_key(members, wrapped=wrapped, bare=bare)

    def leaves_out(self, name: str, text: str) -> str:
        """Return the condition that a large object may be left out."""
        return leaves_out(name, text)


def as_debezium(payload: str, kinds: Iterable[str]) -> str:
    """Return the SQL of a value of either version as one struct: ``kinds``, ``before``, ``after``, ``source``, ``unique``."""

    def from_source(name: str) -> str:
        listed = f"filter({payload}.transaction.properties, property -> property.name = '{name}')"
        return f"coalesce({payload}.source.{name}, try_element_at({listed}, 1).value)"

    time = f"coalesce({payload}.source.ts_ms, {payload}.TIMESTAMP)"
    source = f"named_struct('ts_ms', {time}, 'lsn', {from_source('lsn')}, 'txId', {from_source('txId')})"
    members = {
        **{name: f"{payload}.{name}" for name in kinds},
        "before": f"{payload}.before",
        "after": f"coalesce({payload}.after, {payload}.{_IMAGE})",
        "source": source,
        _KEY: f"{payload}.{_KEY}",
        _LOBS: f"{payload}.{_LOBS}",
    }
    return sql.struct_unless_null(payload, members)


def leaves_out(name: str, text: str) -> str:
    """Return the SQL that is true for a large object's column that an update, or the create of a key change, does not carry.

    :param text: SQL of the column's value.
    """
    listed = f"array_contains(transform(split(payload.{_LOBS}, ','), name -> trim(name)), {sql.text(name)})"
    return f"{text} IS NULL AND ({KIND} = 'u' OR {HALF} = 2) AND coalesce({listed}, false)"
