"""Rejects: why a record cannot be merged."""

from __future__ import annotations

from airflow_cdc.model.columns import KIND, POSITION, RAW_KEY
from airflow_cdc.model.errors import RejectReason
from airflow_cdc.pipeline.decode.envelope import MEMBERS_SEEN, no_utf8
from airflow_cdc.pipeline.decode.source_columns import SourceColumns
from airflow_cdc.pipeline.decode.whole_rows import before_name, reasons_of_incomplete_rows
from airflow_cdc.pipeline.spark import sql

HAS_IMAGE = "__cdc_has_image"
"""Staged column: whether the event carries the row after it."""
IS_OURS = "__cdc_is_ours"
"""Staged column: whether the record names its topic's connector, or none."""
UNPROVEN_KEY = "__cdc_unproven_key"
"""Staged column: whether the record is a delete whose key may be made of fillers."""
REJECT_TYPE = "STRUCT<reason: STRING, detail: STRING>"


_UNPROVEN = "'the image before does not prove the key: its other columns, and the key itself, may be fillers'"


def reject_of(columns: SourceColumns, *, without_key: bool, foreign: str | None) -> str:
    """Return the SQL (:data:`REJECT_TYPE`) of the first reason why a staged record cannot be merged, NULL for a good record.

    :param columns: of the flow; staged under their names as text.
    :param without_key: whether the before image is staged too.
    :param foreign: SQL that is true for a record of a foreign shape, None if there is none.
    """
    is_row = f"{KIND} IN ('r', 'c', 'u', 'd')"
    keys_missing = " OR ".join(f"{sql.name(key)} IS NULL" for key in columns.keys) or "false"
    position_missing = f"{POSITION}.commit IS NULL OR {POSITION}.change IS NULL"
    reasons = reasons_of_incomplete_rows() if without_key else ()
    incomplete_rows = "".join(f" WHEN {condition} THEN {_reject(RejectReason.INCOMPLETE_ROW, words)}" for condition, words in reasons)
    is_foreign = f"WHEN {foreign} THEN {_reject(RejectReason.FOREIGN_SHAPE)}" if foreign else ""
    misfits = _misfits(columns, without_key=without_key)
    return f"""CAST(CASE
        WHEN {KIND} = 'malformed' AND {no_utf8(RAW_KEY)} THEN {_reject(RejectReason.INVALID_UTF8)}
        WHEN {KIND} = 'malformed' THEN {_reject(RejectReason.MALFORMED_JSON)}
        WHEN {KIND} = 'unknown' THEN {_reject(RejectReason.NOT_A_CHANGE_EVENT, f"concat('a document of ', left({MEMBERS_SEEN}, 200))")}
        WHEN NOT ({is_row}) AND {KIND} <> 't' THEN NULL
        WHEN NOT {IS_OURS} THEN {_reject(RejectReason.OTHER_CONNECTOR)}
        {is_foreign}
        WHEN {position_missing} THEN {_reject(RejectReason.MISSING_POSITION)}
        WHEN {KIND} = 't' THEN NULL
        WHEN {keys_missing} THEN {_reject(RejectReason.MISSING_KEY)}
        WHEN {UNPROVEN_KEY} THEN {_reject(RejectReason.UNPROVEN_KEY, _UNPROVEN)}
        WHEN {KIND} <> 'd' AND NOT {HAS_IMAGE} THEN {_reject(RejectReason.MISSING_IMAGE)}{incomplete_rows}{misfits}
        END AS {REJECT_TYPE})"""


def _misfits(columns: SourceColumns, *, without_key: bool) -> str:
    texts = [(name, sql.name(name)) for name in columns.types]
    texts += [(name, sql.name(before_name(name))) for name in columns.types if without_key]
    return "".join(
        f" WHEN {text} IS NOT NULL AND {rule.read(text)} IS NULL THEN "
        + _reject(
            RejectReason.VALUE_DOES_NOT_FIT_COLUMN, f"concat({sql.text(f'column {name} is {rule.sql_type}, seen: ')}, left({text}, 200))"
        )
        for name, text in texts
        if (rule := columns.types[name]).checked
    )


def _reject(reason: RejectReason, detail: str = "CAST(NULL AS STRING)") -> str:
    return f"named_struct('reason', '{reason.value}', 'detail', {detail})"
