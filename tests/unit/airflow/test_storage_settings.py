"""From a storage connection to Hadoop's and fsspec's settings: every type, and what cannot be handed to Spark."""

from __future__ import annotations

import json
import sys
from typing import Any

import pytest

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.storage import StorageSettings

SECRET = "s3cr3t/+=;key"
KEYFILE = {"type": "service_account", "private_key": SECRET}
S3, ACCOUNT = "fs.s3a.bucket.b.", "acc.dfs.core.windows.net"
SIMPLE, TEMPORARY = (f"org.apache.hadoop.fs.s3a.{kind}AWSCredentialsProvider" for kind in ("Simple", "Temporary"))
OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"


def _settings(scene: Any, root: str, **fields: Any) -> StorageSettings:
    scene.connect("store", **fields)
    scene.connect("far", conn_type="cdc_archive", host=root, extra={"storage_conn_id": "store"})
    return CdcArchiveHook("far").storage_settings()


AWS = [
    pytest.param(
        {"login": "AK", "password": SECRET},
        {"access.key": "AK", "secret.key": SECRET, "aws.credentials.provider": SIMPLE},
        {"key": "AK", "secret": SECRET},
        id="keys",
    ),
    pytest.param(
        {"extra": {"aws_access_key_id": "AK", "aws_secret_access_key": SECRET, "aws_session_token": "T", "region_name": "eu-west-3"}},
        {
            "access.key": "AK",
            "secret.key": SECRET,
            "session.token": "T",
            "endpoint.region": "eu-west-3",
            "aws.credentials.provider": TEMPORARY,
        },
        {"key": "AK", "secret": SECRET, "token": "T", "client_kwargs": {"region_name": "eu-west-3"}},
        id="session",
    ),
    pytest.param(
        {"extra": {"endpoint_url": "http://minio:9000"}},
        {
            "endpoint": "http://minio:9000",
            "connection.ssl.enabled": "false",
            "endpoint.region": "us-east-1",
            "path.style.access": "true",
        },
        {
            "endpoint_url": "http://minio:9000",
            "client_kwargs": {"region_name": "us-east-1"},
            "config_kwargs": {"s3": {"addressing_style": "path"}},
        },
        id="endpoint",
    ),
    pytest.param(
        {
            "extra": {
                "endpoint_url": "https://sts.example.com",
                "service_config": {"s3": {"endpoint_url": "https://s3.example.com"}},
                "config_kwargs": {"s3": {"addressing_style": "virtual"}},
            }
        },
        {
            "endpoint": "https://s3.example.com",
            "connection.ssl.enabled": "true",
            "endpoint.region": "us-east-1",
            "path.style.access": "false",
        },
        {
            "endpoint_url": "https://s3.example.com",
            "client_kwargs": {"region_name": "us-east-1"},
            "config_kwargs": {"s3": {"addressing_style": "virtual"}},
        },
        id="service endpoint, bucket as host",
    ),
    pytest.param({}, {}, {}, id="the machine's own"),
]


@pytest.mark.parametrize(("fields", "hadoop", "options"), AWS)
@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_s3_gets_the_buckets_own_settings(scene: Any, scheme: str, fields: Any, hadoop: dict[str, str], options: dict[str, Any]) -> None:
    settings = _settings(scene, f"{scheme}://b/topics", conn_type="aws", **fields)
    assert settings.hadoop == {f"{S3}{name}": value for name, value in hadoop.items()}
    assert settings.file_systems == {"s3://b": options}
    assert settings.has_secret is (SECRET in str(hadoop))


GOOGLE = [
    pytest.param(
        {"extra": {"key_path": "/keys/g.json", "project": "p"}},
        {
            "fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE",
            "fs.gs.auth.service.account.json.keyfile": "/keys/g.json",
            "fs.gs.project.id": "p",
        },
        {"token": "/keys/g.json", "project": "p"},
        False,
        id="a file that is there",
    ),
    pytest.param(
        {"extra": {"keyfile_dict": json.dumps(KEYFILE)}},
        {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "fs.gs.auth.service.account.json.keyfile": "/private/google-keyfile.json"},
        {"token": KEYFILE},
        True,
        id="a key",
    ),
    pytest.param(
        {"extra": {"extra__google_cloud_platform__key_path": "/keys/g.json"}},
        {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE", "fs.gs.auth.service.account.json.keyfile": "/keys/g.json"},
        {"token": "/keys/g.json"},
        False,
        id="Airflow 2's long name",
    ),
    pytest.param({}, {"fs.gs.auth.type": "APPLICATION_DEFAULT"}, {}, False, id="the machine's own"),
]


@pytest.mark.parametrize(("fields", "hadoop", "options", "has_secret"), GOOGLE)
def test_google_gets_a_key_file(scene: Any, fields: Any, hadoop: dict[str, str], options: dict[str, Any], has_secret: bool) -> None:
    settings = _settings(scene, "gs://b/topics", conn_type="google_cloud_platform", **fields)
    assert settings.in_folder("/private").hadoop == hadoop
    assert settings.file_systems == {"gs://b": options}
    assert settings.has_secret is has_secret
    assert [json.loads(text) for text in settings.files.values()] == ([KEYFILE] if has_secret else [])


SHARED_KEY = {f"fs.azure.account.auth.type.{ACCOUNT}": "SharedKey", f"fs.azure.account.key.{ACCOUNT}": SECRET}
AZURE = [
    pytest.param({"conn_type": "wasb", "login": "acc", "password": SECRET}, SHARED_KEY, {"account_key": SECRET}, id="account key"),
    pytest.param({"conn_type": "adls", "extra": {"account_key": SECRET}}, SHARED_KEY, {"account_key": SECRET}, id="account key in extra"),
    pytest.param(
        {"conn_type": "wasb", "extra": {"connection_string": f"AccountName=acc;AccountKey={SECRET.replace(';', '')}=;EndpointSuffix=x"}},
        {**SHARED_KEY, f"fs.azure.account.key.{ACCOUNT}": f"{SECRET.replace(';', '')}="},
        {"account_key": f"{SECRET.replace(';', '')}="},
        id="connection string",
    ),
    pytest.param(
        {"conn_type": "adls", "login": "client", "password": SECRET, "extra": {"tenant_id": "t"}},
        {
            f"fs.azure.account.auth.type.{ACCOUNT}": "OAuth",
            f"fs.azure.account.oauth.provider.type.{ACCOUNT}": f"{OAUTH}.ClientCredsTokenProvider",
            f"fs.azure.account.oauth2.client.id.{ACCOUNT}": "client",
            f"fs.azure.account.oauth2.client.secret.{ACCOUNT}": SECRET,
            f"fs.azure.account.oauth2.client.endpoint.{ACCOUNT}": "https://login.microsoftonline.com/t/oauth2/token",
        },
        {"tenant_id": "t", "client_id": "client", "client_secret": SECRET},
        id="service principal",
    ),
    pytest.param(
        {"conn_type": "wasb", "extra": {"sas_token": f"?{SECRET}"}},
        {f"fs.azure.account.auth.type.{ACCOUNT}": "SAS", f"fs.azure.sas.fixed.token.{ACCOUNT}": SECRET},
        {"sas_token": f"?{SECRET}"},
        id="shared access signature",
    ),
    pytest.param(
        {"conn_type": "wasb", "extra": {"managed_identity_client_id": "m"}},
        {
            f"fs.azure.account.auth.type.{ACCOUNT}": "OAuth",
            f"fs.azure.account.oauth.provider.type.{ACCOUNT}": f"{OAUTH}.MsiTokenProvider",
            f"fs.azure.account.oauth2.client.id.{ACCOUNT}": "m",
        },
        {"managed_identity_client_id": "m"},
        id="managed identity",
    ),
    pytest.param({"conn_type": "adls"}, {}, {}, id="the machine's own"),
]


@pytest.mark.parametrize(("fields", "hadoop", "options"), AZURE)
def test_azure_gets_the_accounts_own_settings(scene: Any, fields: Any, hadoop: dict[str, str], options: dict[str, Any]) -> None:
    settings = _settings(scene, f"abfss://c@{ACCOUNT}/topics", **fields)
    assert settings.hadoop == hadoop
    assert settings.file_systems == {f"abfss://c@{ACCOUNT}": {"account_name": "acc", **options}}
    assert settings.has_secret is any(SECRET.split(";", maxsplit=1)[0] in value for value in hadoop.values())


def test_hdfs_gets_the_users_name(scene: Any) -> None:
    settings = _settings(scene, "hdfs://name:8020/topics", conn_type="hdfs", host="name", login="etl")
    assert (settings.hadoop, settings.file_systems) == ({}, {"hdfs://name:8020": {"user": "etl"}})
    assert (settings.environment, settings.has_secret) == ({"HADOOP_USER_NAME": "etl"}, False)


@pytest.mark.parametrize(
    ("fields", "options"),
    [
        ({"host": "nn"}, {"hosts": ["nn"], "port": 9870}),
        ({"host": "nn1, nn2", "port": 14000, "login": "etl"}, {"hosts": ["nn1", "nn2"], "port": 14000, "user": "etl"}),
        (
            {"host": "knox", "port": 8443, "login": "etl", "password": SECRET, "extra": {"use_ssl": True, "verify": "/ca.pem"}},
            {"hosts": ["knox"], "port": 8443, "use_https": True, "session_verify": "/ca.pem", "user": "etl", "password": SECRET},
        ),
        ({"host": "nn", "extra": {"verify": False}}, {"hosts": ["nn"], "port": 9870, "session_verify": False}),
    ],
)
def test_a_connection_to_webhdfs_gives_how_python_reaches_hdfs(scene: Any, fields: dict[str, Any], options: dict[str, Any]) -> None:
    settings = _settings(scene, "hdfs://nameservice/topics", conn_type="webhdfs", **fields)
    assert (settings.hadoop, settings.file_systems) == ({}, {"hdfs://nameservice": {"protocol": "webhdfs", **options}})
    assert settings.environment == ({"HADOOP_USER_NAME": "etl"} if "login" in fields else {})
    assert settings.has_secret is ("password" in fields)


def test_with_kerberos_the_ticket_names_the_user(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW__CORE__SECURITY", "kerberos")
    settings = _settings(scene, "hdfs://nameservice/topics", conn_type="webhdfs", host="nn", login="etl")
    assert settings.file_systems["hdfs://nameservice"] == {"protocol": "webhdfs", "hosts": ["nn"], "port": 9870, "kerberos": True}
    assert settings.environment == {}


def test_without_a_storage_connection_the_machines_own_credentials_serve(scene: Any) -> None:
    scene.connect("far", conn_type="cdc_archive", host="s3://b/topics")
    assert CdcArchiveHook("far").storage_settings() == StorageSettings()


@pytest.mark.parametrize(
    ("root", "fields", "message"),
    [
        ("s3://b/t", {"conn_type": "google_cloud_platform"}, "is of type 'google_cloud_platform', s3://b/t needs aws"),
        ("s3://b/t", {"conn_type": "aws", "login": "AK"}, "an access key and no secret key"),
        ("s3://b/t", {"conn_type": "aws", "password": SECRET}, "a secret key and no access key"),
        ("s3://b/t", {"conn_type": "aws", "extra": {"verify": False}}, "sets verify"),
        ("gs://b/t", {"conn_type": "google_cloud_platform", "extra": {"keyfile_dict": f"{{{SECRET}"}}, "keyfile_dict is no JSON object"),
        ("gs://b/t", {"conn_type": "google_cloud_platform", "extra": {"impersonation_chain": "x"}}, "sets impersonation_chain"),
        ("abfss://c/t", {"conn_type": "wasb", "password": SECRET}, "names no storage account"),
        (f"abfss://c@{ACCOUNT}/t", {"conn_type": "wasb", "extra": {"connection_string": f"SAS={SECRET}"}}, "holds no AccountKey"),
        ("hdfs://n/t", {"conn_type": "hdfs", "password": SECRET}, "has a password"),
        ("hdfs://n/t", {"conn_type": "webhdfs", "password": SECRET}, "has a password"),
        ("hdfs://n/t", {"conn_type": "webhdfs", "host": "nn", "extra": {"cert": "/c.pem"}}, "sets cert"),
        ("wasbs://c@a.blob.core.windows.net/t", {"conn_type": "wasb"}, "Nothing is known of how Spark reaches wasbs://"),
    ],
)
def test_refuses_what_spark_has_no_setting_for_without_the_secret(scene: Any, root: str, fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        _settings(scene, root, **fields)
    assert message in str(refused.value)
    assert "Next step: " in str(refused.value)
    assert SECRET not in str(refused.value)


def test_a_role_needs_airflows_amazon_provider(scene: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "airflow.providers.amazon.aws.hooks.base_aws", None)
    with pytest.raises(ConfigurationError, match=r"takes a role or a profile.*apache-airflow-providers-amazon"):
        _settings(scene, "s3://b/t", conn_type="aws", extra={"role_arn": "arn:aws:iam::1:role/r"})


def test_archive_and_lake_may_have_different_keys(scene: Any) -> None:
    lake = _lake(scene, "s3://c/lake", conn_type="aws", login="LK", password="other")
    both = _settings(scene, "s3://b/t", conn_type="aws", login="AK", password=SECRET).joined(lake)
    assert (both.hadoop[f"{S3}access.key"], both.hadoop["fs.s3a.bucket.c.access.key"]) == ("AK", "LK")
    assert (both.file_systems["s3://b"]["key"], both.file_systems["s3://c"]["key"]) == ("AK", "LK")
    assert both.has_secret


def test_one_store_is_reached_in_one_way(scene: Any) -> None:
    lake = _lake(scene, "s3a://b/lake", conn_type="aws", login="LK", password=SECRET)
    with pytest.raises(ConfigurationError, match="differ in what both set") as refused:
        _settings(scene, "s3://b/t", conn_type="aws", login="AK", password=SECRET).joined(lake)
    assert SECRET not in str(refused.value)


def test_settings_never_show_what_they_hold(scene: Any) -> None:
    settings = _settings(scene, "s3://b/t", conn_type="aws", login="AK", password=SECRET)
    assert settings.hadoop[f"{S3}secret.key"] == SECRET
    assert SECRET not in f"{settings}{settings!r}"
    assert "AK" not in f"{settings}{settings!r}"


def _lake(scene: Any, root: str, **fields: Any) -> StorageSettings:
    scene.connect("lake_store", **fields)
    scene.connect("far_lake", conn_type="cdc_lake", host=root, extra={"storage_conn_id": "lake_store"})
    return CdcLakeHook("far_lake").storage_settings()
