"""What a rejected line shows itself to be: the first thing that a person reads of an archive in an unknown shape."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from airflow_cdc.model.archive.known_shapes import shape_of_line
from airflow_cdc.model.errors import RejectReason

EVENT = {"before": None, "after": {"id": 1}, "op": "c", "source": {"connector": "postgresql", "version": "1.2.0.Final", "lsn": 5}}
PLACE = {"topic": "t", "partition": 0, "offset": 1}
TEXT = json.dumps(EVENT)
SHAPES: dict[str, tuple[Any, str, str]] = {
    "Vector": ({**PLACE, "message": 5, "message_key": "{}", "source_type": "kafka"}, "message, message_key", "`value`"),
    "base64": ({**PLACE, "value": base64.b64encode(TEXT.encode()).decode()}, "base64", "decode"),
    "text": ({**PLACE, "value": "Struct{id=1}"}, "value is a text", "JsonConverter"),
    "Lenses": ({"key": {"id": 1}, "value": EVENT, "headers": {}, "metadata": {**PLACE}}, "Lenses", "store.envelope=false"),
    "Aiven": ({"key": "{}", "value": EVENT, "headers": [], "offset": 0}, "without a topic", "format.output.envelope=false"),
    "Capture": ({"schema": {}, "payload": {"SequenceNumber": 1, "Offset": "0", "Body": "AA"}}, "Event Hubs", "Kafka Connect sink"),
    "DMS": ({"schema": {}, "payload": {"Op": "I", "id": 1}}, "AWS DMS", "Debezium"),
    "unwrapped": ({**PLACE, "key": {"id": 1}, "value": {"id": 1, "name": "a"}}, "(id, name)", "add.fields"),
    "another prefix": ({**PLACE, "value": {"id": 1, "_op": "c", "__deleted": "false"}}, "_op", "add.fields.prefix"),
    "a list": ([1], "JSON list", "whole records"),
}


@pytest.mark.parametrize(("document", "seen", "step"), SHAPES.values(), ids=SHAPES)
def test_a_shape_is_named_with_what_to_set(document: Any, seen: str, step: str) -> None:
    shape = shape_of_line(json.dumps(document), RejectReason.NOT_A_CHANGE_EVENT.value)
    assert seen in shape.seen
    assert step in shape.next_step


@pytest.mark.parametrize("line", ["{", '  "topic": "t",', '  "key": {', "    }", "  },", '"offset": 0,', '    "id": null'])
def test_a_part_of_a_printed_document_is_named(line: str) -> None:
    assert "printed over several lines" in shape_of_line(line, RejectReason.MALFORMED_JSON.value).seen


def test_what_follows_a_document_is_shown() -> None:
    assert shape_of_line(f"{TEXT} x\u2028", "malformed_json").seen == "a JSON document with other text behind it on its line (x)"
    assert shape_of_line("\x1f\x8b\x08", "malformed_json").seen == "no JSON"


def test_an_event_without_a_position_names_the_version_or_the_transform() -> None:
    of_old = shape_of_line(json.dumps({**PLACE, "value": EVENT}), RejectReason.MISSING_POSITION.value)
    assert "Debezium 1.2.0.Final" in of_old.seen
    assert "Upgrade" in of_old.next_step
    flattened = {"op": "u", "before": None, "after": {"id": 1}, "source": {"ts_ms": None}}
    assert "ExtractNewRecordState" in shape_of_line(json.dumps({**PLACE, "value": flattened}), "missing_position").seen
    other = {**EVENT, "source": {"connector": "oracle", "version": "2.0", "table": "T"}}
    assert "connector, table, version" in shape_of_line(json.dumps(other), "missing_position").seen
