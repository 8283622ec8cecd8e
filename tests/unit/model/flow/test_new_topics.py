"""Which topics are flows: a record may name anything, and a name becomes a folder."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.archive.topics import is_legal_topic, printable
from airflow_cdc.model.errors import ConfigurationError, RejectReason
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.new_topics import HeldTopic, OnNewTopic, SortedTopics, TopicGate
from airflow_cdc.model.flow.routes import Route, RoutedFlows, flows_from_document, on_new_topic, refuse_shared_tables
from airflow_cdc.model.report.apply_report import ApplyReport
from airflow_cdc.model.report.reject_limit import RejectLimit

LAKE = "/data/lake"
NASTY = (
    "..",
    ".",
    "../x",
    "a/b",
    "/etc/x",
    "s3://b/x",
    "_cdc",
    "_CDC",
    "_cdc/flows",
    "_delta_log",
    "a\nb",
    "a b",
    "é",
    "x" * 250,
    "%2E%2E",
)


def sort(
    *topics: str,
    settings: Mapping[str, CdcFlow] | None = None,
    policy: OnNewTopic = OnNewTopic.CREATE,
    known: Collection[str] = (),
    folds_case: bool = False,
) -> SortedTopics:
    return TopicGate(settings or {}, LAKE, policy, lambda: known, folds_case).sort(topics)


def reasons(found: SortedTopics) -> dict[str, str]:
    return {name: topic.reason.value for name, topic in found.held.items()}


@given(
    st.lists(st.sampled_from(NASTY) | st.text(max_size=8) | st.text("./_cdxX", max_size=6), unique=True, max_size=8),
    st.sampled_from([{}, RoutedFlows({}, [Route("(.*)x", r"gold/\1")]), RoutedFlows({}, [Route(r"(?s)(.*)", r"\1")])]),
    st.booleans(),
)
def test_whatever_records_name_no_table_leaves_the_lake_or_lies_in_its_state(
    topics: list[str], settings: Mapping[str, CdcFlow], folds_case: bool
) -> None:
    found = sort(*topics, settings=settings, folds_case=folds_case)
    assert {*found.flows, *found.held} == {*topics}
    for topic, flow in found.flows.items():
        assert is_legal_topic(topic)
        place = flow.table_path(LAKE).rstrip("/")
        assert posixpath.normpath(place) == place
        assert place.startswith(f"{LAKE}/")
        assert place.split("/")[3].lower() not in {"_cdc", "_delta_log"}
    if not settings:
        # What nobody declares stops nobody.
        refuse_shared_tables(found.flows.values(), LAKE, folds_case=folds_case)


def test_kafkas_names_are_flows_and_the_lakes_own_folders_are_none() -> None:
    found = sort("server1.testDB.dbo.my-table_1", "_x", ".x", "...", "_schemas", "x" * 249, *NASTY)
    assert set(found.flows) == {"server1.testDB.dbo.my-table_1", "_x", ".x", "...", "_schemas", "x" * 249}
    assert reasons(found) == dict.fromkeys(NASTY, "illegal_topic_name")


def test_a_name_that_the_settings_spell_out_is_a_flows_where_it_has_a_place() -> None:
    declared = {"a b": CdcFlow("a b"), "..": CdcFlow("..", table="up"), "_cdc": CdcFlow("_cdc", table="cdc")}
    assert sort("a b", "..", "_cdc", settings=declared).flows == declared
    with pytest.raises(ConfigurationError, match=r"Flow \.\.: its name is no place below the lake"):
        sort("..", settings={"..": CdcFlow("..")})


def test_a_route_declares_no_name_that_kafka_takes_for_none() -> None:
    routed = RoutedFlows({}, [Route(r"(?s)(.*)", r"gold/\1")])
    assert reasons(sort("a", "..", "a\nb", settings=routed)) == dict.fromkeys(("..", "a\nb"), "illegal_topic_name")


def test_a_stray_topic_that_a_route_sends_nowhere_stops_nobody() -> None:
    routed = RoutedFlows({}, [Route(r"pg\.(.*)", r"\1")])
    found = sort("pg.a", "pg._cdc", "pg...", settings=routed)
    assert (list(found.flows), list(found.held)) == (["pg.a"], ["pg...", "pg._cdc"])
    assert "no place below the lake" in found.held["pg._cdc"].detail
    # Of a flow that has a table it is a mistake of the settings, and somebody must see it.
    with pytest.raises(ConfigurationError, match="no place below the lake"):
        sort("pg.a", "pg._cdc", settings=routed, known=["pg._cdc"])


def test_a_stray_topic_takes_no_declared_flows_folder() -> None:
    declared = {"pg.a": CdcFlow("pg.a", table="gold/a")}
    found = sort("pg.a", "gold", "other", settings=declared)
    assert (list(found.flows), reasons(found)) == (["pg.a", "other"], {"gold": "illegal_topic_name"})
    assert "that of flow pg.a" in found.held["gold"].detail


def test_names_that_differ_by_case_have_one_folder_where_the_store_folds_case() -> None:
    assert not sort("Orders", "orders").held
    assert list(sort("Orders", "orders", folds_case=True).held) == ["orders"]
    settings = {"orders": CdcFlow("orders", table="small")}
    assert not sort("Orders", "orders", folds_case=True, settings=settings).held


def test_a_flow_that_the_lake_has_goes_on_whatever_it_is_called() -> None:
    found = sort("a b", "c d", "..", known=["a b", ".."], policy=OnNewTopic.CREATE)
    assert (list(found.flows), list(found.held)) == (["a b"], ["..", "c d"])


@pytest.mark.parametrize("policy", OnNewTopic)
def test_a_new_topic_is_what_the_settings_declare(policy: OnNewTopic) -> None:
    settings = RoutedFlows({"a": CdcFlow("a")}, [Route(r"b\d", "gold/b")], policy)
    found = sort("a", "b1", "known", "new", "..", settings=settings, policy=on_new_topic(settings), known=["known"])
    assert {"a", "b1", "known"} <= set(found.flows)
    assert (found.refused, "new" in found.flows) == {
        OnNewTopic.CREATE: ([], True),
        OnNewTopic.QUARANTINE: ([], False),
        OnNewTopic.STOP: (["new"], True),
    }[policy]
    assert reasons(found) == {"..": "illegal_topic_name"} | ({"new": "undeclared_topic"} if policy is OnNewTopic.QUARANTINE else {})


def test_the_flows_file_declares_what_happens_to_new_topics(tmp_path: Path) -> None:
    (tmp_path / "flows.yaml").write_text("on_new_topic: quarantine\nflows:\n- topic: a\n", encoding="utf-8")
    assert on_new_topic(read_flows(tmp_path / "flows.yaml")) is OnNewTopic.QUARANTINE
    assert on_new_topic(read_flows('{"on_new_topic": "stop"}')) is OnNewTopic.STOP
    assert read_flows('{"on_new_topic": "stop"}')
    for settings in (flows_from_document([]), read_flows(None)):
        assert on_new_topic(settings) is OnNewTopic.CREATE


@pytest.mark.parametrize("value", ["drop", None, True, ["stop"]])
def test_any_other_word_is_refused(value: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"on_new_topic is .*, expected one of \['create', 'quarantine', 'stop'\]"):
        flows_from_document({"flows": [], "on_new_topic": value})


def test_a_report_line_is_one_line_whatever_a_record_names() -> None:
    name = "a\nfake line\x1b[2J\u202e\u2028\r"
    held = HeldTopic(name, RejectReason.ILLEGAL_TOPIC_NAME, "why", files=1, records=2, through=3, added=2)
    report = ApplyReport("/a", "/l", held_topics=(held, *(HeldTopic(f"t{n}", RejectReason.UNDECLARED_TOPIC) for n in range(30))))
    assert ApplyReport.from_json(report.to_json()) == report
    lines = list(report.set_aside_lines())
    line = r"topic a\nfake line\x1b[2J\u202e\u2028\r: 2 records in 1 files are in the archive's quarantine: illegal_topic_name: why"
    assert lines[0] == line
    assert lines[-1] == "and 11 more topics; the report names them all"
    assert printable("Größe 日本\\n") == "Größe 日本\\n"


def test_what_belongs_to_no_flow_counts_as_work_and_as_rejects_once() -> None:
    def report(reason: RejectReason, added: int) -> ApplyReport:
        return ApplyReport("/a", "/l", held_topics=(HeldTopic("..", reason, files=1, records=2, added=added),))

    fresh, known = (report(RejectReason.ILLEGAL_TOPIC_NAME, added) for added in (2, 0))
    assert (fresh.nothing_pending, known.nothing_pending) == (False, True)
    assert len(list(RejectLimit.parse("any").broken(fresh))) == 1
    # Records that an earlier run reported, and topics that the settings hold back, turn no run red.
    for other in (known, report(RejectReason.UNDECLARED_TOPIC, 2)):
        assert not list(RejectLimit.parse("any").broken(other))
    assert not list(RejectLimit.parse("never").broken(fresh))
