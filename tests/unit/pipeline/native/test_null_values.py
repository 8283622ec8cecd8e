"""Records that say that they have no value, told from those that lack the member."""

from __future__ import annotations

import json
from io import BytesIO

import pytest

from airflow_cdc.pipeline.native.null_values import count_last_nulls, count_null_values


@pytest.mark.parametrize(
    ("line", "counts"),
    [
        ('{"key":1,"value":null}', True),
        ('{"key": 1, "value": null}', True),
        ('{"value":null,"key":{"value":null}}', True),
        ('{"key":{"value":null}}', False),
        ('{"key":"\\"value\\":null"}', False),
        ('{"key":1}', False),
        ('{"key":1,"value":{"before":{"value":null}}}', False),
        ('[{"value":null}]', False),
    ],
)
def test_a_line_counts_if_its_own_member_is_null(line: str, counts: bool) -> None:
    others = json.dumps({"key": 2, "value": {"value": None}}) + "\n"
    for ending in ("", "\n", "\r\n"):
        assert count_null_values(BytesIO((others + line + ending).encode())) == counts
        if ending:
            assert count_null_values(BytesIO((line + ending + others).encode())) == counts


def test_lines_are_found_in_a_text_of_many_blocks() -> None:
    text = (b'{"key":"' + b"x" * 70_000 + b'","value":{}}\n' + b'{"key":1,"value":null}\n') * 200
    assert count_null_values(BytesIO(text)) == count_last_nulls(BytesIO(text)) == 200
    # Not sure, and so not counted at little cost.
    assert count_last_nulls(BytesIO(b'{"value":null,"key":1}\n{"value":null} \n')) == 0


def test_a_line_that_is_no_document_is_told() -> None:
    with pytest.raises(ValueError, match="Expecting"):
        count_null_values(BytesIO(b'{"key":1,"value":null\n'))
