"""MongoDB: documents as JSON text. An update may carry only its changes.

``before`` and ``after`` are texts in MongoDB's extended JSON. So is the key's only member, ``id``. An update carries the looked-up
document, the changes (``updateDescription``; ``patch`` before Debezium 2), or both.
Observations: docs/sources/mongodb.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from airflow_cdc.model.columns import RAW_KEY
from airflow_cdc.model.connectors.mongodb import MONGODB
from airflow_cdc.pipeline.decode.value_shape import ValueShape
from airflow_cdc.pipeline.documents.document_functions import id_of
from airflow_cdc.pipeline.spark import sql

KEY, DOCUMENT = MONGODB.values.columns
KEY_MEMBER = "id"
"""Member of a record's key that holds :data:`KEY`."""
PATCH = "__cdc_patch"
"""JSON text of the changes of an update that carries no document (:mod:`airflow_cdc.pipeline.documents.documents`)."""
PRE_IMAGE = "__cdc_pre_image"
"""JSON text of the document before the event, NULL where the event does not carry it."""
ID_IN_VALUE = "__cdc_id_in_value"
"""The document's ``_id`` from the value, NULL where the records have keys."""
_HOLDS_ID = "coalesce(payload.after, payload.before, payload.filter)"
"""SQL of the text in a value that holds the document's ``_id``."""
_MEMBERS = dict.fromkeys(("before", "after", "updateDescription", "patch", "filter"), "STRING")


class DocumentEnvelope(ValueShape):
    """Envelopes whose images are documents as text."""

    has_own_columns = False
    has_image = f"(payload.after.{DOCUMENT} IS NOT NULL OR payload.patch IS NOT NULL)"
    added = (f"payload.patch AS {PATCH}", f"payload.before.{DOCUMENT} AS {PRE_IMAGE}")
    added_names = (PATCH, PRE_IMAGE)

    def members(self, *, before: str, after: str, source: str) -> dict[str, str]:
        """Return the members; documents are texts."""
        return {**_MEMBERS, "source": f"STRUCT<{source}>"}

    def respelled(self, records: DataFrame, kinds: Iterable[str], *, has_keys: bool) -> DataFrame:
        """Return records whose images are rows of :data:`KEY` and :data:`DOCUMENT`."""
        in_value = F.lit(None).cast("string") if has_keys else id_of(F.expr(_HOLDS_ID))
        return records.withColumn(ID_IN_VALUE, in_value).withColumn("payload", F.expr(as_debezium("payload", kinds)))

    def parsed_key(self, members: str, keys: Sequence[str], *, wrapped: bool, bare: bool) -> str:
        """Return the key, read by the name of its own member."""
        return parsed_key(RAW_KEY, wrapped=wrapped, bare=bare)

    def unknown_columns(self, found: str) -> str:
        """Return the document's column where an update carries only its changes."""
        return f"if({PATCH} IS NULL, {found}, array('{DOCUMENT}'))"


def as_debezium(payload: str, kinds: Iterable[str]) -> str:
    """Return the SQL of a value as an event about a row of :data:`KEY` and :data:`DOCUMENT`, with ``patch``."""

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
