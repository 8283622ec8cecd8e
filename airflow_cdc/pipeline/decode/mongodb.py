"""MongoDB: documents as JSON text, and of an update perhaps only what changed.

``before`` and ``after`` are texts in MongoDB's extended JSON, the key's one member ``id`` is such a text too. An update tells the
document as it was looked up, or what changed in it (``updateDescription``; ``patch`` before Debezium 2), or both.
What was observed of them: docs/sources/mongodb.md.
"""

from __future__ import annotations

from collections.abc import Iterable

from airflow_cdc.model.columns import OFFSET, ORDINAL
from airflow_cdc.pipeline import sql

CONNECTOR = "mongodb"
KEY = "_id"
"""The key column: the document's ``_id`` as extended JSON, as the record's key has it."""
DOCUMENT = "document"
"""The only other column: the whole document as extended JSON."""
KEY_MEMBER = "id"
"""Member of a record's key that holds :data:`KEY`."""
PATCH = "__cdc_patch"
"""JSON text of what an update that tells no document changed in it (:mod:`airflow_cdc.pipeline.documents`)."""
PRE_IMAGE = "__cdc_pre_image"
"""JSON text of the document before the event, NULL where the event does not tell it."""
ID_IN_VALUE = "__cdc_id_in_value"
"""The document's ``_id`` as the value tells it, NULL where the records have keys."""
TELLS_ID = "coalesce(payload.after, payload.before, payload.filter)"
"""SQL of the text in a value that holds the document's ``_id``."""
HAS_IMAGE = f"(payload.after.{DOCUMENT} IS NOT NULL OR payload.patch IS NOT NULL)"
ADDED = (f"payload.patch AS {PATCH}", f"payload.before.{DOCUMENT} AS {PRE_IMAGE}")
"""SQL of the columns that events have besides those of every dialect."""
ADDED_NAMES = [PATCH, PRE_IMAGE]
MEMBERS = (KEY, DOCUMENT)
"""Of every event without schema: members of documents are no columns."""

_NUMBER = "DECIMAL(38,0)"
_TIME = f"try_cast(source.ts_ms AS {_NUMBER})"
_ORD = f"try_cast(source.ord AS {_NUMBER})"

# ts_ms is the cluster time's seconds, or the wall clock's milliseconds; ord counts the cluster time's ticks of one second.
COMMIT = f"CAST({_TIME} * {2**32}BD + {_ORD} AS {_NUMBER})"
# The changes of one transaction share their cluster time. Without tord only the archive tells them apart, and there every other change
# stands alone: so a copy of it has its position.
_PLACE = f"coalesce({OFFSET}, {ORDINAL}.offset, 0)"
SERIAL = f"coalesce(try_cast(source.tord AS BIGINT), if(source.txnNumber IS NULL AND source.stxnid IS NULL, CAST(0 AS BIGINT), {_PLACE}))"

_MEMBERS = dict.fromkeys(("before", "after", "updateDescription", "patch", "filter"), "STRING")


def decoded_members(source: str) -> dict[str, str]:
    """Return the members of a value beside those that tell its kind; ``source`` is the DDL of the source block's members."""
    return {**_MEMBERS, "source": f"STRUCT<{source}>"}


def as_debezium(payload: str, kinds: Iterable[str]) -> str:
    """Return the SQL of a value as an event about a row of :data:`KEY` and :data:`DOCUMENT` has it, with ``patch``."""

    def row(text: str) -> str:
        return f"if({text} IS NULL AND {ID_IN_VALUE} IS NULL, NULL, {sql.struct({KEY: ID_IN_VALUE, DOCUMENT: text})})"

    members = {
        **{name: f"{payload}.{name}" for name in kinds},
        "before": row(f"{payload}.before"),
        "after": row(f"{payload}.after"),
        "patch": f"if({payload}.after IS NULL, coalesce({payload}.updateDescription, {payload}.patch), NULL)",
        "source": f"{payload}.source",
    }
    return sql.struct_unless_null(payload, members)


def parsed_key(raw_key: str, *, wrapped: bool, bare: bool) -> str:
    """Return the SQL of a record's key as a struct of :data:`KEY`.

    :param raw_key: SQL of the key's JSON text.
    :param wrapped: whether some keys are ``{schema, payload}``.
    :param bare: whether some are not.
    """
    found = [f"from_json({raw_key}, 'payload STRUCT<{KEY_MEMBER}: STRING>').payload.{KEY_MEMBER}"] if wrapped else []
    found += [f"from_json({raw_key}, '{KEY_MEMBER} STRING').{KEY_MEMBER}"] if bare else []
    return f"named_struct('{KEY}', coalesce({', '.join(found)}))"
