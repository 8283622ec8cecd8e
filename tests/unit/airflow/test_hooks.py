"""The two connections: every way to spell a root, what they say about it, and how they refuse a wrong one."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from airflow_cdc.hooks.archive import CdcArchiveHook, pending_summary, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import ArchiveNotFoundError, ConfigurationError


@pytest.mark.parametrize(
    ("uri", "root"),
    [
        ("cdc-archive:///data/archive", "/data/archive"),
        ("cdc-archive://%2Fdata%2Farchive", "/data/archive"),
        ("cdc-archive://file%3A%2F%2F%2Fdata%2Farchive", "file:///data/archive"),
        ("cdc-archive://s3%3A%2F%2Fbucket%2Ftopics", "s3://bucket/topics"),
        ("cdc-archive://s3://bucket/topics/prod", "s3://bucket/topics/prod"),
        ("cdc-archive://hdfs://name:8020/data/archive", "hdfs://name:8020/data/archive"),
        ("s3://bucket/topics", "s3://bucket/topics"),
        ("file:///data/archive", "file:///data/archive"),
        ("/data/archive/", "/data/archive"),
    ],
)
def test_takes_the_root_from_every_form_of_a_connection_uri(scene: Any, uri: str, root: str) -> None:
    scene.connect_uri("archive", uri)
    assert CdcArchiveHook("archive").root == root


@pytest.mark.parametrize(
    ("host", "root", "fs_root"),
    [("/data/archive/", "/data/archive", "/data/archive"), ("file:///data/archive", "file:///data/archive", "/data/archive")],
)
def test_a_local_root_is_passed_on_as_it_is_spelled_and_reached_as_a_path(scene: Any, host: str, root: str, fs_root: str) -> None:
    scene.connect("archive", conn_type="cdc_archive", host=host)
    hook = CdcArchiveHook("archive")
    assert (hook.root, hook.fs_root, hook.storage_conn_id) == (root, fs_root, None)
    assert "file" in hook.fs.protocol
    assert str(hook.path.path) == fs_root


def test_the_storage_connection_comes_from_its_field_or_from_the_url_as_airflow_spells_it(scene: Any) -> None:
    scene.connect("by_field", conn_type="cdc_archive", host="s3://bucket/a", extra={"storage_conn_id": "aws_archive"})
    scene.connect("by_url", conn_type="cdc_archive", host="s3://aws_archive@bucket/a")
    for conn_id in ("by_field", "by_url"):
        hook = CdcArchiveHook(conn_id)
        assert (hook.root, hook.storage_conn_id) == ("s3://bucket/a", "aws_archive")


def test_an_azure_container_is_no_connection_id(scene: Any) -> None:
    scene.connect("azure", conn_type="cdc_lake", host="abfss://lake@account.dfs.core.windows.net/cdc")
    hook = CdcLakeHook("azure")
    assert (hook.root, hook.storage_conn_id) == ("abfss://lake@account.dfs.core.windows.net/cdc", None)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"host": ""}, "has no root URL"),
        ({"host": "data/archive"}, "neither a URL nor an absolute path"),
        ({"host": "s3://key:s3cr3t@bucket/a"}, "carry a password"),
        ({"host": "s3://bucket/a", "password": "s3cr3t"}, "carry a password"),
    ],
)
def test_refuses_a_wrong_root_with_a_next_step_and_without_the_secret(scene: Any, fields: dict[str, str], message: str) -> None:
    scene.connect("wrong", conn_type="cdc_archive", **fields)
    with pytest.raises(ConfigurationError) as refused:
        _ = CdcArchiveHook("wrong").root
    assert message in str(refused.value)
    assert "Next step: " in str(refused.value)
    assert "s3cr3t" not in str(refused.value)


def test_names_a_scheme_with_an_underscore_that_was_misread(scene: Any) -> None:
    scene.connect_uri("typed", "cdc_archive:///data/archive")
    with pytest.raises(ConfigurationError, match="cdc-archive://"):
        _ = CdcArchiveHook("typed").root


def test_names_the_connection_that_is_missing_and_the_one_that_cannot_be_read(scene: Any) -> None:
    with pytest.raises(ConfigurationError, match=r"There is no connection nowhere.*AIRFLOW_CONN_NOWHERE"):
        _ = CdcArchiveHook("nowhere").root
    scene.connect_uri("broken", '{"conn_type": "cdc_archive",')
    with pytest.raises(ConfigurationError, match="cannot read connection broken"):
        _ = CdcArchiveHook("broken").root


def test_the_archive_s_connection_shows_what_it_holds(scene: Any) -> None:
    assert CdcArchiveHook().test_connection() == (True, f"{scene.archive} is there and holds no archived events yet (0 other files).")
    scene.land("0000000000")
    scene.land("0000000001")
    scene.land("0000000000", topic="server.db.customers")
    holds, message = CdcArchiveHook().test_connection()
    assert holds
    assert "3 files of 2 topics; newest: server.db." in message
    assert "UTC" in message


def test_the_archive_s_connection_shows_that_the_archive_is_missing(scene: Any) -> None:
    scene.connect("gone", conn_type="cdc_archive", host=str(scene.folder / "gone"))
    holds, message = CdcArchiveHook("gone").test_connection()
    assert not holds
    assert "There is no archive" in message
    with pytest.raises(ArchiveNotFoundError):
        CdcArchiveHook("gone").pending(CdcLakeHook())


def test_the_archive_s_connection_shows_files_other_than_those_it_declares(scene: Any) -> None:
    scene.connect("avro", conn_type="cdc_archive", host=str(scene.archive), extra={"layout": "sink", "format": "avro"})
    assert CdcArchiveHook("avro").test_connection()[0]
    scene.land("0000000000")
    holds, message = CdcArchiveHook("avro").test_connection()
    assert not holds
    assert "shall hold files of layout sink and format avro alone, and 1 of 1 files are others: server.db.orders/" in message


def test_a_connection_shows_only_what_there_is(scene: Any) -> None:
    scene.connect("orc", conn_type="cdc_archive", host=str(scene.archive), extra={"format": "orc"})
    with pytest.raises(ConfigurationError, match=r"its format is 'orc'\. Next step: Set it to one of auto, json, avro, parquet"):
        _ = CdcArchiveHook("orc").shape


def test_a_storage_connection_must_exist(scene: Any) -> None:
    scene.connect("far", conn_type="cdc_lake", host="file:///data/lake", extra={"storage_conn_id": "misspelled"})
    message = "There is no connection misspelled. Next step: Create the storage connection that far names"
    assert CdcLakeHook("far").test_connection()[1].startswith(message)
    with pytest.raises(ConfigurationError, match=message):
        CdcLakeHook("far").storage_settings()


@pytest.mark.parametrize(
    ("root", "provider"),
    [
        ("s3://b/t", "apache-airflow-providers-amazon"),
        ("gs://b/t", "apache-airflow-providers-google"),
        ("hdfs://127.0.0.1:1/t", "pyarrow"),
        ("nostorage://b/t", "for s3://"),
    ],
)
def test_names_the_missing_provider_to_install(scene: Any, monkeypatch: pytest.MonkeyPatch, root: str, provider: str) -> None:
    # Also where the machine that runs this has them.
    for module in ("s3fs", "gcsfs"):
        monkeypatch.setitem(sys.modules, module, None)
    scene.connect("far", conn_type="cdc_archive", host=root)
    holds, message = CdcArchiveHook("far").test_connection()
    assert not holds
    assert f"Next step: Install what reaches that storage: {provider}" in message


def test_the_lake_s_connection_shows_its_flows(scene: Any) -> None:
    assert CdcLakeHook().test_connection() == (True, f"{scene.lake} can be reached and does not exist yet; the first merge creates it.")
    scene.lake.mkdir()
    assert CdcLakeHook().test_connection()[1].endswith("holds no flow yet.")
    (scene.lake / "_cdc" / "flows" / "server.db.orders").mkdir(parents=True)
    assert CdcLakeHook().test_connection() == (True, f"{scene.lake} holds 1 flows: server.db.orders.")


def test_pending_files_are_those_that_match_the_globs(scene: Any) -> None:
    scene.land("0000000000")
    scene.land("0000000001")
    scene.land("0000000000", topic="server.db.customers")
    pending = CdcArchiveHook().pending(CdcLakeHook(), ["*.orders"])
    assert pending_summary(pending) == {"files": 2, "topics": {"server.db.orders": 2}}
    assert pending_summary(CdcArchiveHook().pending(CdcLakeHook()))["files"] == 3


@pytest.mark.parametrize(
    ("tables", "globs"),
    [
        (None, []),
        ("", []),
        ("a.b", ["a.b"]),
        ("a.*, b.c\n d.?", ["a.*", "b.c", "d.?"]),
        (["a.b", " c.d "], ["a.b", "c.d"]),
        (("a,b",), ["a", "b"]),
    ],
)
def test_tables_may_be_one_text_or_many(tables: Any, globs: list[str]) -> None:
    assert table_globs(tables) == globs


@pytest.mark.parametrize("tables", [" ", ",", [""], [" "], [","], (" , ", "\n")])
def test_what_is_there_and_names_nothing_does_not_select_every_table(tables: Any) -> None:
    with pytest.raises(ConfigurationError, match="names nothing"):
        table_globs(tables)


@pytest.mark.parametrize("tables", ["", [], ()])
def test_what_must_name_tables_takes_nothing_rendered_for_no_answer(tables: Any) -> None:
    with pytest.raises(ConfigurationError, match="names nothing"):
        table_globs(tables, must_name=True)
    assert table_globs(None, must_name=True) == []
