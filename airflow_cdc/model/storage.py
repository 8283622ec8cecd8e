"""Storage settings: what Spark and the job's own file calls need, besides a URL, to reach a store."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any
from urllib.parse import urlsplit

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.places import SPELLINGS
from airflow_cdc.model.plain_json import JsonObject

FOLDER = "{private folder}"
"""Placeholder in a Hadoop setting for the folder of :attr:`StorageSettings.files`."""

CONNECTORS = {
    "s3": ("org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.hadoop:hadoop-aws"),
    "gs": ("org.apache.hadoop.fs.gs.GoogleHadoopFileSystem", "org.apache.hadoop:hadoop-gcp"),
    "abfss": ("org.apache.hadoop.fs.azurebfs.SecureAzureBlobFileSystem", "org.apache.hadoop:hadoop-azure"),
}
"""By scheme: the class by which Spark reaches a store, and its Maven coordinates without a version, which is that of Spark's Hadoop."""

_SECRETS = "(?i:secret|password|token|access[.]?key|account[.]key)"
"""Names whose values Spark's logs and pages hide: Spark's own pattern, and Azure's account keys, which it does not cover."""
HDFS = ("hdfs://", "webhdfs://")
"""Prefixes of HDFS stores."""


@dataclass(frozen=True)
class StorageSettings:
    """Settings of one or more stores. Values are never part of ``repr``, because they hold credentials."""

    hadoop: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Hadoop's settings by name, for Spark."""
    file_systems: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """fsspec's options by store, see :func:`store_of`; JSON values."""
    files: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Contents by name of files that a Hadoop setting refers to; each holds a secret."""
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Environment variables for spark-submit; no secret."""
    has_secret: bool = False
    """Whether a value is a secret of the connection, not just the store's location."""

    def joined(self, other: StorageSettings) -> StorageSettings:
        """Return both settings combined.

        :raises ConfigurationError: when they contradict each other: two connections for one store, or for all of Google's.
        """
        for mine, others in ((self.hadoop, other.hadoop), (self.file_systems, other.file_systems), (self.environment, other.environment)):
            if differing := sorted(name for name in mine.keys() & others.keys() if mine[name] != others[name]):
                raise ConfigurationError(
                    f"The storage connections of archive and lake differ in what both set: {differing[0]}.",
                    next_step="Name the same storage connection in both; one store is reached in one way.",
                )
        return StorageSettings(
            {**self.hadoop, **other.hadoop},
            {**self.file_systems, **other.file_systems},
            {**self.files, **other.files},
            {**self.environment, **other.environment},
            self.has_secret or other.has_secret,
        )

    def in_folder(self, folder: str) -> StorageSettings:
        """Return the settings with the folder of :attr:`files` filled in."""
        return replace(self, hadoop={name: value.replace(FOLDER, folder) for name, value in self.hadoop.items()})

    def for_job(self, redaction: str | None = None) -> JobStorage:
        """Return the settings passed to the job.

        :param redaction: the user's ``spark.redaction.regex``; what it hides stays hidden.
        """
        spark = {f"spark.hadoop.{name}": value for name, value in self.hadoop.items()}
        if self.has_secret:
            spark["spark.redaction.regex"] = f"(?:{redaction})|{_SECRETS}" if redaction else _SECRETS
        return JobStorage(spark, self.file_systems)


@dataclass(frozen=True)
class JobStorage(JsonObject):
    """Storage settings in the job's form; values are never part of ``repr``."""

    spark: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Spark's settings by name."""
    file_systems: Mapping[str, Mapping[str, Any]] = field(default_factory=dict, repr=False)
    """As :attr:`StorageSettings.file_systems`."""
    remote: str | None = field(default=None, repr=False)
    """URL of the Spark Connect server that the job is a client of; it may hold a token."""

    def to_json(self) -> dict[str, Any]:
        """Return the settings as plain JSON values; ``remote`` only where there is a server."""
        return {name: value for name, value in super().to_json().items() if value is not None}


def store_of(uri: str) -> str:
    """Return the store of a URI in one spelling: scheme and bucket, container or name node."""
    parts = urlsplit(uri)
    return f"{SPELLINGS.get(parts.scheme, parts.scheme)}://{parts.netloc}"
