"""Credentials by store: those of a scope are its own, in all threads that it starts, and no other scope sees them."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from fsspec.implementations.local import LocalFileSystem

from airflow_cdc.pipeline.spark import storage
from airflow_cdc.pipeline.spark.storage import delta_options, file_system, scoped_options
from airflow_cdc.plugins.page.carried import carried

BUCKET = "s3://of-scopes"


@pytest.fixture(autouse=True)
def given(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Options that file systems were made with."""
    made: list[dict[str, Any]] = []

    def url_to_fs(uri: str, **options: Any) -> tuple[LocalFileSystem, str]:
        made.append(options)
        return LocalFileSystem(), uri

    monkeypatch.setattr("fsspec.core.url_to_fs", url_to_fs)
    monkeypatch.setattr(storage, "_OPTIONS", {})
    monkeypatch.setattr(storage, "_CALLED", set())
    monkeypatch.setattr(storage, "_has_profiles", lambda: False)
    # Of these delta-rs would take some.
    for name in [name for name in os.environ if name.startswith("AWS_") or name in ("TOKEN", "REGION")]:
        monkeypatch.delenv(name)
    return made


def key(name: str) -> dict[str, dict[str, str]]:
    return {BUCKET: {"key": name, "secret": f"of-{name}"}}


def test_two_lakes_in_one_bucket_are_reached_each_with_its_own_key(given: list[dict[str, Any]]) -> None:
    for name in ("first", "second", "first"):
        with scoped_options(key(name)):
            file_system(f"{BUCKET}/lake")
            assert delta_options(f"{BUCKET}/lake/t")["aws_access_key_id"] == name
    assert [options["key"] for options in given] == ["first", "second", "first"]


def test_a_scope_takes_precedence_and_ends(given: list[dict[str, Any]]) -> None:
    storage.use_options(key("process"))
    with scoped_options(key("outer")):
        with scoped_options(key("inner")):
            file_system(f"{BUCKET}/x")
        file_system(f"{BUCKET}/x")
        assert storage.options_in_use() == key("outer")
    file_system(f"{BUCKET}/x")
    assert [options["key"] for options in given] == ["inner", "outer", "process"]


def test_threads_that_a_scope_starts_have_its_key_and_no_others_do() -> None:
    def used(_: int) -> str:
        file_system(f"{BUCKET}/x")
        return str(delta_options(f"{BUCKET}/x")["aws_access_key_id"])

    found: dict[str, set[str]] = {}
    with ThreadPoolExecutor(4) as pool:

        def serve(name: str) -> None:
            with scoped_options(key(name)):
                found[name] = set(pool.map(carried(used), range(50)))

        servers = [threading.Thread(target=serve, args=(name,)) for name in ("first", "second", "third")]
        for each in servers:
            each.start()
        for each in servers:
            each.join()
    assert found == {name: {name} for name in ("first", "second", "third")}
