"""How a lake's state names a table, and which folder a URI is in."""

from __future__ import annotations

import pytest

from airflow_cdc.model.places import is_same, is_within, place_at, place_in


@pytest.mark.parametrize(
    ("lake", "table", "place"),
    [
        ("s3://b/lake", "s3://b/lake/shop.orders", "shop.orders"),
        ("s3://b/lake/", "s3://b/lake/gold/orders", "gold/orders"),
        ("/data/lake", "/data/lake/a b", "a b"),
        ("/data/lake", "/data/lake2/orders", "/data/lake2/orders"),
        ("/data/lake", "s3://b/lake/orders", "s3://b/lake/orders"),
        # These are no places below a lake: they stay what they were.
        ("/data/lake", "/data/lake//x", "/data/lake//x"),
        ("/data/lake", "/data/lake/../x", "/data/lake/../x"),
        ("/data/lake", "/data/lake/_cdc/x", "/data/lake/_cdc/x"),
    ],
)
def test_the_state_names_a_table_by_its_path_below_the_lake(lake: str, table: str, place: str) -> None:
    assert place_in(lake, table) == place
    assert place_at(lake, place) == table


def test_a_lake_that_is_elsewhere_now_has_its_own_tables() -> None:
    assert place_at("abfss://c@a/copy/", place_in("s3://b/lake", "s3://b/lake/orders")) == "abfss://c@a/copy/orders"


@pytest.mark.parametrize(
    ("uri", "root", "within"),
    [
        ("s3://b/lake/orders", "s3://b/lake", True),
        ("s3a://b/lake/orders", "s3://b/lake/", True),
        ("file:///data/lake", "/data/lake", True),
        ("s3://b/lake2/orders", "s3://b/lake", False),
        ("s3://b/lake/../other", "s3://b/lake", False),
        ("gs://b/lake/orders", "s3://b/lake", False),
        ("/etc/lake", "/data/lake", False),
    ],
)
def test_a_uri_is_in_a_folder_by_whole_parts_of_its_path(uri: str, root: str, within: bool) -> None:
    assert is_within(uri, root) is within


def test_a_place_has_several_spellings() -> None:
    assert is_same("s3a://b/topics/", "s3://b/topics")
    assert is_same("gcs://b/topics", "gs://b/topics")
    assert is_same("abfs://c@a/topics", "abfss://c@a/topics")
    assert is_same("file:/data/x", "/data/x")
    assert is_same("file:///data//x", "/data/x")
    # Of an object store these are two keys.
    assert not is_same("s3://b//x", "s3://b/x")
    assert not is_same("/data/x", "/data/x/y")
