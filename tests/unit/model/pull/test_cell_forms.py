"""Which columns two databases spell alike: by both types, and never with a cast that rounds."""

from __future__ import annotations

from typing import Any

import pytest

from airflow_cdc.model.catalogue.row_hashes import CellForm
from airflow_cdc.model.flow.source_schema import SourceColumn
from airflow_cdc.model.pull.cell_forms import form_of
from airflow_cdc.model.pull.settings import catalogues

DECIMAL = {"type": "bytes", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}}


@pytest.mark.parametrize(
    ("field", "kind", "form"),
    [
        ({"type": "int32"}, "int", CellForm.WHOLE),
        ({"type": "int64"}, "decimal(20,0)", CellForm.WHOLE),
        ({"type": "int64"}, "string", None),
        (DECIMAL, "decimal(12,2)", CellForm.DECIMAL),
        (DECIMAL, "decimal(12,3)", None),
        (DECIMAL, "decimal(12,12)", None),
        (DECIMAL, "bigint", None),
        (DECIMAL, "double", None),
        ({**DECIMAL, "parameters": {"scale": "0"}}, "decimal(20,0)", CellForm.WHOLE),
        ({"type": "double"}, "double", None),
        ({"type": "string"}, "string", CellForm.TEXT),
        ({"type": "string", "name": "io.debezium.data.Json"}, "string", None),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "timestamp", CellForm.INSTANT),
        ({"type": "string", "name": "io.debezium.time.ZonedTimestamp"}, "string", None),
        ({"type": "int64", "name": "io.debezium.time.MicroTimestamp"}, "timestamp_ntz", CellForm.MICROSECONDS),
        ({"type": "int64", "name": "io.debezium.time.MicroTime"}, "bigint", None),
        ({"type": "bytes"}, "binary", CellForm.BYTES),
        ({"type": "bytes", "name": "io.debezium.data.Bits"}, "binary", None),
        ({"type": "array", "items": {"type": "int32"}}, "array<int>", None),
        ({}, "string", None),
    ],
)
def test_a_column_has_a_form_where_both_types_have_it(field: dict[str, Any], kind: str, form: CellForm | None) -> None:
    assert form_of(SourceColumn("c", field), kind) is form


def test_names_are_quoted() -> None:
    quoted = {name: entry.dialect.hash_of({'a"b`c': CellForm.TEXT}) for name, entry in catalogues().items() if entry.dialect}
    assert quoted.keys() == {"postgresql", "mysql", "mariadb"}
    assert '"a""b`c"' in quoted["postgresql"]
    assert '`a"b``c`' in quoted["mysql"]
