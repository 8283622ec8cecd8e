"""S3 and compatible stores: from an ``aws`` connection to Hadoop's S3A and to s3fs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_cdc.hooks.connection_fields import extra
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.storage import StorageSettings, store_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_BY_PROVIDER = ("role_arn", "profile_name", "session_kwargs", "assume_role_method")
"""Fields by which Airflow's Amazon provider obtains other keys than the connection's own."""
_ANY_REGION = "us-east-1"
"""Usual region name of stores other than AWS; without one S3A would ask AWS for a region."""


def s3_settings(root: str, connection: Connection) -> StorageSettings:
    """Return the settings by which a bucket is reached through an ``aws`` connection; they apply to this bucket only, so another may
    differ.

    :raises ConfigurationError: when the connection holds half a pair of keys, or a setting without an equivalent in Spark.
    """
    endpoint = (extra(connection, "service_config") or {}).get("s3", {}).get("endpoint_url") or extra(connection, "endpoint_url")
    region = extra(connection, "region_name") or (_ANY_REGION if endpoint else None)
    style = (extra(connection, "config_kwargs") or {}).get("s3", {}).get("addressing_style") or ("path" if endpoint else None)
    if connection.extra_dejson.get("verify") not in (None, True):
        raise ConfigurationError(
            f"Storage connection {connection.conn_id} sets verify, for which Spark has no setting.",
            next_step="Add the store's certificate authority to the machines' own and remove verify.",
        )
    hadoop: dict[str, str] = {}
    options: dict[str, Any] = {}
    if endpoint:
        hadoop["endpoint"] = options["endpoint_url"] = endpoint
        hadoop["connection.ssl.enabled"] = str(urlsplit(endpoint).scheme != "http").lower()
    if region:
        hadoop["endpoint.region"] = region
        options["client_kwargs"] = {"region_name": region}
    if style:
        hadoop["path.style.access"] = str(style == "path").lower()
        options["config_kwargs"] = {"s3": {"addressing_style": style}}
    key, secret, token = _keys(connection)
    if key:
        provider = "TemporaryAWSCredentialsProvider" if token else "SimpleAWSCredentialsProvider"
        hadoop |= {"access.key": key, "secret.key": secret, "aws.credentials.provider": f"org.apache.hadoop.fs.s3a.{provider}"}
        options |= {"key": key, "secret": secret}
        if token:
            hadoop["session.token"] = options["token"] = token
    bucket = urlsplit(root).netloc
    named = {f"fs.s3a.bucket.{bucket}.{name}": value for name, value in hadoop.items()}
    return StorageSettings(named, {store_of(root): options}, has_secret=bool(key))


def _keys(connection: Connection) -> tuple[str, str, str | None]:
    """Return key, secret and session token; empty texts for the machines' own credentials."""
    if any(extra(connection, name) for name in _BY_PROVIDER):
        return _keys_by_provider(connection)
    key = connection.login or extra(connection, "aws_access_key_id") or ""
    secret = connection.password or extra(connection, "aws_secret_access_key") or ""
    if bool(key) != bool(secret):
        half = "an access key and no secret key" if key else "a secret key and no access key"
        raise ConfigurationError(
            f"Storage connection {connection.conn_id} has {half}.",
            next_step="Give both, or neither where the machines have credentials of their own.",
        )
    return key, secret, extra(connection, "aws_session_token") if key else None


def _keys_by_provider(connection: Connection) -> tuple[str, str, str | None]:
    try:
        from airflow.providers.amazon.aws.hooks.base_aws import AwsGenericHook
    except ImportError as error:
        raise ConfigurationError(
            f"Storage connection {connection.conn_id} takes a role or a profile, which Airflow's Amazon provider resolves: {error}.",
            next_step="Install apache-airflow-providers-amazon[s3fs] beside Airflow.",
        ) from error
    try:
        keys = AwsGenericHook(aws_conn_id=connection.conn_id, client_type="s3").get_credentials()
    except Exception as error:
        # botocore's errors name the role or profile and STS's answer, but no keys.
        raise ConfigurationError(
            f"Storage connection {connection.conn_id} gives no credentials: {type(error).__name__}: {error}",
            next_step="Correct its role, profile or keys; Airflow's own test of that connection shows the same.",
        ) from error
    return keys.access_key, keys.secret_key, keys.token
