"""Base of both connections' hooks: a root URL, the storage connection that reaches it, and clear errors when one of them is wrong."""

from __future__ import annotations

import os
from functools import cached_property
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import fsspec
from airflow.providers.common.compat.sdk import AirflowNotFoundException, BaseHook, ObjectStoragePath
from airflow.sdk.io import get_fs

from airflow_cdc.hooks.storage_settings import storage_settings
from airflow_cdc.model.errors import CdcError, ConfigurationError
from airflow_cdc.model.files import is_object_store
from airflow_cdc.model.storage import StorageSettings, store_of

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Connection

    from airflow_cdc.model.files import FileSystem

_AZURE = ("abfs", "abfss", "wasb", "wasbs")
_WITHOUT_PROVIDER = ("hdfs", "webhdfs")
"""Schemes for which no Airflow provider has a file system."""
_PROVIDERS = {
    "s3": "apache-airflow-providers-amazon[s3fs]",
    "gs": "apache-airflow-providers-google and gcsfs",
    "abfss": "apache-airflow-providers-microsoft-azure and adlfs",
    "hdfs": "pyarrow, beside Hadoop's native library; or name a storage connection of type webhdfs, which needs neither",
}
_ANY_PROVIDER = "for s3:// that is apache-airflow-providers-amazon[s3fs]"


class CdcStorageHook(BaseHook):
    """A root folder on any storage that Airflow's ``ObjectStoragePath`` reaches.

    :param conn_id: connection that holds the root URL.
    """

    conn_type = ""
    hook_name = ""
    what = "folder"
    example = "s3://bucket/folder"

    def __init__(self, conn_id: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.conn_id = conn_id
        # A user who corrects a key and tests again must not get the file system with the old one.
        self._anew = False

    @cached_property
    def connection(self) -> Connection:
        """The Airflow connection.

        :raises ConfigurationError: when it does not exist.
        """
        return existing_connection(self.conn_id, f"a connection of type {self.conn_type} whose host is the {self.what}'s root URL")

    @cached_property
    def root(self) -> str:
        """The root as the connection gives it, without a trailing slash: a URL or an absolute local path."""
        return self._root_and_storage[0]

    @cached_property
    def storage_conn_id(self) -> str | None:
        """Airflow connection that reaches the storage; None where the machine's own credentials do."""
        return self._root_and_storage[1]

    @cached_property
    def path(self) -> ObjectStoragePath:
        """The root as a path object.

        :raises ConfigurationError: when the storage connection does not exist.
        """
        if self.storage_conn_id:
            existing_connection(self.storage_conn_id, f"the storage connection that {self.conn_id} names")
        return ObjectStoragePath(_as_airflow_spells_it(self.root), conn_id=self.storage_conn_id)

    @property
    def fs(self) -> FileSystem:
        """The root's file system.

        :raises ConfigurationError: when no installed provider knows the URL's scheme.
        """
        return self._reached[0]

    @property
    def fs_root(self) -> str:
        """The root in its file system's form: no scheme, no trailing slash."""
        return self._reached[1].rstrip("/") or "/"

    @cached_property
    def _reached(self) -> tuple[FileSystem, str]:
        try:
            if self._scheme in _WITHOUT_PROVIDER:
                # Imported here: other stores need no requests.
                from airflow_cdc.runtime.web_hdfs import hdfs_file_system

                return hdfs_file_system(self.root, self.storage_settings().file_systems.get(store_of(self.root), {}))
            # Without a connection, Airflow's Azure provider searches the environment for the account that the URL names.
            if self._scheme == "abfss" and not self.storage_conn_id:
                fs, path = fsspec.core.url_to_fs(self.root)
                return fs, path
            fs = get_fs(self.path.protocol or "file", self.storage_conn_id) if self._anew else self.path.fs
        except (ValueError, ImportError, OSError) as error:
            raise ConfigurationError(
                f"Connection {self.conn_id}: the {self.what} {self.root} cannot be reached: {_sentence(error)}",
                next_step=f"Install what reaches that storage: {_PROVIDERS.get(self._scheme, _ANY_PROVIDER)}.",
            ) from error
        # Airflow keeps one file system per connection for the life of the process, and a triggerer lives long: its cache would hide what
        # other processes wrote since.
        fs.invalidate_cache()
        return fs, str(self.path.path)

    def storage_settings(self) -> StorageSettings:
        """Return the settings by which Spark and the job reach the root as Airflow does; empty without a storage connection.

        :raises ConfigurationError: when the storage connection is missing, of another kind, or has a setting without an equivalent in
            Spark.
        """
        if not self.storage_conn_id:
            return StorageSettings()
        connection = existing_connection(self.storage_conn_id, f"the storage connection that {self.conn_id} names")
        return storage_settings(self.root, connection)

    def get_conn(self) -> ObjectStoragePath:
        """Return the root as a path object."""
        return self.path

    def test_connection(self) -> tuple[bool, str]:
        """Check the root and describe it, for Airflow's connection form."""
        self._anew = True
        try:
            return True, self._findings()
        except CdcError as error:
            return False, str(error)
        except Exception as error:  # noqa: BLE001 - the form shows whatever went wrong.
            return False, f"{self.root} cannot be looked at: {_sentence(error)} Next step: {self._next_step(error)}"

    def refuse_missing_bucket(self) -> None:
        """Refuse a missing bucket or container; call it where the root itself does not exist.

        :raises ConfigurationError: when there is none; a merge would not create it.
        """
        bucket = self.fs_root.strip("/").split("/", 1)[0]
        if is_object_store(self.fs) and not self.fs.exists(bucket):
            raise ConfigurationError(
                f"There is no bucket {bucket}, or these credentials may not see it.",
                next_step=f"Check the {self.what}'s root URL, create the bucket, and give {self._credentials} the right to list it.",
            )

    def _next_step(self, error: Exception) -> str:
        if isinstance(error, PermissionError):
            return f"Check {self._credentials}, and what these may read and list there."
        return f"Check that this machine reaches the storage and that {self._credentials} are right, then try again."

    @property
    def _credentials(self) -> str:
        return f"the credentials in connection {self.storage_conn_id}" if self.storage_conn_id else "the machine's own credentials"

    @property
    def _scheme(self) -> str:
        return urlsplit(store_of(self.root)).scheme

    def _findings(self) -> str:
        raise NotImplementedError

    @cached_property
    def _root_and_storage(self) -> tuple[str, str | None]:
        connection = self.connection
        root, user = _without_user(_spelled_root(connection, self.conn_type))
        storage = connection.extra_dejson.get("storage_conn_id") or connection.login or user or None
        # ObjectStoragePath reads s3://user@bucket as a connection id, and so does this hook; a password there would reach logs and command
        # lines.
        if connection.password or ":" in (user or ""):
            raise ConfigurationError(
                f"Connection {self.conn_id}: its URL or fields carry a password, and a root URL is shown in logs.",
                next_step="Keep the credentials in the storage's own connection and name that one in storage_conn_id.",
            )
        if not root:
            raise ConfigurationError(
                f"Connection {self.conn_id} has no root URL.", next_step=f"Set its host, for example to {self.example}."
            )
        if not root.startswith("/") and "://" not in root:
            raise ConfigurationError(
                f"Connection {self.conn_id}: {root!r} is neither a URL nor an absolute path.",
                next_step=f"Set its host to something like {self.example} or /data/{self.what}.",
            )
        return root, storage


def existing_connection(conn_id: str, expected: str) -> Connection:
    """Return a connection.

    :param expected: what to create, for the error's next step.
    :raises ConfigurationError: when it does not exist, or its environment variable cannot be parsed.
    """
    try:
        return BaseHook.get_connection(conn_id)
    except AirflowNotFoundException as error:
        variable = f"AIRFLOW_CONN_{conn_id.upper()}"
        if variable in os.environ:
            raise ConfigurationError(
                f"Airflow cannot read connection {conn_id} from the environment variable {variable}.",
                next_step='Write it as JSON: {"conn_type": "…", "host": "…"}; brackets as in local[*] break the URI form.',
            ) from error
        raise ConfigurationError(
            f"There is no connection {conn_id}.", next_step=f"Create {expected}, or set the environment variable {variable}."
        ) from error


def _spelled_root(connection: Connection, conn_type: str) -> str:
    """Reassemble the root from the parts that Airflow's form, JSON or URI left in the connection."""
    host, schema = (connection.host or "").strip(), (connection.schema or "").strip().strip("/")
    own_scheme = (connection.conn_type or "").replace("-", "_")
    if not own_scheme and schema.startswith(conn_type[1:]):
        raise ConfigurationError(
            f"Connection {connection.conn_id}: a URI's scheme holds no underscore, so Airflow misread it.",
            next_step=f"Write {conn_type.replace('_', '-')}://… or JSON.",
        )
    port = f":{connection.port}" if connection.port else ""
    root = f"{host}{port}/{schema}" if schema else f"{host}{port}"
    if own_scheme not in ("", conn_type) and "://" not in root and (own_scheme == "file" or host):
        # AIRFLOW_CONN_…=s3://bucket/topics: the storage's scheme became the connection's type.
        root = f"{connection.conn_type}://{root}"
    return root.rstrip("/")


def _without_user(root: str) -> tuple[str, str | None]:
    parts = urlsplit(root)
    user, at, host = parts.netloc.rpartition("@")
    if not at or parts.scheme in _AZURE:
        return root, None
    return parts._replace(netloc=host).geturl(), user


def _as_airflow_spells_it(root: str) -> str:
    # Spark wants abfss://container@account…/path; ObjectStoragePath would take the container for a connection id.
    parts = urlsplit(root)
    if parts.scheme not in _AZURE:
        return root
    return parts._replace(netloc=parts.netloc.split("@", 1)[0]).geturl()


def _sentence(error: Exception) -> str:
    text = str(error).strip() or type(error).__name__
    return text if text.endswith(".") else f"{text}."
