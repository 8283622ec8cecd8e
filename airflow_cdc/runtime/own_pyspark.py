"""own_pyspark: where pyspark-client of another version lies over pyspark, use the Python files that belong to pyspark's jars.

Airflow's Spark provider asks for pyspark-client, and constraints of Airflow name its version alone. It owns the same files as pyspark:
installed beside another version, it replaces them. A Spark home has its own copy of these files, in ``python/lib``, for spark-submit.
"""

from __future__ import annotations

import os
import sys

from airflow_cdc.runtime.layout import found_pyspark, version_of_files
from airflow_cdc.runtime.spark_minors import installed_pyspark


def own_python_paths() -> list[str]:
    """Return the paths to be searched before site-packages; empty where pyspark's files are of one version, or there are no jars."""
    folder = found_pyspark()
    if folder is None or not (folder / "jars").is_dir() or version_of_files(folder) in {None, installed_pyspark()}:
        return []
    return [str(path) for path in sorted((folder / "python" / "lib").glob("*.zip"))]


def use_own_pyspark() -> None:
    """Let this process import pyspark from there, and its child processes too. Called before the first import of pyspark."""
    if "pyspark" in sys.modules or not (paths := own_python_paths()):
        return
    sys.path[:0] = paths
    os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, (*paths, os.environ.get("PYTHONPATH"))))
