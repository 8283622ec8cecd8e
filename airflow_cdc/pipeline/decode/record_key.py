"""A record's key: parsed only where the row's image does not carry it."""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc.model.columns import KIND, RAW_KEY
from airflow_cdc.pipeline.read.one_document import STRICT
from airflow_cdc.pipeline.spark import sql


def parse_key(members: str, *, wrapped: bool, bare: bool) -> str:
    """Return the SQL of a record's key as a struct of texts.

    :param members: DDL of the key's members.
    :param wrapped: whether some keys are ``{schema, payload}``.
    :param bare: whether some are not.
    """
    forms = [f"from_json({RAW_KEY}, {sql.text(f'payload STRUCT<{members}>')}, map({STRICT})).payload"] if wrapped else []
    forms += [f"from_json({RAW_KEY}, {sql.text(members)}, map({STRICT}))"] if bare else []
    return f"coalesce({', '.join(forms)})"


def unless_in_image(keys: Iterable[str], parsed: str) -> str:
    """Return the SQL of the parsed key, NULL where the after image has it: parsing a key costs about as much as parsing a line."""
    in_image = " AND ".join(f"payload.after.{sql.name(key)} IS NOT NULL" for key in keys)
    return f"if(coalesce(payload.op <> 'd' AND {in_image}, false), NULL, {parsed})"


def key_text(quoted: str, *, in_key: bool, is_single: bool = False) -> str:
    """Return the SQL of the text of a key column.

    :param quoted: the column's name.
    :param in_key: whether records have keys.
    :param is_single: whether a record's key may be the column's value alone.
    """
    before, after = f"payload.before.{quoted}", f"payload.after.{quoted}"
    if in_key:
        # With REPLICA IDENTITY USING INDEX, a delete's before image has fillers in the key.
        before, after = f"coalesce(key.{quoted}, {before})", f"coalesce({after}, key.{quoted})"
    if is_single:
        # A single value names no column, so an image that carries the column takes precedence.
        before, after = f"coalesce({before}, {_SINGLE_VALUE})", f"coalesce({after}, {_SINGLE_VALUE})"
    return f"if({KIND} = 'd', {before}, {after})"


_SINGLE_VALUE = f"if(json_object_keys({RAW_KEY}) IS NULL, {RAW_KEY}, get_json_object({RAW_KEY}, '$.payload'))"
"""SQL of the text of a key that is a single value, bare or with a schema."""
