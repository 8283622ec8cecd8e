"""delta-rs opens a table where the job's own calls go, by the same credentials, and nowhere else."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import fsspec
import pytest
from deltalake.exceptions import DeltaError
from fsspec.implementations.memory import MemoryFileSystem

from airflow_cdc.model.delta_rs_options import delta_rs_options
from airflow_cdc.pipeline.spark import exclusive_writes, storage
from airflow_cdc.pipeline.target import open_natively as open_natively_module
from airflow_cdc.pipeline.target.commit_natively import commit_deletion_vectors
from airflow_cdc.pipeline.target.open_natively import (
    brought_up_to_date,
    describe_natively,
    open_table,
    reach,
    why_not_reached,
    without_answers,
)
from tests.support.natively import new_table

SECRET = "s3cr3t"
ANSWER = """Kernel error -> Generic S3 error
          \x1b[31m↳\x1b[0m Error performing PUT https://acc.example.com/t?sig=s3cr3t in 1ms - Server returned non-2xx status code
           \x1b[31m↳\x1b[0m 400 Bad Request
            \x1b[31m↳\x1b[0m <?xml version="1.0"?>
<Error><AWSAccessKeyId>AKs3cr3t</AWSAccessKeyId></Error>"""


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that has called no store, on a machine without credentials of its own."""
    for name in (name for name in os.environ if name.startswith(("AWS_", "GOOGLE_", "AZURE_"))):
        monkeypatch.delenv(name)
    monkeypatch.setattr(storage, "_OPTIONS", {})
    monkeypatch.setattr(storage, "_CALLED", set())
    monkeypatch.setattr(exclusive_writes, "_FOUND", {})
    monkeypatch.setattr(open_natively_module, "_FAILED", set())


@pytest.mark.parametrize("name", ["plain", "ha#sh", "100% sure", "a b", "ünï", "ques?tion"])
def test_a_local_table_of_any_name_is_described(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    new_table(str(tmp_path / name))
    for uri in (str(tmp_path / name), f"file://{tmp_path / name}"):
        found = describe_natively(uri)
        assert found is not None
        assert (found.files, found.size, found.properties["airflow_cdc.keys"]) == (0, 0, '["id"]')
        assert [field.name for field in found.fields][:2] == ["id", "name"]


def test_a_table_that_is_open_is_brought_up_to_date(tmp_path: Path) -> None:
    uri = str(tmp_path)
    new_table(uri)
    found = describe_natively(uri)
    assert found is not None
    before = found.table.version()
    commit_deletion_vectors(uri, open_table(uri))
    table = brought_up_to_date(uri, found.table)
    assert table is found.table
    assert table.version() == before + 1 == brought_up_to_date(uri, None).version()
    assert table.metadata().configuration["delta.enableDeletionVectors"] == "true"
    assert "deletionVectors" in table.protocol().writer_features


def test_a_table_whose_folder_was_removed_is_not_taken_for_unchanged(tmp_path: Path) -> None:
    uri = str(tmp_path / "table")
    new_table(uri)
    commit_deletion_vectors(uri, open_table(uri))
    found = describe_natively(uri)
    assert found is not None
    shutil.rmtree(uri)
    with pytest.raises(DeltaError):
        brought_up_to_date(uri, found.table)
    new_table(uri)
    assert brought_up_to_date(uri, found.table).version() == 0


def test_a_missing_table_is_left_to_spark(tmp_path: Path) -> None:
    assert describe_natively(str(tmp_path / "none")) is None
    with pytest.raises(DeltaError):
        open_table(str(tmp_path / "none"))


def test_a_store_that_the_job_does_not_call_is_left_to_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri, **options: (None, uri.partition("://")[2]))
    storage.use_options({"s3://lake": {"key": "AK", "secret": SECRET}})
    assert "credentials are unknown" in str(why_not_reached("s3a://lake/t"))
    storage.file_system("s3://lake/root")
    assert why_not_reached("s3a://lake/t") is None
    assert "credentials are unknown" in str(why_not_reached("s3a://third/t"))
    assert describe_natively("s3a://third/t") is None
    monkeypatch.setenv("TOKEN", SECRET)
    assert why_not_reached("s3a://lake/t") == "delta-rs may read the environment variable TOKEN"


def test_hdfs_stays_with_spark() -> None:
    assert why_not_reached("hdfs://name:8020/lake") is not None


@pytest.mark.parametrize(
    ("uri", "path"),
    [
        ("/lake/a#b", "/lake/a#b"),
        ("file:///lake/a%b", "/lake/a%b"),
        ("s3a://b/lake/t", "s3://b/lake/t"),
        ("s3://b/a%b/e f/ü=+&", "s3://b/a%25b/e%20f/%C3%BC%3D%2B%26"),
        ("gs://b/t", "gs://b/t"),
        ("abfs://c@a.dfs.core.windows.net/t", "abfss://c@a.dfs.core.windows.net/t"),
    ],
)
def test_a_place_is_spelled_for_delta_rs(monkeypatch: pytest.MonkeyPatch, uri: str, path: str) -> None:
    monkeypatch.setattr(open_natively_module, "delta_options", lambda uri: {})
    patience = {"max_retries": "5", "retry_timeout": "30s"}
    assert reach(uri) == (path, patience if "://" in path else None)


@pytest.mark.parametrize(
    ("uri", "sign"),
    [
        ("/a%23b", "%"),
        ("file:///a%23b", "%"),
        ("s3://b/flows/a%2Fb/delete_markers", "%"),
        ("s3a://b/a#b", "#"),
        ("gs://b/a?b", "?"),
        ("s3a://b/t#", "#"),
        ("s3://b/t?", "?"),
    ],
)
def test_a_name_that_delta_rs_may_misread_is_left_to_spark(monkeypatch: pytest.MonkeyPatch, uri: str, sign: str) -> None:
    monkeypatch.setattr(open_natively_module, "delta_options", lambda uri: {})
    assert f" {sign}" in str(why_not_reached(uri))


def test_delta_rs_reads_another_folder_where_a_name_looks_encoded(tmp_path: Path) -> None:
    # The reason for leaving it to Spark; once this fails, it need not be.
    with pytest.raises(DeltaError, match="a#b"):
        new_table(str(tmp_path / "a%23b"))
    assert [folder.name for folder in tmp_path.iterdir()] == ["a%23b"]


@pytest.mark.parametrize(("error", "raised"), [(OSError(ANSWER), OSError), (DeltaError(ANSWER), DeltaError)])
def test_an_error_of_a_store_is_shown_without_the_stores_answer(error: Exception, raised: type[Exception]) -> None:
    with pytest.raises(raised) as shown, without_answers("s3a://b/t"):
        raise error
    assert str(shown.value) == "s3a://b/t: Kernel error -> Generic S3 error; 400 Bad Request"
    assert shown.value.__suppress_context__


def test_a_refusal_is_a_permission_error() -> None:
    with pytest.raises(PermissionError), without_answers("s3a://b/t"):
        raise OSError(ANSWER.replace("Generic S3 error", "The operation lacked the necessary privileges to complete for path t"))


@pytest.mark.parametrize(
    ("uri", "options", "complaint"),
    [
        ("gs://b/t", {"token": "/nowhere/key.json"}, "/nowhere/key.json"),
        ("gs://b/t", {"token": {"type": "service_account"}}, "private_key"),
        ("abfss://c@acc.dfs.core.windows.net/t", {"account_name": "acc", "account_key": "no base64!"}, "Invalid Access Key"),
        ("abfss://c@acc.dfs.core.windows.net/t", {"account_name": "acc", "sas_token": "nothing"}, "SAS"),
    ],
)
def test_delta_rs_reads_the_options_under_these_names(uri: str, options: dict[str, Any], complaint: str) -> None:
    from deltalake import DeltaTable

    # It complains of a wrong value before it contacts anybody; an unknown name it would ignore.
    with pytest.raises(Exception, match=complaint):
        DeltaTable(uri, storage_options=delta_rs_options(storage.store_of(uri), options, {}))


class Careless(MemoryFileSystem):  # type: ignore[misc]
    """A store that ignores a condition of a write."""

    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own attribute.

    def pipe_file(self, path: str, value: bytes, mode: str = "overwrite", **kwargs: Any) -> None:
        super().pipe_file(path, value)


class Careful(MemoryFileSystem):  # type: ignore[misc]
    """A store that heeds it."""

    store: dict[str, Any] = {}  # noqa: RUF012 - fsspec's own attribute.


@pytest.mark.parametrize(("kind", "excludes"), [(Careless, False), (Careful, True)])
def test_a_store_that_replaces_objects_is_found_out_and_left_as_it_was(
    monkeypatch: pytest.MonkeyPatch, kind: type[MemoryFileSystem], excludes: bool
) -> None:
    fs = kind()
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri, **options: (fs, "/lake"))
    storage.use_options({"s3://lake": {"key": "AK", "secret": SECRET, "endpoint_url": "https://compatible"}})
    storage.file_system("s3://lake/root")
    assert exclusive_writes.excludes_writers("s3a://lake/root") is excludes
    assert fs.find("/lake") == []


def test_stores_that_document_it_are_not_tried(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(fsspec.core, "url_to_fs", lambda uri, **options: (None, "/lake"))
    storage.use_options({"s3://lake": {"key": "AK", "secret": SECRET}})
    storage.file_system("s3://lake/root")
    assert exclusive_writes.excludes_writers("s3://lake/root")
    assert exclusive_writes.excludes_writers(str(tmp_path))
