"""A source's catalogue through the hook of its connection: which statements, which connector, and what is shown when it fails."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import BaseHook

from airflow_cdc.hooks.source_catalogue import SourceCatalogue, pull_schemas, source_of
from airflow_cdc.model.catalogue.queries import in_style
from airflow_cdc.model.errors import ConfigurationError, SourceFailedError
from airflow_cdc.model.flow.source_schema import SourceColumn, SourceSchema
from airflow_cdc.model.pull.settings import catalogues

SECRET = "p@ss/word"
SHOP = {"conn_type": "postgres", "host": "db", "login": "cdc", "password": SECRET, "schema": "shop"}
TOTAL = ("total", "numeric(14,4)", "numeric", "b", False, (14 << 16 | 4) + 4, None)
BOX = ("area", "box", "box", "b", False, -1, None)


@dataclass
class FakeHook:
    """Answers as a driver does."""

    answers: dict[str, Sequence[Sequence[Any]]] = field(default_factory=dict)
    placeholder: str = "%s"
    problem: Exception | None = None
    driver: str = ""
    log_sql: bool = True
    asked: list[tuple[str, Any]] = field(default_factory=list)

    def get_records(self, sql: str, parameters: Iterable[Any] | None = None) -> Sequence[Sequence[Any]]:
        self.asked.append((sql, parameters))
        if self.problem:
            raise self.problem
        return self.answers[sql]


def answers(connector: str, style: str, tables: Sequence[Any], columns: Sequence[Any], keys: Sequence[Any]) -> dict[str, Sequence[Any]]:
    asked = catalogues()[connector].queries
    return {
        in_style(asked.tables, style): tables,
        in_style(asked.columns, style): columns,
        in_style(asked.keys, style): keys,
        "SELECT version()": [["10.11.6-MariaDB-log"]],
    }


@pytest.fixture
def hook(scene: Any, monkeypatch: pytest.MonkeyPatch) -> FakeHook:
    scene.connect("shop", **SHOP)
    found = FakeHook(answers("postgresql", "%s", [["shop", "inventory", "orders"]], [TOTAL, BOX], [["total"]]))
    monkeypatch.setattr(type(BaseHook.get_connection("shop")), "get_hook", lambda self: found)
    return found


def test_the_columns_of_a_flows_table(hook: FakeHook) -> None:
    (found,) = pull_schemas("shop", ["p.inventory.orders"], {"decimal.handling.mode": "string"})

    assert found == SourceSchema(
        "p.inventory.orders",
        "postgresql",
        (SourceColumn("total", {"type": "string"}, "numeric(14,4)"), SourceColumn("area", {}, "box")),
        ("total",),
        "catalogue of postgresql, connection shop, table inventory.orders",
        {
            "decimal.handling.mode": "string",
            "time.precision.mode": "adaptive",
            "binary.handling.mode": "bytes",
            "interval.handling.mode": "numeric",
            "hstore.handling.mode": "json",
        },
    )
    assert [parameters for _, parameters in hook.asked] == [None, ("inventory", "orders"), ("inventory", "orders")]
    assert not hook.log_sql


def test_mariadb_and_mysql_have_one_type_of_connection(scene: Any, hook: FakeHook) -> None:
    scene.connect("shop", **{**SHOP, "conn_type": "mysql"})

    assert SourceCatalogue("shop").connector == "mariadb"
    hook.answers["SELECT version()"] = [[b"8.4.2"]]
    assert SourceCatalogue("shop").connector == "mysql"
    assert SourceCatalogue("shop", "mariadb").connector == "mariadb"


@pytest.mark.parametrize(
    ("fields", "connector", "style"),
    [
        ({"conn_type": "mssql"}, "sqlserver", "%s"),
        ({"conn_type": "oracle"}, "oracle", ":"),
        ({"conn_type": "ibmdb2"}, "db2", "%s"),
        ({"conn_type": "jdbc", "host": "jdbc:db2://db:50000/shop"}, "db2", "?"),
        ({"conn_type": "jdbc", "host": "jdbc:sqlserver://db;databaseName=testDB"}, "sqlserver", "?"),
        ({"conn_type": "odbc"}, "sqlserver", "?"),
    ],
)
def test_a_driver_gets_parameters_as_it_wants_them(scene: Any, hook: FakeHook, fields: dict[str, str], connector: str, style: str) -> None:
    scene.connect("shop", **{**SHOP, **fields})
    hook.driver = "ODBC Driver 18 for SQL Server"
    hook.answers = answers(connector, style, [["db", "s", "t"]], [], [])

    (found,) = pull_schemas("shop", ["p.s.t"])

    assert found.connector == connector


@pytest.mark.parametrize(
    ("fields", "given", "message"),
    [
        ({"conn_type": "http"}, None, "is of type 'http', expected a database's: one of postgres, mysql"),
        ({}, "oracle", "is of type 'postgres', expected a database's: oracle"),
        ({"conn_type": "jdbc", "host": "jdbc:h2:mem"}, None, "names no database that is known"),
    ],
)
def test_a_connection_of_something_else_is_refused(
    scene: Any, hook: FakeHook, fields: dict[str, str], given: str | None, message: str
) -> None:
    scene.connect("shop", **{**SHOP, **fields})
    with pytest.raises(ConfigurationError, match=message):
        pull_schemas("shop", ["p.s.t"], connector=given)


def test_a_connection_that_is_none_is_refused(hook: FakeHook) -> None:
    with pytest.raises(ConfigurationError, match="There is no connection nowhere"):
        pull_schemas("nowhere", ["p.s.t"])


def test_the_archives_connection_names_the_source(scene: Any) -> None:
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="/data", extra={"source_conn_id": "shop"})
    # As Airflow 2's form wrote it.
    scene.connect("other_archive", conn_type="cdc_archive", host="/data", extra={"extra__cdc_archive__source_conn_id": "billing"})
    assert (source_of(), source_of("other_archive")) == ("shop", "billing")


def test_an_archive_without_a_source_is_refused_with_both_ways_out(scene: Any) -> None:
    scene.connect("cdc_archive_default", conn_type="cdc_archive", host="/data")
    with pytest.raises(ConfigurationError, match="connection cdc_archive_default names no source") as refused:
        source_of()
    assert refused.value.next_step == (
        "Give the source's connection as --source-conn-id, or set source_conn_id in connection cdc_archive_default."
    )
    with pytest.raises(ConfigurationError, match=r"not known\. There is no connection gone") as refused:
        source_of("gone")
    assert refused.value.next_step == "Give the source's connection as --source-conn-id, or the archive's as --archive-conn-id."


def test_a_wrong_setting_is_refused_before_the_database_is_asked(hook: FakeHook) -> None:
    with pytest.raises(ConfigurationError, match="'exact', expected one of"):
        pull_schemas("shop", ["p.s.t"], {"decimal.handling.mode": "exact"})
    assert hook.asked == []


def test_a_missing_provider_is_named(scene: Any) -> None:
    scene.connect("shop", **{**SHOP, "conn_type": "oracle"})
    with pytest.raises(ConfigurationError) as refused:
        pull_schemas("shop", ["p.s.t"])
    assert refused.value.next_step == "Install apache-airflow-providers-oracle with its driver."


def test_a_missing_driver_is_named_too(hook: FakeHook) -> None:
    hook.problem = RuntimeError("Failed to import MySQLdb")
    hook.problem.__cause__ = ImportError("No module named MySQLdb")
    with pytest.raises(ConfigurationError, match="cannot be used: Failed to import MySQLdb") as refused:
        pull_schemas("shop", ["p.s.t"])
    assert "apache-airflow-providers-postgres" in refused.value.next_step


@pytest.mark.parametrize(
    "message",
    [
        f"cannot log in to postgresql://cdc:{SECRET}@db/shop",
        "cannot log in to postgresql://cdc:p%40ss%2Fword@db/shop",
        f"jdbc:db2://db/shop:user=cdc;password = {SECRET};",
        "driver got PWD=another;SERVER=db",
        "the token abc123 is refused",
    ],
)
def test_no_secret_is_shown(scene: Any, hook: FakeHook, message: str) -> None:
    scene.connect("shop", **SHOP, extra={"access_token": "abc123"})
    hook.problem = OSError(f"{message}\nmore of it: {SECRET}")

    with pytest.raises(SourceFailedError) as failed:
        pull_schemas("shop", ["p.s.t"])

    assert "Connection shop: the database does not answer or refuses: " in str(failed.value)
    assert not [secret for secret in (SECRET, "p%40ss", "another", "abc123") if secret in str(failed.value)]
    assert failed.value.__cause__ is None
