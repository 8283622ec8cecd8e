"""A Delta schema's types have Spark's names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import StructField

from airflow_cdc.pipeline.look.spark_types import is_nested, simple_type

plain = st.sampled_from(
    [
        *("byte", "short", "integer", "long", "float", "double", "string", "boolean", "binary", "date"),
        *("timestamp", "timestamp_ntz", "variant", "decimal(38,0)", "decimal(5,2)"),
    ]
)


def _nested(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    members = st.lists(st.tuples(st.text("aB _é", min_size=1), inner), min_size=1, max_size=3)
    named = members.map(
        lambda parts: {"type": "struct", "fields": [{"name": n, "type": k, "nullable": True, "metadata": {}} for n, k in parts]}
    )
    arrays = inner.map(lambda kind: {"type": "array", "elementType": kind, "containsNull": True})
    maps = inner.map(lambda kind: {"type": "map", "keyType": "string", "valueType": kind, "valueContainsNull": True})
    return named | arrays | maps


@given(st.recursive(plain, _nested, max_leaves=6))
def test_a_type_has_the_name_that_pyspark_gives_it(kind: Any) -> None:
    expected = StructField.fromJson({"name": "c", "type": kind, "nullable": True, "metadata": {}}).dataType.simpleString()
    assert simple_type(kind) == expected
    assert is_nested(expected) is isinstance(kind, dict)


@pytest.mark.parametrize("kind", ["string", "decimal(3,1)"])
def test_a_plain_type_has_no_parts(kind: str) -> None:
    assert not is_nested(simple_type(kind))
