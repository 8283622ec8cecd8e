"""From fsspec's options to delta-rs's: each option, and what is not surely the same."""

from __future__ import annotations

import json
from typing import Any

import pytest

from airflow_cdc.model.delta_rs_options import NotReached, delta_rs_options

SECRET = "s3cr3t/+=;key"
KEYS = {"key": "AK", "secret": SECRET}
AZURE = "abfss://c@acc.dfs.core.windows.net"
SERVICE_ACCOUNT = {"type": "service_account", "private_key": SECRET}
ALWAYS = {
    "aws_conditional_put": "etag",
    "aws_virtual_hosted_style_request": "false",
    "aws_allow_http": "false",
    "aws_skip_signature": "false",
}
OF_KEYS = {"aws_access_key_id": "AK", "aws_secret_access_key": SECRET}
VIRTUAL = {"s3": {"addressing_style": "virtual"}}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        pytest.param(KEYS, OF_KEYS, id="keys"),
        pytest.param({**KEYS, "token": "T"}, {**OF_KEYS, "aws_session_token": "T"}, id="session token"),
        pytest.param({"anon": True}, {"aws_skip_signature": "true"}, id="anonymous"),
        pytest.param({**KEYS, "anon": False, "token": None}, OF_KEYS, id="what is off"),
        pytest.param({**KEYS, "client_kwargs": {"region_name": "eu-west-3"}}, {**OF_KEYS, "aws_region": "eu-west-3"}, id="region"),
        pytest.param(
            {**KEYS, "endpoint_url": "http://minio:9000"},
            {**OF_KEYS, "aws_endpoint_url": "http://minio:9000", "aws_allow_http": "true"},
            id="endpoint without encryption",
        ),
        pytest.param(
            {**KEYS, "endpoint_url": "https://s3.example.com"}, {**OF_KEYS, "aws_endpoint_url": "https://s3.example.com"}, id="endpoint"
        ),
        pytest.param(
            {**KEYS, "endpoint_url": "https://e", "config_kwargs": {"s3": {"addressing_style": "path"}}},
            {**OF_KEYS, "aws_endpoint_url": "https://e"},
            id="path style",
        ),
        pytest.param(
            {**KEYS, "endpoint_url": "https://s3.example.com:8443/x", "config_kwargs": VIRTUAL},
            {**OF_KEYS, "aws_endpoint_url": "https://b.s3.example.com:8443/x", "aws_virtual_hosted_style_request": "true"},
            id="bucket as host, endpoint",
        ),
        pytest.param({**KEYS, "config_kwargs": VIRTUAL}, {**OF_KEYS, "aws_virtual_hosted_style_request": "true"}, id="bucket as host"),
        pytest.param({**KEYS, "use_listings_cache": False}, OF_KEYS, id="fsspec's own cache"),
    ],
)
def test_an_s3_option_has_its_equivalent(options: dict[str, Any], expected: dict[str, str]) -> None:
    assert delta_rs_options("s3://b", options, {}) == {**ALWAYS, **expected}


@pytest.mark.parametrize(
    ("store", "options", "named"),
    [
        ("s3://b", {**KEYS, "profile": SECRET}, "profile"),
        ("s3://b", {**KEYS, "use_ssl": False}, "use_ssl"),
        ("s3://b", {**KEYS, "s3_additional_kwargs": {"RequestPayer": SECRET}}, "s3_additional_kwargs"),
        ("s3://b", {**KEYS, "client_kwargs": {"verify": SECRET}}, "client_kwargs.verify"),
        ("s3://b", {**KEYS, "config_kwargs": {"proxies": SECRET}}, "config_kwargs.proxies"),
        ("s3://b", {**KEYS, "config_kwargs": {"s3": {"use_accelerate_endpoint": True}}}, "config_kwargs.s3.use_accelerate_endpoint"),
        ("s3://b", {**KEYS, "config_kwargs": {"s3": {"addressing_style": SECRET}}}, "addressing style"),
        ("s3://b", {"secret": SECRET}, "incomplete"),
        ("s3://b", {"key": SECRET}, "incomplete"),
        ("s3://b", {"token": SECRET}, "incomplete"),
        ("gs://b", {"token": SERVICE_ACCOUNT, "requester_pays": True}, "requester_pays"),
        ("gs://b", {"token": {**SERVICE_ACCOUNT, "type": "external_account"}}, "no service account's key"),
        ("gs://b", {"token": "google_default"}, "no path of a key file"),
        ("gs://b", {"token": object()}, "of an unknown kind"),
        (AZURE, {"account_name": "acc"}, "are not one of"),
        (AZURE, {"account_name": "other", "account_key": SECRET}, "another storage account"),
        (AZURE, {"account_key": SECRET}, "another storage account"),
        (AZURE, {"account_name": "acc", "account_key": SECRET, "sas_token": SECRET}, "are not one of"),
        (AZURE, {"account_name": "acc", "client_id": "c", "client_secret": SECRET}, "are not one of"),
        (AZURE, {"account_name": "acc", "managed_identity_client_id": "m"}, "managed_identity_client_id"),
        ("hdfs://n:8020", {"user": SECRET}, "hdfs://"),
        ("wasbs://c@acc.blob.core.windows.net", {"account_key": SECRET}, "wasbs://"),
    ],
)
def test_an_option_without_equivalent_is_named_without_its_value(store: str, options: dict[str, Any], named: str) -> None:
    with pytest.raises(NotReached) as refused:
        delta_rs_options(store, options, {})
    assert named in str(refused.value)
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("store", "options", "expected"),
    [
        ("gs://b", {}, {}),
        ("gs://b", {"token": "/keys/g.json", "project": "p"}, {"google_service_account": "/keys/g.json"}),
        ("gs://b", {"token": SERVICE_ACCOUNT}, {"google_service_account_key": json.dumps(SERVICE_ACCOUNT)}),
        (
            AZURE,
            {"account_name": "acc", "account_key": SECRET},
            {"azure_storage_account_name": "acc", "azure_storage_account_key": SECRET},
        ),
        (AZURE, {"account_name": "acc", "sas_token": "?sv=1"}, {"azure_storage_account_name": "acc", "azure_storage_sas_token": "sv=1"}),
        (
            AZURE,
            {"account_name": "acc", "tenant_id": "t", "client_id": "c", "client_secret": SECRET},
            {"azure_storage_account_name": "acc", "azure_tenant_id": "t", "azure_client_id": "c", "azure_client_secret": SECRET},
        ),
    ],
)
def test_googles_and_azures_options_have_their_equivalents(store: str, options: dict[str, Any], expected: dict[str, str]) -> None:
    assert delta_rs_options(store, options, {}) == expected


@pytest.mark.parametrize(
    ("options", "environment", "has_profiles"),
    [
        pytest.param({}, {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": SECRET}, True, id="keys before profiles"),
        pytest.param({}, {"AWS_ACCESS_KEY_ID": "AK", "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_SESSION_TOKEN": "T"}, False, id="token"),
        pytest.param({}, {"AWS_WEB_IDENTITY_TOKEN_FILE": "/t", "AWS_ROLE_ARN": "arn", "AWS_REGION": "eu-west-3"}, False, id="workload"),
        pytest.param({}, {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/"}, False, id="container"),
        pytest.param({}, {}, False, id="instance"),
        pytest.param(KEYS, {"AWS_PROFILE": "p", "AWS_ROLE_ARN": "arn", "AWS_ACCESS_KEY_ID": "other"}, True, id="keys of its own"),
        pytest.param(KEYS, {"AWS_CONDITIONAL_PUT": "disabled", "SKIP_SIGNATURE": "true", "ALLOW_HTTP": "true"}, False, id="what is set"),
        pytest.param(KEYS, {"AWS_DEFAULT_REGION": "eu-west-3", "AWS_EXECUTION_ENV": "x", "PATH": "/bin", "TOKEN": ""}, False, id="others"),
        pytest.param({**KEYS, "endpoint_url": "https://e"}, {"AWS_ENDPOINT_URL": "https://other", "ENDPOINT": "x"}, False, id="endpoint"),
        pytest.param({**KEYS, "endpoint_url": "http://e"}, {"AWS_CA_BUNDLE": "/ca.pem"}, False, id="certificates without encryption"),
        pytest.param({**KEYS, "token": "T"}, {"AWS_SESSION_TOKEN": "other"}, False, id="token of its own"),
    ],
)
def test_variables_that_both_libraries_read_alike_are_left_to_them(
    options: dict[str, Any], environment: dict[str, str], has_profiles: bool
) -> None:
    found = delta_rs_options("s3://b", options, environment, has_profiles=has_profiles)
    assert found == delta_rs_options("s3://b", options, {})


@pytest.mark.parametrize(
    ("store", "options", "environment"),
    [
        ("s3://b", KEYS, {"AWS_SESSION_TOKEN": SECRET}),
        ("s3://b", KEYS, {"TOKEN": SECRET}),
        ("s3://b", KEYS, {"aws_token": SECRET}),
        ("s3://b", KEYS, {"AWS_ENDPOINT_URL": SECRET}),
        ("s3://b", {**KEYS, "endpoint_url": "https://e"}, {"AWS_ENDPOINT_URL_S3": SECRET}),
        ("s3://b", KEYS, {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"}),
        ("s3://b", KEYS, {"AWS_S3_LOCKING_PROVIDER": "dynamodb"}),
        ("s3://b", KEYS, {"AWS_COPY_IF_NOT_EXISTS": "header: x: y"}),
        ("s3://b", KEYS, {"AWS_UNSIGNED_PAYLOAD": "true"}),
        ("s3://b", KEYS, {"AWS_CA_BUNDLE": SECRET}),
        ("s3://b", KEYS, {"REGION": "eu-west-3"}),
        ("s3://b", KEYS, {"TIMEOUT": "1s"}),
        ("s3://b", {}, {"AWS_ACCESS_KEY_ID": "AK"}),
        ("s3://b", {}, {"AWS_PROFILE": "p"}),
        ("gs://b", {"token": "/k.json"}, {"GOOGLE_SERVICE_ACCOUNT_KEY": SECRET}),
        ("gs://b", {}, {"SERVICE_ACCOUNT": SECRET}),
        (AZURE, {"account_name": "acc", "sas_token": "sv=1"}, {"AZURE_STORAGE_ACCOUNT_KEY": SECRET}),
        (AZURE, {"account_name": "acc", "account_key": SECRET}, {"BEARER_TOKEN": SECRET}),
    ],
)
def test_a_variable_that_leads_elsewhere_hands_over(store: str, options: dict[str, Any], environment: dict[str, str]) -> None:
    assert isinstance(delta_rs_options(store, options, {}), dict)
    with pytest.raises(NotReached) as refused:
        delta_rs_options(store, options, environment)
    assert SECRET not in str(refused.value)


def test_profiles_hand_over_where_no_key_is_given() -> None:
    with pytest.raises(NotReached, match="profile"):
        delta_rs_options("s3://b", {}, {}, has_profiles=True)
