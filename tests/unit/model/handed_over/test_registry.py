"""Exports of schema registries: Confluent's answers, and Apicurio's ZIP file."""

from __future__ import annotations

import io
import json
import zipfile
from typing import Any

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.handed_over.read_files import read_files
from airflow_cdc.model.handed_over.source_schemas import HandedOver, bring_together
from tests.unit.model.handed_over.spellings import Json, as_avro, as_json_schema, captured, topic_of_table
from tests.unit.model.handed_over.test_read_files import ENVELOPE, KEY, ORDERS, ROW, SOURCE, essences, fields, read


def answer(subject: str, schema: Any, version: int = 1, **more: Any) -> Json:
    return {"subject": subject, "version": version, "id": 7, "schema": schema if isinstance(schema, str) else json.dumps(schema), **more}


def envelope(columns: int) -> Json:
    row = {**ROW, "fields": ROW["fields"][:columns]}
    return {**ENVELOPE, "fields": [{**row, "field": "after"}, *ENVELOPE["fields"][2:]]}


# Confluent's REST API


def test_a_subjects_answer_has_flow_columns_connector_and_key() -> None:
    found = read(answer("shop.orders-value", as_avro(ENVELOPE), version=3), answer("shop.orders-key", as_avro(KEY)))
    (schema,) = found.schemas
    assert (schema.flow, schema.connector, schema.keys) == ("shop.orders", "postgresql", ("id",))
    assert fields(schema) == essences(ROW["fields"])
    assert schema.origin == "0.json, subject shop.orders-value version 3"


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_all_captures_in_one_export_come_back_flow_by_flow(kind: str) -> None:
    spell = as_avro if kind == "AVRO" else as_json_schema
    records = {record["topic"]: record for record in captured()}
    listed = []
    for topic, record in records.items():
        listed.append(answer(f"{topic}-value", spell(record["value"]["schema"]), schemaType=kind))
        if record["key"] and record["key"].get("schema"):
            listed.append(answer(f"{topic}-key", spell(record["key"]["schema"]), schemaType=kind))
    found = {schema.flow: schema for schema in read(listed).schemas}
    assert sorted(found) == sorted(topic for topic, record in records.items() if topic_of_table(record))
    for topic, schema in found.items():
        (of_events,) = read(records[topic]).schemas
        assert (fields(schema), schema.keys, schema.connector) == (fields(of_events), of_events.keys, of_events.connector), topic


def test_the_newest_version_wins_by_its_number() -> None:
    listed = [answer("t-value", as_avro(envelope(columns)), version) for columns, version in ((1, 9), (3, 10), (2, 2))]
    (schema,) = read(listed).schemas
    assert len(schema.columns) == 3


def test_answers_may_follow_each_other_as_a_loop_of_curl_prints_them() -> None:
    text = "".join(json.dumps(answer(f"{topic}-value", as_avro(ROW))) for topic in ("a", "b")) + "\n"
    assert [schema.flow for schema in bring_together(read_files([("x", text.encode())])).schemas] == ["a", "b"]


@pytest.mark.parametrize(
    "subject",
    [
        "shop.public.orders-value",
        ":.team:shop.public.orders-value",
        "shop.public.orders.Envelope",
        "shop.public.orders-shop.public.orders.Envelope",
        "shop.public.orders-Envelope",
    ],
)
def test_each_strategy_of_naming_subjects_gives_the_topic(subject: str) -> None:
    assert [schema.flow for schema in read([answer(subject, as_avro(ENVELOPE))]).schemas] == [ORDERS]


def test_an_answer_by_id_has_no_subject() -> None:
    by_id = {"schema": json.dumps(as_avro({**ROW, "name": "Order"}))}
    assert [schema.flow for schema in read(by_id, flow="orders").schemas] == ["orders"]
    assert [schema.flow for schema in read({"schema": json.dumps(as_avro(ENVELOPE))}).schemas] == [ORDERS]


def test_what_a_topic_is_named_by_goes_before_what_a_schema_is_named() -> None:
    by_subject, by_name = answer(f"{ORDERS}-value", as_avro(envelope(3))), answer(f"{ORDERS}.Value", as_avro(envelope(1)))
    (schema,) = read([by_name, by_subject]).schemas
    assert len(schema.columns) == 3


def test_types_that_lie_in_other_subjects_are_taken_from_there() -> None:
    avro = as_avro(ENVELOPE)
    after, source = avro["fields"][0]["type"][1], avro["fields"][2]["type"]
    avro["fields"][0]["type"][1], avro["fields"][2]["type"] = after["name"], SOURCE["name"]
    references = [{"name": name, "subject": name, "version": 2} for name in (SOURCE["name"], ROW["name"])]
    parts = [
        answer(ROW["name"], {**after, "namespace": ORDERS}, 2),
        answer(SOURCE["name"], {**source, "namespace": "io.debezium.connector.postgresql"}, 2),
    ]
    value = answer(f"{ORDERS}-value", avro, references=references)
    (schema,) = read([*parts, value]).schemas
    assert (fields(schema), schema.connector) == (essences(ROW["fields"]), "postgresql")
    with pytest.raises(ConfigurationError, match=r"refers to io\.debezium\.connector\.postgresql\.Source, subject .* version 2"):
        read(value)


def test_json_schemas_refer_to_others_by_name() -> None:
    root = {"type": "object", "title": "a.b.Value", "properties": {"price": {"$ref": "money.json"}}}
    money = answer("money", {"type": "object", "properties": {"cents": {"type": "integer"}}}, schemaType="JSON")
    value = answer("t-value", root, schemaType="JSON", references=[{"name": "money.json", "subject": "money", "version": 1}])
    found = read([value, money])
    assert fields(found.schemas[0]) == [{"field": "price", "type": "struct", "fields": [{"field": "cents", "type": "int64"}]}]
    assert [(each.what, each.reason) for each in found.aside] == [("money", "its topic is not known")]


def test_what_cannot_be_read_is_left_aside_where_others_can() -> None:
    single, proto = answer("a-key", '"long"'), answer("c-value", "message C {}", schemaType="PROTOBUF")
    deleted = answer("a-value", as_avro(envelope(1)), 2, deleted=True)
    found = read([answer("a-value", as_avro(ROW)), deleted, single, proto, answer("b-key", as_avro(KEY))])
    assert [(schema.flow, schema.keys) for schema in found.schemas] == [("a", ())]
    assert [(each.what, each.reason) for each in found.aside] == [
        ("a-value version 2", "the registry has it as deleted"),
        ("c-value", "it is Protobuf, which is not read"),
        ("b-key", "it is the key of b, and the schema of its values is not there"),
    ]


# Apicurio's export


class Export:
    """An export as Apicurio Registry writes it: of 2.x, or of 3.x with the type in a file of its own."""

    def __init__(self, major: int) -> None:
        self._major = major
        self._files: dict[str, str] = {"manifest-2026-11-20T08:00:00Z.Manifest.json": json.dumps({"systemName": "apicurio-registry"})}
        self._contents = 0

    def add(self, artifact: str, schema: Any, order: int = 1, kind: str = "AVRO", references: Any = None, **more: Any) -> Export:
        self._contents += 1
        name, number = f"content/{self._contents:064x}.Content", self._contents
        serialized = json.dumps(references) if references else None
        self._files[f"{name}.json"] = json.dumps({"contentId": number, "artifactType": None, "serializedReferences": serialized})
        self._files[f"{name}.data"] = schema if isinstance(schema, str) else json.dumps(schema)
        folder = f"groups/default/artifacts/{artifact}"
        version = {"groupId": None, "artifactId": artifact, "version": f"{order}.0", "state": "ENABLED", "contentId": number, **more}
        essences = {"versionId": order, "artifactType": kind, "isLatest": False} if self._major == 2 else {"versionOrder": order}
        self._files[f"{folder}/versions/{order}.0.ArtifactVersion.json"] = json.dumps(version | essences)
        if self._major == 3:
            metadata = {"groupId": "default", "artifactId": artifact, "artifactType": kind}
            self._files[f"{folder}/MetaData.Artifact.json"] = json.dumps(metadata)
        return self

    def read(self) -> HandedOver:
        data = io.BytesIO()
        with zipfile.ZipFile(data, "w") as archive:
            for name, text in self._files.items():
                archive.writestr(name, text)
        return bring_together(read_files([("export.zip", data.getvalue())]))


@pytest.fixture(params=[2, 3])
def export(request: pytest.FixtureRequest) -> Export:
    return Export(request.param)


def test_an_export_of_apicurio_gives_the_newest_version_of_each_artifact(export: Export) -> None:
    export.add(f"{ORDERS}-value", as_avro(envelope(2)), 9).add(f"{ORDERS}-value", as_avro(envelope(3)), 10)
    export.add(f"{ORDERS}-value", as_avro(envelope(1)), 11, state="DISABLED").add(f"{ORDERS}-key", as_avro(KEY))
    export.add("a.b.t-value", as_json_schema(ENVELOPE), kind="JSON").add("p-value", "message P {}", kind="PROTOBUF")
    found = export.read()
    assert [(schema.flow, len(schema.columns), schema.keys) for schema in found.schemas] == [("a.b.t", 3, ()), (ORDERS, 3, ("id",))]
    assert found.schemas[1].origin == f"export.zip, artifact {ORDERS}-value version 10.0"
    assert [each.what for each in found.aside] == ["p-value"]


def test_artifacts_of_an_export_refer_to_each_other(export: Export) -> None:
    avro = as_avro({**ROW, "optional": False, "fields": [{**KEY, "field": "nested"}]})
    nested, avro["fields"][0]["type"] = avro["fields"][0]["type"], KEY["name"]
    references = [{"groupId": "default", "artifactId": "nested", "version": "1.0", "name": KEY["name"]}]
    found = export.add("t-value", avro, references=references).add("nested", {**nested, "namespace": ORDERS}).read()
    assert [schema.flow for schema in found.schemas] == ["t"]
    assert fields(found.schemas[0])[0]["fields"] == essences(KEY["fields"])


def test_another_zip_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="it holds 0 contents and 0 versions of artifacts") as raised:
        Export(3).read()
    assert "/apis/registry/v3/admin/export" in raised.value.next_step
