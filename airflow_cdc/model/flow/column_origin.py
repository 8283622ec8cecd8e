"""Where a column's type is from, and what the target table remembers of it (docs/reference/types.md)."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from airflow_cdc.model.plain_json import JsonObject


class Origin(str, Enum):
    """Where a column's type is from; the first that knows it decides."""

    FLOW = "flow"
    """``columns`` of the flows file."""
    EVENTS = "events"
    """The Connect schema inside the events of the microbatch."""
    ARCHIVE = "archive"
    """The schemas inside other events of the topic, in earlier or later files."""
    SCHEMA = "schema"
    """The schema that was handed over (``airflow-cdc schema import``)."""
    TOPIC = "schema-change topic"
    TABLE = "table"
    """The target table's column, and the JSON text read as that type."""
    VALUES = "values"
    """What the JSON values look like."""


TOPIC_COMMENT = "Read as the connector's schema-change topic tells"
"""Comment of a column whose values only the topic tells how to read. It stands in the commit that adds the column."""
ENCODED_COMMENT = "Encoded in bare JSON: read as the flow's settings or a schema of the source tell"
"""The same of a column that the flow declares with an encoding, or of which a schema beside the events tells."""
GUESSED_COMMENT = "Type taken from what the JSON values look like"
"""Comment of a column of which nothing but its values spoke when it was made."""


@dataclass(frozen=True)
class TypeReport(JsonObject, names={"sql_type": "type", "origin": "from"}, omits_defaults=True):
    """A column's type as a report tells it."""

    sql_type: str
    origin: Origin
    spelled: str = ""
    """How bare JSON spells the values, where the text alone does not say it: ``base64``, ``io.debezium.time.MicroTimestamp``."""
    doubt: str = ""
    """Why the type may be wrong: what the values look like; empty where nothing speaks against it."""
