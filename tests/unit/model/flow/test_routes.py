"""Routes: the first that matches names a topic's tables where its flow does not; what cannot be is refused with both names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.routes import Route, RoutedFlows, flows_from_document, refuse_shared_tables

SHOP = Route(r"pg\.(?P<schema>\w+)\.(\w+)", r"gold/\g<schema>/\2", ("shop", r"\g<schema>_\2"))


@pytest.mark.parametrize(
    ("routes", "topic", "table"),
    [
        ([SHOP], "pg.public.orders", "gold/public/orders"),
        # The whole topic must match.
        ([SHOP], "pg.public.orders.old", None),
        ([SHOP], "my.pg.public.orders", None),
        # The first that matches wins.
        ([Route("pg.*", r"first/\g<0>"), SHOP], "pg.public.orders", "first/pg.public.orders"),
        ([SHOP, Route(".*", "rest")], "mysql.shop.orders", "rest"),
        # A group that took no part is empty.
        ([Route(r"(\w+)(\.old)?", r"\1\2")], "orders", "orders"),
        ([Route(r"(.*)", r"s3://bucket/\1")], "it's 100% `odd`", "s3://bucket/it's 100% `odd`"),
        ([Route(r"(.*)", r"\1")], r"back\1slash", r"back\1slash"),
    ],
)
def test_the_first_route_that_matches_the_whole_topic_names_its_table(routes: list[Route], topic: str, table: str | None) -> None:
    flows = RoutedFlows({}, routes)
    assert flows.get(topic, CdcFlow(topic)).table == table
    assert (topic in flows) == (table is not None)


def test_a_flows_own_tables_go_first_one_by_one() -> None:
    own = {
        "pg.public.a": CdcFlow("pg.public.a", table="mine"),
        "pg.public.b": CdcFlow("pg.public.b", catalog_table=("mine", "b"), keys=("id",)),
        "other": CdcFlow("other"),
    }
    flows = RoutedFlows(own, [SHOP])
    assert flows["pg.public.a"] == CdcFlow("pg.public.a", table="mine", catalog_table=("shop", "public_a"))
    assert flows["pg.public.b"] == CdcFlow("pg.public.b", table="gold/public/b", catalog_table=("mine", "b"), keys=("id",))
    assert flows["other"] is own["other"]
    assert list(flows) == list(own)
    assert [bool(each) for each in (flows, RoutedFlows({}, [SHOP]), RoutedFlows(own), RoutedFlows({}))] == [True, True, True, False]
    with pytest.raises(KeyError):
        flows["another"]


def test_what_a_group_matched_stays_in_its_part_of_the_name() -> None:
    route = Route.from_mapping({"topic": "(.*)", "catalog_table": r"lake.`of all`.\1"})
    assert route.applied_to(CdcFlow("a.b`c")).catalog_table == ("lake", "of all", "a.b`c")


@pytest.mark.parametrize(
    ("entry", "complaint", "next_step"),
    [
        ({"topic": "pg.(", "table": "t"}, r"Route 'pg.\(': topic is no regular expression: missing \)", "Correct it"),
        ({"topic": "(?<x>.*)", "table": "t"}, "is no regular expression", r"\(\?P<name>…\)"),
        ({"topic": "(.*)", "table": r"\2"}, r"invalid group reference 2.*has 1 groups", "groups|Refer"),
        ({"topic": "(?P<x>.*)", "table": r"\g<y>"}, r"unknown group name 'y'.*has 1 groups \['x'\]", "Refer"),
        ({"topic": ".*", "table": r"a\q"}, "bad escape", "Refer"),
        ({"topic": "(.*)", "catalog_table": r"shop.\2"}, r"'\\\\2' cannot be filled in", "Refer"),
        ({"topic": "(.*)", "table": "t_$1"}, r"refers to a group as \$1", r"\\1 or"),
        ({"topic": "(.*)", "table": "t_${name}"}, r"refers to a group as \$\{", r"\\1 or"),
        ({"topic": "(.*)"}, "neither a table nor a catalog_table", "Give it one"),
        ({"topic": "(.*)", "keys": ["id"]}, r"unknown settings \['keys'\], known are \['catalog_table', 'table', 'topic'\]", "a flow's"),
        ({"table": "t"}, "topic is no text", "Correct"),
        ({"topic": "(.*)", "table": 5}, "table is no text", "Correct"),
        ({"topic": "(.*)", "table": ""}, "table is no text", "Correct"),
        ({"topic": "(.*)", "catalog_table": ["shop", "t"]}, "catalog_table is no text", "Correct"),
        ({"topic": "(.*)", "catalog_table": r"\1"}, r"catalog_table is .* expected \[catalog\.\]schema\.table", "Correct"),
    ],
)
def test_an_impossible_route_is_refused_with_the_next_step(entry: dict[str, Any], complaint: str, next_step: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{complaint}.*Next step: .*({next_step})"):
        flows_from_document({"routes": [entry]})


@pytest.mark.parametrize(
    ("route", "topic", "complaint"),
    [
        (Route(r"pg(.*)", r"\1"), "pg", r"Route 'pg\(\.\*\)': topic pg makes an empty name"),
        (Route(r"(.*)", catalog_table=("shop", r"\1")), "", "has no topic"),
        (Route(r"(.*)", r"gold/\1"), "..", r"Flow \.\.: table 'gold/\.\.' is no place"),
        (Route(r"pg(.*)", r"\1/a"), "pg_cdc", "table '_cdc/a' is no place"),
    ],
)
def test_a_topic_that_makes_no_table_is_refused_by_name(route: Route, topic: str, complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{complaint}.*Next step: "):
        RoutedFlows({}, [route])[topic]


@pytest.mark.parametrize(
    ("tables", "together"),
    [
        ({"a": "gold/t", "b": "gold/t"}, ("a", "b")),
        ({"a": "gold/t", "b": "gold/t/"}, ("a", "b")),
        # The name of a topic is a place too.
        ({"a": "b", "b": None}, ("a", "b")),
        ({"a": "s3://bucket/t", "b": "s3a://bucket/t"}, ("a", "b")),
        ({"a": "gs://bucket/t", "b": "gcs://bucket/t"}, ("a", "b")),
        ({"a": "/other/t", "b": "/other//t"}, ("a", "b")),
        ({"a": "/lake/t", "b": "t", "c": "u"}, ("a", "b")),
        ({"a": "file:///lake/t", "b": "t"}, ("a", "b")),
        # What one table cleans up are files of the other.
        ({"a": "gold/t", "b": "gold/t b", "c": "gold/t/c"}, ("a", "c")),
        ({"a": "gold/t/c", "b": "gold"}, ("b", "a")),
        ({"a": "gold/t", "b": "gold/T", "c": "gold/t.c", "d": "gold"[:3]}, None),
    ],
)
def test_two_topics_may_not_share_a_place(tables: dict[str, str | None], together: tuple[str, str] | None) -> None:
    flows = [CdcFlow(topic, table) for topic, table in tables.items()]
    if together is None:
        refuse_shared_tables(flows, "/lake")
        return
    with pytest.raises(
        ConfigurationError,
        match=f"Topics {together[0]} and {together[1]} .*(/lake|/other|s3://bucket|gs://bucket)/.*Next step: Give each a table of its own",
    ):
        refuse_shared_tables(flows, "/lake")


def test_two_topics_may_not_share_a_name_however_it_is_spelled() -> None:
    flows = [CdcFlow("a", catalog_table=("shop", "t")), CdcFlow("b", catalog_table=("Shop", "T"))]
    with pytest.raises(ConfigurationError, match=r"Topics a and b would share.*a: /lake/a, shop\.t; b: /lake/b, Shop\.T"):
        refuse_shared_tables(flows, "/lake")
    refuse_shared_tables([flows[0], CdcFlow("b", catalog_table=("other", "shop", "t"))], "/lake")


def test_a_file_holds_flows_and_routes_or_one_of_them(tmp_path: Path) -> None:
    route = "routes:\n- {topic: 'pg\\.(.*)', table: 'gold/\\1', catalog_table: shop.\\1}\n"
    (tmp_path / "routes.yaml").write_text(route, encoding="utf-8")
    (tmp_path / "both.yaml").write_text(f"flows:\n- {{topic: pg.a, keys: [id]}}\n{route}", encoding="utf-8")
    routed = CdcFlow("pg.b", "gold/b", catalog_table=("shop", "b"))
    assert read_flows(tmp_path / "routes.yaml")["pg.b"] == read_flows(tmp_path / "both.yaml")["pg.b"] == routed
    assert read_flows(tmp_path / "both.yaml")["pg.a"] == CdcFlow("pg.a", "gold/a", ("id",), catalog_table=("shop", "a"))


@pytest.mark.parametrize("document", [{"routes": {}}, {"routes": ["a"]}, {"flows": [], "route": []}, {"routes": None}])
def test_a_document_of_another_shape_is_refused(document: Any) -> None:
    with pytest.raises(ConfigurationError, match="of routes under 'routes:', and nothing else"):
        flows_from_document(document)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("shop.customers", ("shop", "customers")),
        ("unity.shop.customers", ("unity", "shop", "customers")),
        ("`a b`.`c.d`.`e``f`", ("a b", "c.d", "e`f")),
        ("ö-x.1st", ("ö-x", "1st")),
    ],
)
def test_a_name_in_the_catalog_is_spelled_as_in_sql(text: str, parts: tuple[str, ...]) -> None:
    assert CdcFlow.from_mapping({"topic": "t", "catalog_table": text}).catalog_table == parts


@pytest.mark.parametrize("text", ["customers", "a.b.c.d", "shop.", ".t", "a b.t", "a.`b", "a.b`c", "a.``", 5, None, ["shop", "t"]])
def test_another_name_is_refused_with_the_flow(text: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"Flow t: catalog_table is .* expected"):
        CdcFlow.from_mapping({"topic": "t", "catalog_table": text})
