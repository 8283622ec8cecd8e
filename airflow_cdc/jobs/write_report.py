"""write_report: write a job's report where its task reads it; no Spark."""

from __future__ import annotations

import json
import uuid
from typing import Any

from airflow_cdc.model.files import is_local, is_object_store, replace_json
from airflow_cdc.pipeline.spark.storage import file_system


def write_report(uri: str, document: dict[str, Any]) -> None:
    """Write a report whole or not at all, and create its folder: it does not exist yet where the driver runs elsewhere and the lake is
    mounted.

    :param uri: target URI from the operator; an existing file is replaced.
    """
    fs, path = file_system(uri)
    if is_local(fs) or is_object_store(fs):
        replace_json(fs, path, document)
        return
    # HDFS shows a file from its first byte on.
    folder = path.rsplit("/", 1)[0]
    scratch = f"{folder}/.{uuid.uuid4().hex}.tmp"
    fs.makedirs(folder, exist_ok=True)
    fs.pipe_file(scratch, json.dumps(document).encode())
    if fs.exists(path):
        # HDFS's rename does not replace.
        fs.rm_file(path)
    fs.mv(scratch, path)
