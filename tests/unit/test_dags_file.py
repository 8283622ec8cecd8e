"""airflow_cdc.yaml: what is asked for is taken, what cannot be is refused with its place, what was seen and what was expected."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from airflow_cdc.dags_file import DagsFile, read_dags_file
from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.engine import Engine
from airflow_cdc.model.flow.new_topics import OnNewTopic
from airflow_cdc.model.flow.policies import OnUnknownTypes
from airflow_cdc.model.flow.routes import on_new_topic, settings_of

ONE = {"dag_id": "one", "tables": ["a.*"]}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "airflow_cdc.yaml"


def read(file: Path, document: Any) -> DagsFile:
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False), encoding="utf-8")
    return read_dags_file(file)


def refused(file: Path, document: Any) -> str:
    with pytest.raises(ConfigurationError) as caught:
        read(file, document)
    assert caught.value.message.startswith(f"{file}: ")
    assert caught.value.next_step
    return caught.value.message.removeprefix(f"{file}: ")


def test_a_dag_takes_the_defaults_and_its_own_settings_go_over_them(file: Path) -> None:
    defaults = {"schedule": "@daily", "start_date": date(2026, 5, 1), "catchup": True, "owner": "me", "tags": ["x"], "retries": 5}
    asked = read(
        file,
        {
            "lake_conn_id": "lake",
            "flows_file": "s3://bucket/flows.yaml",
            "defaults": {**defaults, "retry_delay": 9, "pool": "spark", "conf": {"spark.executor.memory": "2g"}},
            "dags": [
                {"dag_id": "cdc_{table}", "each_table": ["a.orders", "a.items"]},
                {
                    "dag_id": "rest",
                    "tables": ["*", "!a.*"],
                    "schedule": None,
                    "consistent": True,
                    "one_slot_pool": "rest",
                    "fail_on_rejects": 0.01,
                },
            ],
        },
    )
    assert (asked.archive_conn_id, asked.lake_conn_id, asked.flows) == ("cdc_archive_default", "lake", "s3://bucket/flows.yaml")
    assert [(dag.dag_id, dag.tables) for dag in asked.dags] == [
        ("cdc_a.orders", ("a.orders",)),
        ("cdc_a.items", ("a.items",)),
        ("rest", ("*", "!a.*")),
    ]
    orders, _, rest = (dag.settings for dag in asked.dags)
    assert {name: getattr(orders, name) for name in defaults} == defaults
    assert (orders.retry_delay, orders.pool, orders.conf) == (9, "spark", {"spark.executor.memory": "2g"})
    assert (rest.schedule, rest.consistent, rest.pool, rest.one_slot_pool, rest.owner) == (None, True, None, "rest", "me")
    assert rest.fail_on_rejects == 0.01


def test_flows_that_stand_in_the_file_go_to_the_job_as_they_would_from_a_file_of_their_own(file: Path) -> None:
    settings = {"flows": [{"topic": "t", "keys": ["é"]}], "routes": [{"topic": r"x\.(\w+)", "table": r"gold/\1"}]}
    handed_on = read(file, {**settings, "dags": [ONE]}).flows
    assert handed_on
    assert json.loads(handed_on) == settings
    flows = read_flows(handed_on)
    assert (flows["t"].keys, flows["x.y"].table) == (("é",), "gold/y")
    assert read(file, {"dags": [ONE]}).flows is None


@pytest.mark.parametrize("beside", [{}, {"routes": [{"topic": r"x\.(\w+)", "table": r"gold/\1"}]}])
def test_policies_for_new_topics_and_unknown_types_go_to_the_job_with_the_flows_or_alone(file: Path, beside: dict[str, Any]) -> None:
    handed_on = read(file, {**beside, "on_new_topic": "quarantine", "on_unknown_types": "text", "dags": [ONE]}).flows
    assert handed_on
    flows = read_flows(handed_on)
    assert on_new_topic(flows) is OnNewTopic.QUARANTINE
    assert settings_of(flows, "a.topic").on_unknown_types is OnUnknownTypes.TEXT


@pytest.mark.parametrize(
    "policies",
    [{"on_new_topic": new} for new in OnNewTopic] + [{"on_unknown_types": it} for it in OnUnknownTypes] + [{"engine": it} for it in Engine],
)
def test_every_policy_that_a_flows_file_knows_may_stand_in_the_file(file: Path, policies: dict[str, Any]) -> None:
    given = {name: policy.value for name, policy in policies.items()}
    assert json.loads(read(file, {**given, "dags": [ONE]}).flows or "") == given


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ("", "the document is None, expected a valid dictionary"),
        ("dags: [", "it cannot be read: while parsing"),
        ({"dags": []}, "dags is [], expected 1 or more"),
        ({"dags": [{**ONE, "owner": ""}]}, "dags[0].owner is '', expected a text"),
        ({}, "dags is missing"),
        ({"dag": [ONE], "dags": [ONE]}, "dag is no setting; known are archive_conn_id, dags, defaults,"),
        ({"dags": [{**ONE, "retry": 1}]}, "dags[0].retry is no setting; known are by_data_interval, catchup, check_transactions,"),
        ({"defaults": {"dag_id": "x"}, "dags": [ONE]}, "defaults.dag_id is no setting; known are by_data_interval, catchup,"),
        ({"dags": [ONE, {"tables": ["b"]}]}, "dags[1].dag_id is missing"),
        ({"dags": [{**ONE, "retries": "2"}]}, "dags[0].retries is '2', expected a valid integer"),
        ({"dags": [{**ONE, "catchup": "no way"}]}, "dags[0].catchup is 'no way', expected a valid boolean"),
        ({"dags": [{**ONE, "tables": ["a", 7]}]}, "dags[0].tables[1] is 7, expected a valid string"),
        ({"dags": [{**ONE, "tables": "a.*"}]}, "dags[0].tables is 'a.*', expected a valid list"),
        ({"dags": [{**ONE, "start_date": "yesterday"}]}, "dags[0].start_date is 'yesterday', expected a valid date"),
        ({"dags": [{"dag_id": "x"}]}, "dags[0] is {'dag_id': 'x'}, expected one of 'tables' and 'each_table'"),
        ({"dags": [{**ONE, "each_table": ["b"]}]}, "expected one of 'tables' and 'each_table'"),
        ({"dags": [{"dag_id": "x", "each_table": ["b"]}]}, "expected a dag_id with {table} in it for 'each_table'"),
        ({"dags": [{"dag_id": "x{table}", "tables": ["b"]}]}, "expected a dag_id with {table} in it for 'each_table', and without"),
        (
            {"dags": [{"dag_id": "x{table}", "each_table": ["b.*"]}]},
            "dags[0].each_table is ['b.*'], expected names of tables, no globs such",
        ),
        ({"dags": [{"dag_id": "x{table}", "each_table": ["b c"]}]}, "dags[0].each_table[0] makes the dag_id 'xb c', expected up to 250"),
        ({"dags": [{**ONE, "execution_timeout": 0}]}, "dags[0].execution_timeout is 0, expected greater than 0"),
        ({"dags": [{**ONE, "deferrable": "yes"}]}, "dags[0].deferrable is 'yes', expected a valid boolean"),
        ({"dags": [{**ONE, "on_failure_callback": "page me"}]}, "dags[0].on_failure_callback is 'page me', expected a dotted path"),
        ({"dags": [{**ONE, "on_retry_callback": "alone"}]}, "dags[0].on_retry_callback is 'alone', expected a dotted path such as"),
        (
            {"dags": [{**ONE, "by_data_interval": True, "schedule": None}]},
            "dags[0].schedule is None with by_data_interval, expected cron's",
        ),
        (
            {"defaults": {"by_data_interval": True}, "dags": [{**ONE, "schedule": "@once"}]},
            "dags[0].schedule is '@once' with by_data_interval",
        ),
        ({"dags": [{**ONE, "pool": "p", "one_slot_pool": "q"}]}, "expected one of 'pool' and 'one_slot_pool'"),
        ({"dags": [{**ONE, "one_slot_pool": "default_pool"}]}, "expected a one_slot_pool other than default_pool"),
        ({"dags": [ONE, {"dag_id": "one", "tables": ["b"]}]}, "dags[0] and dags[1] make the same dag_id 'one'"),
        ({"dags": [ONE], "flows_file": "f", "flows": []}, None),
        ({"dags": [ONE], "flows_file": "f", "routes": [{}]}, "expected either 'flows_file', or 'routes': the flows file holds"),
        ({"dags": [ONE], "flows_file": "f", "on_new_topic": "stop"}, "expected either 'flows_file', or 'on_new_topic': the flows file"),
        ({"dags": [ONE], "on_new_topic": "ask"}, "on_new_topic is 'ask', expected 'create', 'quarantine' or 'stop'"),
        ({"dags": [ONE], "on_unknown_types": True}, "on_unknown_types is True, expected 'stop', 'text' or 'guess'"),
        ({"dags": [{**ONE, "on_new_topic": "stop"}]}, "dags[0].on_new_topic is no setting; known are"),
        ({"dags": [ONE], "flows": [{"topic": "t", "key": "a"}]}, "Flow t: unknown settings ['key']"),
        ({"dags": [ONE], "flows": [{"topic": "t" * 100_000}]}, "expected up to 100000: put them into a flows_file"),
    ],
)
def test_what_is_wrong_is_reported_with_its_place_and_what_was_expected(file: Path, document: Any, message: str | None) -> None:
    if message is None:
        assert read(file, document).flows == "f"
    else:
        assert message in refused(file, document)


def test_a_key_that_stands_twice_is_refused_and_not_dropped(file: Path) -> None:
    message = refused(file, "dags:\n- dag_id: one\n  tables: [a]\ndags:\n- dag_id: two\n  tables: [b]\n")
    assert "'dags' stands twice" in message
    assert "line 1" in message


def test_no_object_is_made_of_a_tag(file: Path) -> None:
    assert "could not determine a constructor" in refused(file, "dags: !!python/object/apply:os.getcwd []")


def test_of_many_mistakes_the_first_are_reported(file: Path) -> None:
    message = refused(file, {"dags": [{"dag_id": f"d{number}", "tables": 1} for number in range(9)]})
    assert message.count(" is 1, expected a valid list") == 5
    assert "and 4 more" in message


def test_a_file_that_is_not_there_is_reported(file: Path) -> None:
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read_dags_file(file)


# Two Dags and one table.


def dags(*entries: dict[str, Any]) -> dict[str, Any]:
    return {"dags": [{"dag_id": f"d{number}", **entry} for number, entry in enumerate(entries)]}


@pytest.mark.parametrize(
    ("entries", "shared"),
    [
        ([{"tables": ["a.*"]}, {"tables": ["*.b"]}], "'a.*' and '*.b'"),
        ([{"tables": ["*"]}, {"dag_id": "d{table}", "each_table": ["a"]}], "'*' and 'a'"),
        ([{"dag_id": "d{table}", "each_table": ["a"]}, {"tables": ["*"]}], "'a' and '*'"),
        ([{"tables": ["a"]}, {"tables": ["b"]}, {"tables": ["a"]}], "'a' and 'a'"),
        # A pool of many slots keeps nobody apart, nor do two pools.
        ([{"tables": ["a"], "pool": "p"}, {"tables": ["a"], "pool": "p"}], "'a' and 'a'"),
        ([{"tables": ["a"], "one_slot_pool": "p"}, {"tables": ["a"], "one_slot_pool": "q"}], "'a' and 'a'"),
        ([{"tables": ["a"], "one_slot_pool": "p"}, {"tables": ["a"], "one_slot_pool": "p"}, {"tables": ["a"]}], "'a' and 'a'"),
        ([{"tables": ["!a"]}, {"tables": ["b"]}], "'*' and 'b'"),
    ],
)
def test_dags_that_could_merge_one_table_at_the_same_time_are_refused(file: Path, entries: list[dict[str, Any]], shared: str) -> None:
    message = refused(file, dags(*entries))
    assert "could merge one table at the same time" in message
    assert message.endswith(f"{shared} may match the same.")


@pytest.mark.parametrize(
    "entries",
    [
        [{"tables": ["a"]}, {"tables": ["b.*"]}, {"tables": ["*", "!a", "!b.*"]}],
        [{"tables": ["a"], "one_slot_pool": "p"}, {"tables": ["a", "b"], "one_slot_pool": "p"}, {"tables": ["c"]}],
    ],
)
def test_dags_of_different_tables_or_of_one_slot_are_taken(file: Path, entries: list[dict[str, Any]]) -> None:
    assert len(read(file, dags(*entries)).dags) == len(entries)
