"""File systems of the job's own calls: what fsspec must be told of a store is kept here, for URIs are all that travels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec

from airflow_cdc.model.storage import HDFS, store_of

_OPTIONS: dict[str, Mapping[str, Any]] = {}
_LISTED_ANEW = ("s3", "gs", "abfss")
"""Stores whose fsspec keeps listings: Spark and other runs write there behind its back."""


def use_options(file_systems: Mapping[str, Mapping[str, Any]]) -> None:
    """Reach each of these stores by its options from now on, in this process.

    :param file_systems: fsspec's options by store, see :func:`airflow_cdc.model.storage.store_of`.
    """
    _OPTIONS.update(file_systems)


def file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the URI's path as that names it."""
    store = store_of(uri)
    if store.startswith(HDFS):
        # Imported here: a job on other stores needs no requests.
        from airflow_cdc.runtime.web_hdfs import hdfs_file_system

        return hdfs_file_system(uri, _OPTIONS.get(store, {}))
    fresh = {"use_listings_cache": False} if store.split(":", 1)[0] in _LISTED_ANEW else {}
    fs, path = fsspec.core.url_to_fs(uri, **fresh, **_OPTIONS.get(store, {}))
    return fs, path
