"""What settling a microbatch's columns refuses, from schemas and from observed values."""

from __future__ import annotations

import json
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import pytest

from airflow_cdc.model.archive.survey import RecordLayout, TopicShape
from airflow_cdc.model.errors import SchemaChangeError, UnsupportedConnectorError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.declared_column import DeclaredColumn, Encoding, Unit
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.pipeline.decode.types.seen_values import SeenValues
from airflow_cdc.pipeline.settle.settle_columns import Source, settle_columns
from airflow_cdc.pipeline.survey.archived_schemas import ArchivedFields
from airflow_cdc.pipeline.survey.source_facts import NOTHING_KNOWN, SourceFacts

TOPIC = "pg.public.t"
INT = {"type": "int32"}
MILLIS, MICROS = ({"type": "int64", "name": f"io.debezium.time.{name}Timestamp"} for name in ("", "Micro"))


@dataclass
class Seen:
    """Images of which the observations are known."""

    seen: dict[str, SeenValues] = field(default_factory=dict)

    def types(self, columns: Collection[str]) -> dict[str, str]:
        return {name: "DOUBLE" if self.seen[name].kinds == {"fraction"} else "STRING" for name in columns if name in self.seen}

    def values(self, columns: Collection[str]) -> dict[str, SeenValues]:
        return {name: self.seen[name] for name in columns if name in self.seen}


def shape(text: str) -> TopicShape:
    return TopicShape("f.jsonl", TOPIC, RecordLayout.RECORD, "c", "postgresql", 0, '["id"]', text, True, 1, 0, 0)


def schema(**columns: dict[str, Any]) -> str:
    fields = [{**of, "field": name} for name, of in columns.items()]
    return json.dumps({"type": "struct", "fields": [{"type": "struct", "fields": fields, "field": "after"}]})


def settle(*shapes: str, flow: CdcFlow | None = None, facts: SourceFacts = NOTHING_KNOWN, **seen: SeenValues) -> Any:
    source = Source(flow or CdcFlow(TOPIC), [shape(text) for text in shapes], None, facts, {}, without_key=False)
    return settle_columns(source, lambda columns: Seen(seen))


@pytest.mark.parametrize("policy", [None, *OnUnknownTypes])
def test_objects_of_value_and_set_are_no_texts_whatever_the_flow_s_policy(policy: OnUnknownTypes | None) -> None:
    objects, others = SeenValues(frozenset({"other"})), SeenValues(frozenset({"other"}), some_no_value_set=True)
    with pytest.raises(UnsupportedConnectorError, match=r"Flow pg.public.t: columns id, v hold objects of value and set.*yboutput"):
        settle('["id","v","w"]', flow=CdcFlow(TOPIC, on_unknown_types=policy), id=objects, v=objects, w=others)
    assert settle('["w"]', flow=CdcFlow(TOPIC, keys=("w",), on_unknown_types=OnUnknownTypes.TEXT), w=others).sql_types == {"w": "STRING"}


def test_structs_of_value_and_set_in_a_schema_are_refused_too() -> None:
    """They were merged as JSON texts."""
    wrapped = {"type": "struct", "fields": [{"type": "int32", "field": "value"}, {"type": "boolean", "field": "set"}]}
    point = {"type": "struct", "fields": [{"type": "double", "field": "x"}, {"type": "double", "field": "y"}]}
    with pytest.raises(UnsupportedConnectorError, match="columns v hold objects of value and set"):
        settle(schema(id=INT, v=wrapped, p=point))
    assert settle(schema(id=INT, p=point)).sql_types == {"id": "INT", "p": "STRING"}


@pytest.mark.parametrize("keys", [(), ("id",)], ids=["of the events", "of the flow"])
def test_a_key_is_no_double_by_its_looks(keys: tuple[str, ...]) -> None:
    """Many decimals have one double: their rows became one."""
    fraction = SeenValues(frozenset({"fraction"}))
    settled = settle('["id","v"]', flow=CdcFlow(TOPIC, keys=keys), id=fraction, v=fraction)
    assert settled.sql_types == {"id": "DECIMAL(38,18)", "v": "DOUBLE"}
    declared = settle('["id","v"]', flow=CdcFlow(TOPIC, keys=keys, columns={"id": "DOUBLE"}), v=fraction)
    assert declared.sql_types == {"id": "DOUBLE", "v": "DOUBLE"}
    # All digits are read, to see whether the double is the number.
    assert (declared.types["id"].is_fraction, declared.types["v"].is_fraction) == (True, False)


def archived(*fields: dict[str, Any]) -> SourceFacts:
    return SourceFacts(archived=lambda topic: ArchivedFields({"v": tuple({**each, "field": "v"} for each in fields)}, "postgresql"))


def test_an_event_without_a_schema_does_not_take_the_unit_of_its_neighbour() -> None:
    """``schemas.enable`` was switched, and the archive knows two units: the bare events were read by the one of their microbatch."""
    bare, other = '["id","v"]', schema(id=INT, v=MILLIS)
    with pytest.raises(SchemaChangeError, match="spell it in two ways") as refused:
        settle(bare, other, facts=archived(MILLIS, MICROS))
    assert "Declare under 'columns'" in refused.value.next_step
    declared = CdcFlow(TOPIC, columns={"v": DeclaredColumn("TIMESTAMP_NTZ", Encoding.EPOCH, Unit.MICROS)})
    assert settle(bare, other, flow=declared, facts=archived(MILLIS, MICROS)).by_schema == ["v"]
    # Where the archive knows one, it is theirs.
    assert settle(bare, other, facts=archived(MILLIS)).by_schema == []
