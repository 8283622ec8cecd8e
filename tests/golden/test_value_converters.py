"""Fields made of catalogues of SQL Server, Oracle and Db2, against those that the connectors' own code makes of the same columns.

``catalogues/value_converters.jsonl.gz``: a line a column and setting: the row as the database's view is documented to give it, and the
Connect field that the value converters of Debezium 3.5.0.Final built of the column as its JDBC driver describes it. No server was asked.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter
from typing import Any

from airflow_cdc.model.pull.settings import settings_of
from airflow_cdc.model.pull.source_column import source_column
from tests.golden.connect_schemas import CATALOGUES, comparable

OTHERWISE = {
    # The reference has Decimal, the code a decimal of variable scale: we leave it out.
    ("db2", "DECFLOAT"),
    # Later versions write it, as Json.
    ("oracle", "JSON"),
}


def type_of(line: dict[str, Any]) -> tuple[str, str]:
    row = line["row"]
    return line["connector"], row[2] if line["connector"] == "db2" else row[1]


def test_every_type_in_every_mode_is_as_the_connectors_code_has_it() -> None:
    with gzip.open(CATALOGUES / "value_converters.jsonl.gz", "rt", encoding="utf-8") as lines:
        columns = [json.loads(line) for line in lines]

    differing: Counter[tuple[str, str]] = Counter()
    for column in columns:
        settings = settings_of(column["connector"], column["settings"])
        found = comparable(source_column(column["connector"], column["row"], settings).field)
        differing[type_of(column)] += found != column["field"]

    assert {kind for kind, count in differing.items() if count} == OTHERWISE
    assert len(columns) == 1194
