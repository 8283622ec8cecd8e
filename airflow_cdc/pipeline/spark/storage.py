"""File systems for the job's own calls. fsspec's options by store are kept here, because only URIs are passed around."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import fsspec

from airflow_cdc.model.storage import HDFS, store_of

_OPTIONS: dict[str, Mapping[str, Any]] = {}
_LISTED_ANEW = ("s3", "gs", "abfss")
"""Stores whose fsspec caches listings. The cache would miss what Spark and other runs write."""


def use_options(file_systems: Mapping[str, Mapping[str, Any]]) -> None:
    """Use these options for each store from now on, in this process.

    :param file_systems: fsspec's options by store, see :func:`airflow_cdc.model.storage.store_of`.
    """
    _OPTIONS.update(file_systems)


def file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the URI's path in it."""
    store = store_of(uri)
    if store.startswith(HDFS):
        # Imported here: jobs on other stores do not need the requests package.
        from airflow_cdc.runtime.web_hdfs import hdfs_file_system

        return hdfs_file_system(uri, _OPTIONS.get(store, {}))
    fresh = {"use_listings_cache": False} if store.split(":", 1)[0] in _LISTED_ANEW else {}
    fs, path = fsspec.core.url_to_fs(uri, **fresh, **_OPTIONS.get(store, {}))
    return fs, path
