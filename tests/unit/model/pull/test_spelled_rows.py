"""Which columns two databases spell alike: by both types, and never with a cast that rounds."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc.model.flow.source_schema import SourceColumn
from airflow_cdc.model.pull.spelled_rows import MYSQL, POSTGRESQL, Spelling, spelling_of

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


@pytest.mark.parametrize(
    ("field", "kind", "spelling"),
    [
        ({"type": "int32"}, "int", Spelling.WHOLE),
        ({"type": "int64"}, "decimal(20,0)", Spelling.WHOLE),
        ({"type": "int64"}, "string", None),
        (DECIMAL, "decimal(12,2)", Spelling.DECIMAL),
        (DECIMAL, "decimal(12,3)", None),
        (DECIMAL, "decimal(12,12)", None),
        (DECIMAL, "bigint", None),
        (DECIMAL, "double", None),
        ({**DECIMAL, "parameters": {"scale": "0"}}, "decimal(20,0)", Spelling.WHOLE),
        ({"type": "double"}, "double", None),
        ({"type": "string"}, "string", Spelling.TEXT),
        ({"type": "string", "name": "io.debezium.data.Json"}, "string", None),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "timestamp", Spelling.INSTANT),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "string", None),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, "timestamp_ntz", Spelling.MICROSECONDS),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, "bigint", None),
        ({"type": "bytes"}, "binary", Spelling.BYTES),
        ({"type": "bytes", "name": "io.debezium.data.Bits"}, "binary", None),
        ({"type": "array", "items": {"type": "int32"}}, "array<int>", None),
        ({}, "string", None),
    ],
)
def test_a_column_has_a_spelling_where_both_types_have_it(field: dict[str, Any], kind: str, spelling: Spelling | None) -> None:
    assert spelling_of(SourceColumn("c", field), kind) is spelling


@pytest.mark.parametrize(("dialect", "quoted"), [(POSTGRESQL, '"a""b"'), (MYSQL, '`a"b`')], ids=["postgresql", "mysql"])
def test_names_are_quoted(dialect: Any, quoted: str) -> None:
    assert quoted in dialect.hash_of({'a"b': Spelling.TEXT})
    assert MYSQL.quote("a`b") == "`a``b`"
