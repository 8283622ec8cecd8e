"""Which table a topic is of."""

from __future__ import annotations

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.pull.tables import Table, tables_of


def found(connector: str, flow: str, *there: Table, given: str | None = None) -> str:
    return str(tables_of(connector, [flow], there, {flow: given} if given else {})[flow])


ORDERS = Table("shop", "inventory", "orders")


def test_a_topic_ends_with_schema_and_table() -> None:
    others = (Table("shop", "public", "orders"), Table("shop", "inventory", "orders_2"))
    assert found("postgresql", "shop.inventory.orders", ORDERS, *others) == "inventory.orders"
    assert found("postgresql", "my.prefix.has.points.inventory.orders", ORDERS, *others) == "inventory.orders"


def test_characters_that_a_topic_cannot_have_are_replaced() -> None:
    assert found("postgresql", "p.public.Odd_Table__", Table("db", "public", "Odd Table-é".replace("-", "$"))) == "public.Odd Table$é"


def test_of_sql_server_the_topic_names_the_database_too() -> None:
    table = Table("testDB", "dbo", "customers")
    assert found("sqlserver", "mssql.testDB.dbo.customers", table) == "dbo.customers"
    # Before Debezium 2.0.
    assert found("sqlserver", "mssql.dbo.customers", table) == "dbo.customers"
    with pytest.raises(ConfigurationError):
        found("sqlserver", "mssql.otherDB.dbo.customers", table)


def test_a_table_is_given_where_the_topic_has_another_name() -> None:
    assert found("postgresql", "routed", ORDERS, given="inventory.orders") == "inventory.orders"
    assert found("postgresql", "routed", ORDERS, given="shop.inventory.orders") == "inventory.orders"


def test_the_longest_name_counts() -> None:
    short, long = Table("db", "b", "c"), Table("db", "a.b", "c")
    assert found("postgresql", "p.a.b.c", short, long) == "a.b.c"


def test_every_flow_without_a_table_is_named_with_what_is_there() -> None:
    with pytest.raises(ConfigurationError) as refused:
        tables_of("postgresql", ["shop.inventory.orders", "shop.gone", "shop.away"], [ORDERS], {"shop.away": "x.away"})
    assert refused.value.message == (
        "Flow shop.gone: there is no table of which that would be the topic. Flow shop.away: there is no table x.away."
        " The connection's user sees inventory.orders."
    )


def test_tables_whose_topics_are_the_same_are_assigned_by_hand() -> None:
    both = (Table("db", "public", "a b"), Table("db", "public", "a$b"))
    with pytest.raises(ConfigurationError, match=r"may be of any of the tables 'public.a b', 'public.a\$b'"):
        found("postgresql", "p.public.a_b", *both)
    assert found("postgresql", "p.public.a_b", *both, given="public.a$b") == "public.a$b"


def test_a_long_list_of_tables_is_cut() -> None:
    there = [Table("db", "public", f"t{number:03}") for number in range(50)]
    with pytest.raises(ConfigurationError, match=r"public\.t019 and 30 more"):
        found("postgresql", "p.public.gone", *there)
    with pytest.raises(ConfigurationError, match="The connection's user sees no table"):
        found("postgresql", "p.public.gone")
