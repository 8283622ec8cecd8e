"""Storage connection to settings by which Spark and the job reach the same storage.

Only named fields of a connection are used. A field without an equivalent is refused: partial settings would lead the job elsewhere than
Airflow, or nowhere.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.providers.common.compat.sdk import conf

from airflow_cdc.hooks.azure_settings import azure_settings
from airflow_cdc.hooks.connection_fields import extra
from airflow_cdc.hooks.s3_settings import s3_settings
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.storage import FOLDER, StorageSettings, store_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

_KEYFILE = "fs.gs.auth.service.account.json.keyfile"
_KEYFILE_NAME = "google-keyfile.json"


def storage_settings(root: str, connection: Connection) -> StorageSettings:
    """Return the settings by which a root is reached through a storage connection.

    :param root: URL or absolute local path.
    :raises ConfigurationError: when the connection is of another kind than the root's scheme, or has a setting without an equivalent in
        Spark.
    """
    scheme = urlsplit(store_of(root)).scheme
    if scheme in ("", "file"):
        return StorageSettings()
    if scheme not in _STORES:
        raise ConfigurationError(
            f"Nothing is known of how Spark reaches {scheme}:// through the storage connection {connection.conn_id}.",
            next_step=f"Leave storage_conn_id empty and give Spark its settings in conf; connections serve {', '.join(_STORES)}.",
        )
    types, derive = _STORES[scheme]
    if connection.conn_type not in types:
        raise ConfigurationError(
            f"Storage connection {connection.conn_id} is of type {connection.conn_type!r}, {root} needs {' or '.join(types)}.",
            next_step="Name the right connection in storage_conn_id.",
        )
    return derive(root, connection)


def _google_settings(root: str, connection: Connection) -> StorageSettings:
    for name in ("key_secret_name", "impersonation_chain", "credential_config_file", "is_anonymous"):
        if extra(connection, name):
            raise ConfigurationError(
                f"Storage connection {connection.conn_id} sets {name}, which cannot be handed to Spark.",
                next_step="Give key_path or keyfile_dict, or neither where the machines have credentials of their own.",
            )
    hadoop = {"fs.gs.auth.type": "SERVICE_ACCOUNT_JSON_KEYFILE"}
    options: dict[str, Any] = {}
    files: dict[str, str] = {}
    if project := extra(connection, "project"):
        hadoop["fs.gs.project.id"] = options["project"] = project
    if path := extra(connection, "key_path"):
        hadoop[_KEYFILE] = options["token"] = path
    elif keyfile := extra(connection, "keyfile_dict"):
        document = _keyfile(connection, keyfile)
        hadoop[_KEYFILE], options["token"] = f"{FOLDER}/{_KEYFILE_NAME}", document
        files[_KEYFILE_NAME] = json.dumps(document)
    else:
        hadoop["fs.gs.auth.type"] = "APPLICATION_DEFAULT"
    return StorageSettings(hadoop, {store_of(root): options}, files, has_secret=bool(files))


def _keyfile(connection: Connection, keyfile: Any) -> dict[str, Any]:
    try:
        document = json.loads(keyfile) if isinstance(keyfile, str) else keyfile
    except ValueError:
        document = None
    if not isinstance(document, dict):
        # Neither the text nor the parser's error, which quotes it, is shown: both contain the key.
        raise ConfigurationError(
            f"Storage connection {connection.conn_id}: keyfile_dict is no JSON object.",
            next_step="Paste the whole text of the service account's key file.",
        )
    return document


def _hdfs_settings(root: str, connection: Connection) -> StorageSettings:
    """Return the settings by which Python reaches HDFS. Spark has Hadoop's own client, and needs only the user's name."""
    web = connection.conn_type == "webhdfs" and bool(connection.host)
    if connection.password and not web:
        raise ConfigurationError(
            f"Storage connection {connection.conn_id} has a password, and Hadoop takes none.",
            next_step="Remove it; on a cluster with Kerberos give keytab and principal in the Spark connection. A gateway that asks "
            "for one (Knox) is named by a connection of type webhdfs with its host.",
        )
    is_kerberos = web and conf.get("core", "security", fallback="") == "kerberos"
    options = _web_options(connection) if web else {}
    environment = {}
    if connection.login and not is_kerberos:
        options["user"] = environment["HADOOP_USER_NAME"] = connection.login
    if connection.password:
        options["password"] = connection.password
    if is_kerberos:
        options["kerberos"] = True
    return StorageSettings(file_systems={store_of(root): options}, environment=environment, has_secret=bool(connection.password))


def _web_options(connection: Connection) -> dict[str, Any]:
    """Return the options of WebHDFS, from the fields of Airflow's own WebHDFS connections."""
    for name in ("cert", "key", "cookies", "headers"):
        if extra(connection, name):
            raise ConfigurationError(
                f"Storage connection {connection.conn_id} sets {name}, which cannot be handed to the job.",
                next_step="Give login, password, use_ssl and verify, or reach HDFS by an address that needs no more.",
            )
    hosts = [host.strip() for host in str(connection.host).split(",")]
    options: dict[str, Any] = {"protocol": "webhdfs", "hosts": hosts, "port": connection.port or 9870}
    if extra(connection, "use_ssl"):
        options["use_https"] = True
    # A certificate authority's file, or False, which differs from unset.
    if (verify := connection.extra_dejson.get("verify")) is not None:
        options["session_verify"] = verify
    return options


_STORES: dict[str, tuple[tuple[str, ...], Callable[[str, Connection], StorageSettings]]] = {
    "s3": (("aws",), s3_settings),
    "gs": (("google_cloud_platform",), _google_settings),
    "abfss": (("wasb", "adls", "azure_data_lake"), azure_settings),
    "hdfs": (("hdfs", "webhdfs"), _hdfs_settings),
    "webhdfs": (("webhdfs", "hdfs"), _hdfs_settings),
}
"""By a store's scheme: the connection types that serve it, and the function that derives its settings."""
