"""A key as people write it, against the forms in which records spell it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.pipeline.look.key_text import lines_with, parse_key


@pytest.mark.parametrize(
    ("text", "kind", "raw", "other"),
    [
        ("42", "bigint", 42, 4),
        ("42", "string", "42", "042"),
        ("12.50", "decimal(10,2)", "BOI=", "BOM="),
        ("12.5", "decimal(10,2)", Decimal("12.50"), Decimal("12.51")),
        ("2026-01-02", "date", 20455, 20456),
        ("2026-01-02T00:00:00Z", "timestamp", 1767312000000000, 1767312000000001),
        ("true", "boolean", True, False),
    ],
)
def test_a_value_is_found_in_its_archived_forms(text: str, kind: str, raw: Any, other: Any) -> None:
    value = parse_key(text, ["k"], {"k": kind})["k"]
    assert value.is_at(raw)
    assert not value.is_at(other)
    assert not value.is_at(None)


def test_a_key_of_several_columns_is_written_by_name_or_as_json() -> None:
    types = {"a": "int", "b": "string"}
    for text in ("a=1,b=x,y", '{"a": 1, "b": "x,y"}'):
        assert {name: value.text for name, value in parse_key(text, ["a", "b"], types).items()} == {"a": "1", "b": "x,y"}
    with pytest.raises(ConfigurationError, match=r"expected a=…, b=…"):
        parse_key("1", ["a", "b"], types)
    with pytest.raises(ConfigurationError, match=r"expected column=value of one column or more"):
        parse_key("1", [], {})
    with pytest.raises(ConfigurationError, match="; not 'c'"):
        parse_key("a=1,b=2,c=3", ["a", "b"], types)


def test_the_search_finds_each_line_with_the_key_and_few_others() -> None:
    pattern = lines_with(parse_key("42", ["id"], {"id": "int"}))
    assert pattern.search(b'{"key":{"id" : 42},')
    assert pattern.search(b'{"id":"42"}')
    assert not pattern.search(b'{"id":421}')
    assert not pattern.search(b'{"nr":42}')
    # Such a text may be escaped in other ways: the name alone is looked for.
    assert lines_with(parse_key("é/ü", ["id"], {"id": "string"})).search('{"id":"\\u00e9/ü"}'.encode())
