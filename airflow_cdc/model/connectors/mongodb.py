"""MongoDB: the ``mongodb`` connector. Documents as JSON text (``pipeline/decode/mongodb.py``).

Sources: Debezium's reference, and its examples of events.
"""

from __future__ import annotations

from airflow_cdc.model.columns import OFFSET, ORDINAL
from airflow_cdc.model.connectors.connector import (
    ENVELOPE_OF_A_DOCUMENT,
    NUMBER,
    Connector,
    Images,
    NativeRule,
    PositionRule,
    Values,
)

KEY = "_id"
"""The key column: the document's ``_id`` as extended JSON, as in the record's key."""
DOCUMENT = "document"
"""The only other column: the whole document as extended JSON."""

_TIME = f"try_cast(source.ts_ms AS {NUMBER})"
_ORD = f"try_cast(source.ord AS {NUMBER})"
_PLACE = f"coalesce({OFFSET}, {ORDINAL}.offset, 0)"


def _natively(member: str, kind: str) -> str:
    """Return the SQL of a member of ``source`` as a number; only its plain form, because Spark's cast accepts others."""
    return f"CASE WHEN regexp_full_match(source.{member}, '[0-9]{{1,18}}') THEN CAST(source.{member} AS {kind}) END"


MONGODB = Connector(
    names=("mongodb",),
    title="MongoDB",
    position=PositionRule(
        fields=("ord", "tord", "txnNumber", "stxnid"),
        # ts_ms is the cluster time's seconds, or the wall clock's milliseconds; ord counts the cluster time's ticks of one second.
        commit=f"CAST({_TIME} * {2**32}BD + {_ORD} AS {NUMBER})",
        change=f"CAST(0 AS {NUMBER})",
        # Changes of one transaction share their cluster time. Without tord only the archive distinguishes them. Every other change stands
        # alone there, so a copy of it has the same position.
        serial="coalesce(try_cast(source.tord AS BIGINT),"
        f" if(source.txnNumber IS NULL AND source.stxnid IS NULL, CAST(0 AS BIGINT), {_PLACE}))",
        # Positions are cluster time or the wall clock.
        goes_back=False,
    ),
    native=NativeRule(
        commit=f"{_natively('ts_ms', 'HUGEINT')} * {2**32} + {_natively('ord', 'HUGEINT')}",
        change="0",
        serial=f"CASE WHEN source.tord IS NOT NULL THEN {_natively('tord', 'BIGINT')}"
        f" WHEN source.txnNumber IS NULL AND source.stxnid IS NULL THEN 0 ELSE {OFFSET} END",
    ),
    # No identity: a key is free before another document takes it.
    images=Images(names_may_change=False),
    topic=("db", "collection"),
    package="mongo",
    values=Values(shape=ENVELOPE_OF_A_DOCUMENT, columns=(KEY, DOCUMENT), null_key_means_no_key=False),
)
"""The entry."""
