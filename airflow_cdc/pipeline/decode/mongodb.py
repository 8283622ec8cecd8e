"""MongoDB: documents as JSON text, and of an update perhaps only what changed.

``before`` and ``after`` are texts in MongoDB's extended JSON, the key's one member ``id`` is such a text too. An update tells the
document as it was looked up, or what changed in it (``updateDescription``; ``patch`` before Debezium 2), or both.
What was observed of them: docs/sources/mongodb.md.
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
"""JSON text of what an update that tells no document changed in it (:mod:`airflow_cdc.pipeline.documents.documents`)."""
PRE_IMAGE = "__cdc_pre_image"
"""JSON text of the document before the event, NULL where the event does not tell it."""
ID_IN_VALUE = "__cdc_id_in_value"
"""The document's ``_id`` as the value tells it, NULL where the records have keys."""
_TELLS_ID = "coalesce(payload.after, payload.before, payload.filter)"
"""SQL of the text in a value that holds the document's ``_id``."""
_MEMBERS = dict.fromkeys(("before", "after", "updateDescription", "patch", "filter"), "STRING")


class DocumentEnvelope(ValueShape):
    """Envelopes whose images are documents as text."""

    has_own_columns = False
    has_image = f"(payload.after.{DOCUMENT} IS NOT NULL OR payload.patch IS NOT NULL)"
    added = (f"payload.patch AS {PATCH}", f"payload.before.{DOCUMENT} AS {PRE_IMAGE}")
    added_names = (PATCH, PRE_IMAGE)

    def members(self, *, before: str, after: str, source: str) -> dict[str, str]:
        """Return the members, the documents among them as texts."""
        return {**_MEMBERS, "source": f"STRUCT<{source}>"}

    def respelled(self, records: DataFrame, kinds: Iterable[str], *, has_keys: bool) -> DataFrame:
        """Return records whose images are rows of :data:`KEY` and :data:`DOCUMENT`."""
        in_value = F.lit(None).cast("string") if has_keys else id_of(F.expr(_TELLS_ID))
        return records.withColumn(ID_IN_VALUE, in_value).withColumn("payload", F.expr(as_debezium("payload", kinds)))

    def parsed_key(self, members: str, keys: Sequence[str], *, wrapped: bool, bare: bool) -> str:
        """Return the key by its member's own name."""
        return parsed_key(RAW_KEY, wrapped=wrapped, bare=bare)

    def unknown_columns(self, found: str) -> str:
        """Return the document where an update carries only what changed in it."""
        return f"if({PATCH} IS NULL, {found}, array('{DOCUMENT}'))"


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
