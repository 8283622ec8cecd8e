"""``scd_columns``: names that a table of versions can have are taken, others are refused before anything runs."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.columns import IS_CURRENT, PREVIOUS_KEY, VALID_FROM, VALID_TO
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.scd_columns import ScdColumns

VERSIONS = {"topic": "t", "stored_as_scd_type": 2}
DEFAULTS = {"valid_from": VALID_FROM, "valid_to": VALID_TO, "is_current": IS_CURRENT, "previous_key": PREVIOUS_KEY}


def chosen(setting: Any, **more: Any) -> CdcFlow:
    return CdcFlow.from_mapping({**VERSIONS, "scd_columns": setting, **more})


def test_without_the_setting_the_names_are_ours() -> None:
    assert CdcFlow.from_mapping(VERSIONS).scd_columns.to_json() == DEFAULTS
    assert chosen({}) == CdcFlow.from_mapping(VERSIONS)


@pytest.mark.parametrize(
    "setting",
    [
        {"valid_from": "valid_from", "valid_to": "valid_to", "is_current": "is_current"},
        {"previous_key": "came from `here`, or there.x"},
        # Each name is another default's key, which is no name of a column.
        {"valid_from": "valid_to", "valid_to": "valid_from"},
        {"valid_from": "gültig von", "valid_to": "gültig_bis", "is_current": "jetzt", "previous_key": "früher"},
        {"is_current": IS_CURRENT, "valid_to": "bis"},
    ],
)
def test_each_name_may_be_chosen_and_the_others_stay(setting: dict[str, str]) -> None:
    names = chosen(setting).scd_columns
    assert names.to_json() == {**DEFAULTS, **setting}
    assert names.by_default == {default: setting.get(key, default) for key, default in DEFAULTS.items()}
    assert ScdColumns.from_json(names.to_json()) == names


def test_a_setting_that_a_newer_version_recorded_is_ignored() -> None:
    assert ScdColumns.from_json({"valid_to": "bis", "committed_at": "at"}) == ScdColumns(valid_to="bis")


def test_a_flows_document_in_json_has_the_setting_too() -> None:
    document = {"flows": [{**VERSIONS, "scd_columns": {"valid_from": "since"}}]}
    assert read_flows(json.dumps(document))["t"].scd_columns == ScdColumns(valid_from="since")


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        (None, "a map of names"),
        ("valid_from", "a map of names"),
        (["valid_from"], "a map of names"),
        ({"from": "valid_from"}, "a map of names for some of ['valid_from', 'valid_to', 'is_current', 'previous_key']"),
        ({"valid_from": "since", "Valid_To": "until"}, "a map of names"),
        # YAML reads `on` and `no` as truth values.
        ({"valid_from": True}, "names of columns, in place of True"),
        ({True: "since"}, "a map of names"),
        ({"valid_from": None}, "names of columns, in place of None"),
        ({"valid_to": ""}, "names of columns, in place of ''"),
        ({"valid_to": " \t"}, "names of columns, in place of ' \\t'"),
        ({"valid_to": "__cdc_position"}, "names that do not start with __cdc_, or __cdc_valid_to as it is, in place of '__cdc_position'"),
        ({"valid_to": "__cdc_valid_from"}, "in place of '__cdc_valid_from'"),
        ({"valid_to": "__CDC_until"}, "in place of '__CDC_until'"),
        ({"valid_to": "__CDC_valid_to"}, "in place of '__CDC_valid_to'"),
        ({"valid_from": "at", "valid_to": "at"}, "four names that differ in more than case, in place of ['at', 'at']"),
        ({"valid_from": "Ätt", "previous_key": "äTT"}, "four names that differ in more than case, in place of ['Ätt', 'äTT']"),
    ],
)
def test_names_that_a_table_cannot_have_are_refused_with_what_is_expected(setting: Any, expected: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        chosen(setting)
    assert refused.value.message.startswith(f"Flow t: scd_columns is {setting!r}, expected ")
    assert expected in refused.value.message
    assert refused.value.transient is False


@pytest.mark.parametrize(
    ("settings", "mode"),
    [
        ({}, "scd1"),
        ({"stored_as_scd_type": 1}, "scd1"),
        ({"on_delete": "flag"}, "scd1-flagged"),
        ({"write_disposition": "append"}, "append"),
    ],
)
def test_a_flow_that_keeps_no_versions_has_no_names_to_choose(settings: dict[str, Any], mode: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"Flow t: scd_columns is for tables that keep versions; .*\({mode}\)\.") as refused:
        CdcFlow.from_mapping({"topic": "t", "scd_columns": {"valid_from": "since"}, **settings})
    assert "set stored_as_scd_type to 2" in refused.value.next_step


@pytest.mark.parametrize(
    ("settings", "name"),
    [
        ({"keys": ["id", "since"]}, "since"),
        ({"keys": ["Since"]}, "Since"),
        ({"columns": {"SINCE": "DATE"}}, "SINCE"),
        ({"document_columns": {"since": "DATE"}}, "since"),
        ({"table_column": "since"}, "since"),
    ],
)
def test_a_column_that_the_flow_declares_cannot_have_a_chosen_name(settings: dict[str, Any], name: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        chosen({"valid_from": "since"}, **settings)
    assert f"Flow t: scd_columns chooses names that columns of the source have (column: setting): {{'{name}': 'valid_from'}}." == (
        refused.value.message
    )
    assert "Choose other names under scd_columns" in refused.value.next_step


def test_maintenance_may_cluster_by_a_column_with_a_chosen_name() -> None:
    assert chosen({"valid_from": "since"}, cluster_by=["since"]).cluster_by == ("since",)
