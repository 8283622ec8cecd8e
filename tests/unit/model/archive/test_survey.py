"""What a survey wrote down is read back, and which topics carry rows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from airflow_cdc.model.archive.survey import (
    OffsetHoles,
    RecordLayout,
    Survey,
    TopicShape,
    is_control_topic,
    shapes_from_json,
    shapes_to_json,
)
from tests.support.surveys import archived, shape, survey


@pytest.mark.parametrize(
    ("topic", "kinds", "is_control"),
    [
        # by what the topic holds
        ("server1.transaction", {"transaction"}, True),
        ("server1", {"schema_change"}, True),
        ("any.name", {"heartbeat"}, True),
        ("any.name", {"transaction", "heartbeat", "schema_change", "tombstone"}, True),
        ("server1.dbo.t", {"c"}, False),
        ("server1.dbo.t", {"r", "u", "d", "tombstone"}, False),
        ("server1.dbo.t", {"t"}, False),
        # one row event, or one line that nobody understands, and the topic is looked at
        ("server1.dbo.t", {"c", "heartbeat"}, False),
        ("server1.dbo.t", {"malformed"}, False),
        ("server1.dbo.t", {"unknown", "heartbeat"}, False),
        ("server1.dbo.t", {"malformed", "transaction"}, False),
        # tombstones alone show nothing of their topic
        ("server1.dbo.t", {"tombstone"}, False),
        ("server1.dbo.t", set(), False),
        # by name, whatever is in it
        ("__debezium-heartbeat.server1", {"heartbeat"}, True),
        ("__debezium-heartbeat.server1", {"unknown"}, True),
        ("server1.dbo.debezium_signal", {"c"}, True),
        ("server1.dbo.DEBEZIUM_SIGNAL", {"c", "d", "tombstone"}, True),
        ("server1.dbo.debezium_signals", {"c"}, True),
        ("debezium_signal", {"c"}, True),
        # names that only look like it
        ("server1.debezium_signal.orders", {"c"}, False),
        ("server1.dbo.my_debezium_signal", {"c"}, False),
        ("server1.dbo.transaction", {"c"}, False),
        ("server1.__debezium-heartbeat", {"c"}, False),
    ],
)
def test_a_topic_is_control_by_what_it_holds_or_by_a_name_of_debeziums(topic: str, kinds: set[str], is_control: bool) -> None:
    assert is_control_topic(topic, kinds) is is_control


def test_a_long_schema_is_written_once_however_many_shapes_share_it() -> None:
    schema = json.dumps({"type": "struct", "fields": [{"field": "é" * 1000, "type": "string"}]}, ensure_ascii=False)
    shapes = (
        shape("a", "t", "c", value_shape=schema),
        shape("a", "t", "d", value_shape=schema, key_shape=schema),
        shape("b", "t", "tombstone", value_shape=None, key_shape='["id"]'),
        shape("c", "u", "unknown", value_shape=None, key_shape=None),
    )
    document = shapes_to_json(shapes)

    assert document["texts"] == ['["id"]', schema]
    assert [(row["key_shape"], row["value_shape"]) for row in document["shapes"]] == [(0, 1), (1, 1), (0, None), (None, None)]
    assert json.dumps(document, ensure_ascii=False).count("é" * 1000) == 1
    assert shapes_from_json(json.loads(json.dumps(document))) == shapes


def test_the_first_shape_of_all_is_not_taken_for_none() -> None:
    # Number 0 of the list of texts is falsy, and a shape all the same.
    only = (shape("a", "t", key_shape="[]", value_shape="[]"),)
    assert shapes_from_json(shapes_to_json(only)) == only


def test_a_survey_knows_its_topics_and_their_files_in_its_own_order() -> None:
    found = Survey(
        "file:///archive",
        3,
        (archived("b"), archived("a"), archived("empty"), archived("c")),
        (shape("a", "t"), shape("b", "t"), shape("b", "u"), shape("b", "t", "d"), shape("c", "u")),
    )
    assert found.topics() == ("t", "u")
    assert [file.path for file in found.files_of("t")] == ["b", "a"]
    assert [file.path for file in found.files_of("u")] == ["b", "c"]
    assert found.files_of("v") == ()


def test_a_survey_survives_its_json() -> None:
    holes = (OffsetHoles("y", "t", 1, ((2, 3), (2**60, 2**60)), 7),)
    found = replace(survey(7, {"x/é.jsonl": ["t", "u"], "y": []}, sizes={"y": 2**60}), holes=holes)
    assert Survey.from_json(json.loads(json.dumps(found.to_json()))) == found
    value_only = TopicShape("f", "t", RecordLayout.VALUE, "r", None, None, None, None, False, 0, None, None)
    assert shapes_from_json(json.loads(json.dumps(shapes_to_json([value_only])))) == (value_only,)
