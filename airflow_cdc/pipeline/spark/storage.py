"""File systems for the job's own calls. fsspec's options by store are kept here, because only URIs are passed around."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Any
from urllib.parse import urlsplit

import fsspec

from airflow_cdc.model.delta_rs_options import NotReached, delta_rs_options
from airflow_cdc.model.storage import HDFS, store_of

_OPTIONS: dict[str, Mapping[str, Any]] = {}
_SCOPED: ContextVar[Mapping[str, Mapping[str, Any]]] = ContextVar("airflow_cdc_storage_options", default=MappingProxyType({}))
_CALLED: set[str] = set()
"""Stores that the job's own calls go to: these, and no others, are known to be reached from this process."""
OBJECT_STORES = ("s3", "gs", "abfss")
"""Schemes of object stores. Their fsspec caches listings, and the cache would miss what Spark and other runs write."""


def use_options(file_systems: Mapping[str, Mapping[str, Any]]) -> None:
    """Use these options for each store from now on, in this process.

    :param file_systems: fsspec's options by store, see :func:`airflow_cdc.model.storage.store_of`.
    """
    _OPTIONS.update(file_systems)


@contextmanager
def scoped_options(file_systems: Mapping[str, Mapping[str, Any]]) -> Iterator[None]:
    """Use these options in this thread, or what :mod:`contextvars` carries into others, and nowhere else: a server serves several lakes.

    :param file_systems: as for :func:`use_options`, over which they take precedence.
    """
    token = _SCOPED.set({**_SCOPED.get(), **file_systems})
    try:
        yield
    finally:
        _SCOPED.reset(token)


def options_in_use() -> Mapping[str, Mapping[str, Any]]:
    """Return fsspec's options by store, with credentials: for a task of this job, and for nothing that is shown."""
    return {**_OPTIONS, **_SCOPED.get()}


def _options_of(store: str) -> Mapping[str, Any]:
    return _SCOPED.get().get(store) or _OPTIONS.get(store, {})


def file_system(uri: str) -> tuple[Any, str]:
    """Return the file system of a URI, and the URI's path in it."""
    store = store_of(uri)
    if store.startswith(HDFS):
        # Imported here: jobs on other stores do not need the requests package.
        from airflow_cdc.runtime.web_hdfs import hdfs_file_system

        return hdfs_file_system(uri, _options_of(store))
    fresh = {"use_listings_cache": False} if urlsplit(store).scheme in OBJECT_STORES else {}
    fs, path = fsspec.core.url_to_fs(uri, **fresh, **_options_of(store))
    _CALLED.add(store)
    return fs, path


def delta_options(uri: str) -> dict[str, str]:
    """Return delta-rs's ``storage_options`` for a URI: the same credentials as those of :func:`file_system`.

    :raises NotReached: for a store that the job itself does not read, and where the credentials are not surely the same.
    """
    store = store_of(uri)
    if is_local(uri):
        return {}
    # Spark may have settings of its own for another bucket, and delta-rs would go elsewhere under the same name.
    if store not in _CALLED:
        raise NotReached("the job reads nothing else from the table's store, so its credentials are unknown")
    return delta_rs_options(store, _options_of(store), os.environ, has_profiles=_has_profiles())


def is_local(uri: str) -> bool:
    """Return whether a URI or path is on the local file system."""
    return "://" not in uri.removeprefix("file://")


def _has_profiles() -> bool:
    try:
        home = Path.home()
    except RuntimeError:
        # A user without an entry in the machine's list, as in a container.
        return False
    return any((home / name).exists() for name in (".aws/credentials", ".aws/config", ".boto"))
