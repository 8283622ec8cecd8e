"""Which tables are written without Spark: a commit of ours holds all that the table asks of a writer."""

from __future__ import annotations

import json
from typing import Any

from airflow_cdc.pipeline.target.file_statistics import are_by_default

WRITABLE_FEATURES = frozenset({"appendOnly", "invariants", "deletionVectors", "timestampNtz", "v2Checkpoint"})
"""Delta features of whose tables commits are made here, as far as nothing uses the first two."""
_PLAIN = 2
"""The newest protocol of writers without named features whose tables ask for nothing else."""
_ASKED = {"delta.appendOnly": "true", "delta.enableChangeDataFeed": "true", "delta.checkpoint.writeStatsAsJson": "false"}
"""Properties, with the values with which a commit would have to hold more, or its log could not be read here."""


def why_not_written(table: Any) -> str | None:
    """Return why only Spark writes a table; None where it is written here.

    :param table: delta-rs's table.
    """
    protocol, metadata = table.protocol(), table.metadata()
    properties, fields = metadata.configuration, json.loads(table.schema().to_json())["fields"]
    foreign = sorted({*(protocol.writer_features or ())} - WRITABLE_FEATURES)
    against = {
        f"its features {', '.join(foreign)}": foreign,
        f"its protocol of writers is {protocol.min_writer_version}": not protocol.writer_features and protocol.min_writer_version > _PLAIN,
        "it is partitioned": metadata.partition_columns,
        "it asks for more than rows, by its properties": any(properties.get(name) == value for name, value in _ASKED.items()),
        "its properties say which columns have statistics": not are_by_default(properties),
        "it has constraints": any(not field["nullable"] or "delta.invariants" in field["metadata"] for field in fields),
    }
    reason = next((reason for reason, is_so in against.items() if is_so), None)
    return reason and f"only Spark writes the table: {reason}"
