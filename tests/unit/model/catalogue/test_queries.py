"""Statements for drivers of every style."""

from __future__ import annotations

import pytest

from airflow_cdc.model.catalogue.queries import in_style
from airflow_cdc.model.pull.settings import catalogues


@pytest.mark.parametrize("connector", list(catalogues()))
def test_a_statement_holds_parameters_and_nothing_that_a_driver_takes_for_one(connector: str) -> None:
    asked = catalogues()[connector].queries
    assert [statement.count("?") for statement in (asked.tables, asked.columns, asked.keys)] == [0, 2, 2]
    assert not {"%", ":", ";"} & set(asked.tables + asked.columns + asked.keys)


def test_parameters_are_spelled_as_a_driver_wants_them() -> None:
    asked = "\nSELECT a FROM t WHERE b = ? AND c = ?"
    assert in_style(asked, "?") == "SELECT a FROM t WHERE b = ? AND c = ?"
    assert in_style(asked, "%s") == "SELECT a FROM t WHERE b = %s AND c = %s"
    assert in_style(asked, ":") == "SELECT a FROM t WHERE b = :1 AND c = :2"
