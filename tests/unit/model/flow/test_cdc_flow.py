"""Settings of flows: what is given is taken, what cannot be is refused with the setting's name and the next step."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import DEFAULT_MICROBATCH_BYTES, CdcFlow
from airflow_cdc.model.flow.policies import OnGap, OnTruncate
from airflow_cdc.model.flow.routes import flows_from_document
from airflow_cdc.model.flow.table_mode import TableMode
from airflow_cdc.model.globs import matches_any


def test_a_topic_is_all_that_a_flow_needs() -> None:
    flow = CdcFlow.from_mapping({"topic": "server1.dbo.t"})
    assert flow == CdcFlow("server1.dbo.t", None, (), {}, OnTruncate.APPLY, DEFAULT_MICROBATCH_BYTES, OnGap.WARN)
    assert flow.name == "server1.dbo.t"
    assert DEFAULT_MICROBATCH_BYTES == 1024**3


def test_every_setting_is_taken() -> None:
    entry = {
        "topic": "t",
        "table": "gold/t",
        "keys": ["a", "b"],
        "columns": {"a": "BIGINT", "b c": "STRING"},
        "on_truncate": "fail",
        "max_microbatch_bytes": 1,
        "on_gap": "stop",
        "stored_as_scd_type": 2,
    }
    columns = {"a": "BIGINT", "b c": "STRING"}
    assert CdcFlow.from_mapping(entry) == CdcFlow("t", "gold/t", ("a", "b"), columns, OnTruncate.FAIL, 1, OnGap.STOP, 2)
    assert [CdcFlow.from_mapping({"topic": "t", "on_gap": name}).on_gap for name in ("warn", "wait", "stop")] == list(OnGap)
    assert CdcFlow.from_mapping({"topic": "t", "keys": "id"}).keys == ("id",)
    assert [CdcFlow.from_mapping({"topic": "t", "on_truncate": name}).on_truncate for name in ("apply", "ignore", "fail")] == [
        OnTruncate.APPLY,
        OnTruncate.IGNORE,
        OnTruncate.FAIL,
    ]


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, TableMode.CURRENT),
        ({"stored_as_scd_type": 1, "on_delete": "remove", "write_disposition": "merge"}, TableMode.CURRENT),
        ({"on_delete": "flag"}, TableMode.FLAGGED),
        ({"stored_as_scd_type": 2}, TableMode.VERSIONS),
        ({"write_disposition": "append"}, TableMode.CHANGE_LOG),
    ],
)
def test_the_settings_declare_what_the_table_keeps(settings: dict[str, Any], mode: TableMode) -> None:
    assert CdcFlow.from_mapping({"topic": "t", **settings}).mode is mode


def test_a_flow_made_in_python_is_checked_as_one_of_a_file_is() -> None:
    with pytest.raises(ConfigurationError, match="stored_as_scd_type is 3, expected one of"):
        CdcFlow("t", stored_as_scd_type=3)


@pytest.mark.parametrize(
    ("table", "lake", "uri"),
    [
        (None, "s3://bucket/lake", "s3://bucket/lake/t"),
        (None, "s3://bucket/lake/", "s3://bucket/lake/t"),
        ("gold/t", "/lake", "/lake/gold/t"),
        ("/elsewhere/t", "/lake", "/elsewhere/t"),
        ("s3://other/t", "/lake", "s3://other/t"),
    ],
)
def test_a_table_lies_below_the_lake_or_at_a_uri_of_its_own(table: str | None, lake: str, uri: str) -> None:
    assert CdcFlow("t", table).table_path(lake) == uri


@pytest.mark.parametrize(
    ("entry", "setting"),
    [
        ({}, "topic"),
        ({"topic": ""}, "topic"),
        ({"topic": "t", "key": ["id"]}, "key"),
        ({"topic": "t", "Keys": ["id"]}, "Keys"),
        ({"topic": "t", "max_microbatch_bytes": 0}, "max_microbatch_bytes"),
        ({"topic": "t", "max_microbatch_bytes": -5}, "max_microbatch_bytes"),
        ({"topic": "t", "keys": ["id", "__cdc_op"]}, "__cdc_op"),
        ({"topic": "t", "columns": {"__CDC_x": "INT"}}, "__CDC_x"),
        ({"topic": "t", "stored_as_scd_type": 3}, "stored_as_scd_type"),
        ({"topic": "t", "stored_as_scd_type": "2"}, "stored_as_scd_type"),
        # equals 1
        ({"topic": "t", "stored_as_scd_type": True}, "stored_as_scd_type"),
        ({"topic": "t", "on_delete": "soft"}, "on_delete"),
        ({"topic": "t", "write_disposition": "replace"}, "write_disposition"),
        ({"topic": "t", "stored_as_scd_type": 2, "on_delete": "flag"}, "stored_as_scd_type: 2 and on_delete: flag exclude each other"),
        ({"topic": "t", "write_disposition": "append", "on_delete": "flag"}, "write_disposition: append and on_delete: flag"),
        ({"topic": "t", "on_dropped_column": "drop"}, "on_dropped_column"),
        ({"topic": "t", "on_dropped_column": "clear", "stored_as_scd_type": 2}, "on_dropped_column: clear"),
        ({"topic": "t", "on_dropped_column": "clear", "write_disposition": "append"}, "on_dropped_column: clear"),
        ({"topic": "t", "write_disposition": "append", "stored_as_scd_type": 2}, "write_disposition: append and stored_as_scd_type: 2"),
        pytest.param({"topic": "t", "on_truncate": "drop"}, "on_truncate"),
        pytest.param({"topic": "t", "on_truncate": None}, "on_truncate"),
        pytest.param({"topic": "t", "on_gap": "fail"}, "on_gap"),
        pytest.param({"topic": "t", "on_gap": None}, "on_gap"),
        pytest.param({"topic": "t", "keys": 5}, "keys"),
        pytest.param({"topic": "t", "keys": None}, "keys"),
        pytest.param({"topic": "t", "columns": ["a"]}, "columns"),
        pytest.param({"topic": "t", "columns": None}, "columns"),
        pytest.param({"topic": "t", "max_microbatch_bytes": "1GB"}, "max_microbatch_bytes"),
        pytest.param({"topic": "t", "max_microbatch_bytes": None}, "max_microbatch_bytes"),
        pytest.param({"topic": 5}, "topic"),
        pytest.param({"topic": "t", "table": 5}, "table"),
        pytest.param({"topic": "t", "max_microbatch_bytes": True}, "max_microbatch_bytes"),
        pytest.param({"topic": "t", "max_microbatch_bytes": 1.5}, "max_microbatch_bytes"),
        # `keys: [no]` and `columns: {on: DATE}` in YAML: a column so named would be looked for as "False" and "True"
        pytest.param({"topic": "t", "keys": [False]}, "keys"),
        pytest.param({"topic": "t", "columns": {True: "DATE"}}, "columns"),
        pytest.param({"topic": "t", "keys": [""]}, "keys"),
        pytest.param({"topic": "t", "keys": ["id", "id"]}, "keys"),
        pytest.param({"topic": "t", "keys": {"id": "name"}}, "keys"),
    ],
)
def test_an_impossible_setting_is_refused_by_name_with_the_next_step(entry: dict[str, Any], setting: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        CdcFlow.from_mapping(entry)
    assert setting in refused.value.message
    assert entry.get("topic") in ("", None) or f"Flow {entry['topic']}" in refused.value.message
    assert refused.value.next_step
    assert refused.value.transient is False
    assert str(refused.value) == f"{refused.value.message} Next step: {refused.value.next_step}"


def test_an_unknown_setting_is_refused_with_those_that_are_known() -> None:
    known = r"known are \['catalog_table', 'cluster_by', 'columns', .*'on_foreign_change', 'on_gap', .*'table', 'table_column', 'topic'"
    with pytest.raises(ConfigurationError, match=rf"Flow t: unknown settings \['merge', 'primary_key'\], {known}"):
        CdcFlow.from_mapping({"topic": "t", "primary_key": "id", "merge": 1})


def test_a_document_lists_flows_under_their_heading_or_bare() -> None:
    entries = [{"topic": "t"}, {"topic": "u", "keys": ["id"]}]
    expected = {"t": CdcFlow("t"), "u": CdcFlow("u", keys=("id",))}
    assert flows_from_document({"flows": entries}) == expected
    assert flows_from_document(entries) == expected
    assert flows_from_document({"flows": []}) == {}


@pytest.mark.parametrize(
    "document", [None, "text", 5, {}, {"flow": []}, {"flows": {"topic": "t"}}, {"flows": ["t"]}, [None], {"flows": None}]
)
def test_a_document_of_another_shape_is_refused(document: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"list of flows under 'flows:'.*Next step: See docs/reference/flows-file\.md"):
        flows_from_document(document)


def test_a_topic_may_stand_in_a_document_once() -> None:
    with pytest.raises(ConfigurationError, match=r"Topic t stands twice.*Next step: Keep one"):
        flows_from_document([{"topic": "t"}, {"topic": "u"}, {"topic": "t", "keys": ["id"]}])


def test_a_flows_file_is_yaml_or_json(tmp_path: Path) -> None:
    (tmp_path / "flows.yaml").write_text("flows:\n  - topic: t\n    keys: [é]\n    on_truncate: ignore\n", encoding="utf-8")
    (tmp_path / "flows.json").write_text('{"flows": [{"topic": "t", "keys": ["é"], "on_truncate": "ignore"}]}', encoding="utf-8")
    expected = {"t": CdcFlow("t", keys=("é",), on_truncate=OnTruncate.IGNORE)}
    assert read_flows(tmp_path / "flows.yaml") == expected
    assert read_flows(tmp_path / "flows.json") == expected
    assert read_flows(None) == {}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (None, "cannot be read"),
        (b"flows: [", "cannot be read"),
        (b"", "list of flows"),
        (b"flows: t", "list of flows"),
        (b"flows: [{topic: \xff}]", "cannot be read"),
    ],
)
def test_a_flows_file_that_cannot_be_read_is_named_or_what_it_lacks_is(content: bytes | None, complaint: str, tmp_path: Path) -> None:
    path = tmp_path / "flows.yaml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigurationError, match=complaint) as refused:
        read_flows(path)
    assert complaint != "cannot be read" or str(path) in refused.value.message
    assert refused.value.next_step


@pytest.mark.parametrize(
    ("globs", "chosen"),
    [
        ((), ["A.b", "a.b", "a.c"]),
        (("a.*",), ["a.b", "a.c"]),
        (("a.b", "a.c"), ["a.b", "a.c"]),
        (("*.b",), ["A.b", "a.b"]),
        (("?.c",), ["a.c"]),
        (("a",), []),
        (("a.*", "!a.b"), ["a.c"]),
        (("!a.*",), ["A.b"]),
        (("!*.b", "*"), ["a.c"]),
        (("a.b", "!a.b"), []),
    ],
)
def test_globs_choose_whole_names_by_case_and_none_choose_all(globs: tuple[str, ...], chosen: list[str]) -> None:
    assert [name for name in ("A.b", "a.b", "a.c") if matches_any(name, globs)] == chosen
    assert [name for name in ("A.b", "a.b", "a.c") if matches_any(name, iter(globs))] == chosen


@pytest.mark.parametrize(("setting", "read"), [("key", "key"), (["a", "b"], ("a", "b")), ([], ())])
def test_a_flow_may_declare_how_its_table_is_clustered(setting: object, read: object) -> None:
    assert CdcFlow.from_mapping({"topic": "t", "cluster_by": setting}).cluster_by == read


@pytest.mark.parametrize("setting", ["id", ["a", "a"], 1, [1]])
def test_columns_to_cluster_by_are_a_list_or_the_key(setting: object) -> None:
    with pytest.raises(ConfigurationError, match="cluster_by is"):
        CdcFlow.from_mapping({"topic": "t", "cluster_by": setting})


def test_a_glob_may_leave_names_out() -> None:
    # fnmatch keeps 256 expressions before Python 3.12: so many names must not fall out of it.
    names = [f"server.db.table_{number}" for number in range(600)]
    assert [name for name in names if matches_any(name, [*names, "!server.db.table_7"])] == [*names[:7], *names[8:]]


def test_a_text_in_braces_is_the_flows_files_text_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    document = {"flows": [{"topic": "t", "keys": ["a"]}], "routes": [{"topic": r"(\w+)", "table": r"gold/\1"}]}
    flows = read_flows(json.dumps(document))
    assert (flows["t"].keys, flows["t"].table, flows["u"].table) == (("a",), "gold/t", "gold/u")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_flows("{flows")
