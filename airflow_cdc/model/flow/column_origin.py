"""Origin of a column's type, and what the target table records of it (docs/reference/types.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_cdc.model.plain_json import JsonObject


class Origin(str, Enum):
    """Origin of a column's type; the first that knows the type decides."""

    FLOW = "flow"
    """``columns`` of the flows file."""
    EVENTS = "events"
    """The Connect schema inside the events of the microbatch."""
    ARCHIVE = "archive"
    """The schemas inside other events of the topic, in earlier or later files."""
    SCHEMA = "schema"
    """The imported schema (``airflow-cdc schema import``)."""
    TOPIC = "schema-change topic"
    TABLE = "table"
    """The target table's column, and the JSON text read as that type."""
    VALUES = "values"
    """The appearance of the JSON values."""


TOPIC_COMMENT = "Read as the connector's schema-change topic tells"
"""Comment of a column whose encoding only the schema-change topic shows. It is part of the commit that adds the column."""
ENCODED_COMMENT = "Encoded in bare JSON: read as the flow's settings or a schema of the source tell"
"""As above, for a column that the flow declares with an encoding, or that a schema beside the events describes."""
GUESSED_COMMENT = "Type taken from what the JSON values look like"
"""Comment of a column whose type came from its values alone when it was made."""


@dataclass(frozen=True)
class TypeReport(JsonObject, names={"sql_type": "type", "origin": "from"}, omits_defaults=True):
    """A column's type in a report."""

    sql_type: str
    origin: Origin
    spelled: str = ""
    """How bare JSON encodes the values, where the text alone does not show it: ``base64``, ``io.debezium.time.MicroTimestamp``."""
    doubt: str = ""
    """Why the type may be wrong, from the values' appearance; empty where nothing contradicts it."""
