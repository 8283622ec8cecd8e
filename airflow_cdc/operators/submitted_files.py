"""Check that submitted files reach a driver in a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.operators.spark_target import SparkTarget

_UPLOAD = "spark.kubernetes.file.upload.path"
_LISTS = ("spark.jars", "spark.submit.pyFiles", "spark.files", "spark.archives")
"""Spark options that name files."""
_MARKS = ("{{", "}}", "<LOG_DIR>", "<CPS>", "`", "\\", "\n")


def check_files(target: SparkTarget, given: Mapping[str, str | None], conf: Mapping[str, Any]) -> None:
    """Refuse local files that a driver in Kubernetes would not find, and a name that YARN's launch script would change.

    :param given: the operator's files by parameter, each one path or several with commas; ``application`` among them.
    :param conf: Spark's options as they are submitted.
    :raises ConfigurationError: naming the files, and what to set.
    """
    if target.driver_is_here:
        return
    application = given["application"] or ""
    if target.master == "yarn" and (marks := [mark for mark in _MARKS if mark in application]):
        raise ConfigurationError(
            f"The application {application!r} holds {marks[0]!r}, which YARN's launch script changes: the driver would not find it.",
            next_step="Give the file another path.",
        )
    if not target.is_kubernetes or conf.get(_UPLOAD):
        return
    named = {**given, **{name: conf.get(name) for name in _LISTS}}
    local = [f"{name} {path}" for name, paths in named.items() for path in _local(paths)]
    if local:
        more = f" and {len(local) - 1} more" if len(local) > 1 else ""
        raise ConfigurationError(
            f"The driver runs in a pod of {target.master}, and this machine's files are not there: {local[0]}{more}.",
            next_step=f"Set {_UPLOAD} in conf to a folder that Airflow and the pods reach, such as s3a://bucket/uploads; or name files of "
            "the image: application='local:///…/airflow_cdc/jobs/apply.py', conf={'spark.jars': 'local:///…/delta-spark_….jar,…'} "
            "(docs/how-to/point-at-your-cluster.md).",
        )


def _local(paths: Any) -> Iterator[str]:
    for path in str(paths or "").split(","):
        # local:// is in the image; anything else except file: is fetched from its own location.
        if path.strip() and urlsplit(path.strip()).scheme in ("", "file"):
            yield path.strip()
