"""Azure's Data Lake Storage: from a ``wasb`` or ``adls`` connection to Hadoop's ABFS and to adlfs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow_cdc.hooks.connection_fields import extra
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.storage import StorageSettings, store_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_OAUTH = "org.apache.hadoop.fs.azurebfs.oauth2"


def azure_settings(root: str, connection: Connection) -> StorageSettings:
    """Return the settings by which a container is reached, with the precedence of fields in Airflow's own provider.

    :raises ConfigurationError: when the root does not name the account, or the connection has a setting without an equivalent in Spark.
    """
    container, _, host = urlsplit(root).netloc.partition("@")
    account = host.split(".", 1)[0]
    if not (container and account):
        raise ConfigurationError(
            f"{root} names no storage account, and Spark asks for one.",
            next_step="Spell the root as abfss://container@account.dfs.core.windows.net/folder.",
        )
    hadoop, options, has_secret = _credentials(connection)
    named = {f"fs.azure.{name}.{host}": value for name, value in hadoop.items()}
    return StorageSettings(named, {store_of(root): {"account_name": account, **options}}, has_secret=has_secret)


def _credentials(connection: Connection) -> tuple[dict[str, str], dict[str, Any], bool]:
    """Return Hadoop's settings without ``fs.azure.`` and host, adlfs's options, and whether they contain a secret."""
    if text := extra(connection, "connection_string"):
        named = dict(part.split("=", 1) for part in text.split(";") if "=" in part)
        if key := named.get("AccountKey"):
            return _account_key(key)
        raise ConfigurationError(
            f"Storage connection {connection.conn_id}: its connection string holds no AccountKey.",
            next_step="Give account_key, sas_token, or tenant_id with a client's id and secret.",
        )
    tenant, login, password = extra(connection, "tenant_id"), connection.login, connection.password
    if tenant and login and password:
        client = {"account.oauth2.client.id": login, "account.oauth2.client.secret": password}
        # adlfs and Hadoop use the same token endpoint; national clouds have others.
        endpoint = {"account.oauth2.client.endpoint": f"https://login.microsoftonline.com/{tenant}/oauth2/token"}
        options = {"tenant_id": tenant, "client_id": login, "client_secret": password}
        return {**_oauth("ClientCredsTokenProvider"), **client, **endpoint}, options, True
    if key := extra(connection, "account_key") or (None if tenant else password):
        return _account_key(key)
    if token := extra(connection, "sas_token"):
        return {"account.auth.type": "SAS", "sas.fixed.token": token.removeprefix("?")}, {"sas_token": token}, True
    if identity := extra(connection, "managed_identity_client_id"):
        return {**_oauth("MsiTokenProvider"), "account.oauth2.client.id": identity}, {"managed_identity_client_id": identity}, False
    return {}, {}, False


def _account_key(key: str) -> tuple[dict[str, str], dict[str, Any], bool]:
    return {"account.auth.type": "SharedKey", "account.key": key}, {"account_key": key}, True


def _oauth(provider: str) -> dict[str, str]:
    return {"account.auth.type": "OAuth", "account.oauth.provider.type": f"{_OAUTH}.{provider}"}
