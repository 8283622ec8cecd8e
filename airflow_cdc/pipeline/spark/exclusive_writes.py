"""Whether a store refuses to write an object that exists, on which delta-rs's commits rest."""

from __future__ import annotations

import uuid

from airflow_cdc.model.files import create_json
from airflow_cdc.model.places import STATE_FOLDER
from airflow_cdc.model.storage import store_of
from airflow_cdc.pipeline.spark.storage import delta_options, file_system

_FOUND: dict[str, bool] = {}


def excludes_writers(lake: str) -> bool:
    """Return whether the second of two writers of one object is refused. Tried once a process, where it is not documented.

    delta-rs looks for newer versions and then writes its own: a store that ignores ``If-None-Match`` would let it replace a commit that
    another writer made in between.

    :raises NotReached: see :func:`airflow_cdc.pipeline.spark.storage.delta_options`.
    """
    # AWS, Google and Azure document it, a local disk has exclusive creation.
    if "aws_endpoint_url" not in delta_options(lake):
        return True
    store = store_of(lake)
    if store not in _FOUND:
        _FOUND[store] = _try(lake)
    return _FOUND[store]


def _try(lake: str) -> bool:
    fs, root = file_system(lake)
    path = f"{root.rstrip('/')}/{STATE_FOLDER}/exclusive-{uuid.uuid4().hex}.json"
    try:
        return create_json(fs, path, {}) and not create_json(fs, path, {})
    finally:
        fs.rm_file(path)
