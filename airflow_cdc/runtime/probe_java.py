"""probe_java: identify a ``java`` launcher, from the ``release`` file beside it where there is one."""

from __future__ import annotations

import re
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from airflow_cdc.runtime.spark_minors import own_minor

VECTOR_MODULE = "jdk.incubator.vector"
"""Spark requests this module at boot and does not start without it."""

_SECONDS_TO_ANSWER = 30


@dataclass(frozen=True)
class Java:
    """One Java, as it describes itself."""

    home: Path
    version: int
    modules: frozenset[str] = frozenset()
    """The modules it was built with; empty where that is not known."""

    @property
    def runs_spark(self) -> bool:
        """Whether this environment's Spark boots on it."""
        return own_minor().runs_on_java(self.version) and not self.lacks_vector_module

    @property
    def lacks_vector_module(self) -> bool:
        """Whether it is a trimmed Java, built without the module that Spark requests."""
        return bool(self.modules) and VECTOR_MODULE not in self.modules

    def __str__(self) -> str:
        return f"Java {self.version}{f' without {VECTOR_MODULE}' if self.lacks_vector_module else ''} at {self.home}"


@cache
def probe_java(launcher: Path) -> Java | None:
    """Return the Java that this launcher starts; None when it starts none.

    Starting a JVM costs a tenth of a second or more, reading a file nothing. So the JVM is asked only where the launcher is a stand-in
    (``/usr/bin/java`` of macOS, shims of version managers) or a Java without a ``release`` file.
    """
    if not launcher.is_file():
        return None
    home = launcher.resolve().parent.parent
    release = home / "release"
    facts = parse_release(release.read_text(encoding="utf-8", errors="replace")) if release.is_file() else {}
    if "JAVA_VERSION" in facts:
        return Java(home, major_version(facts["JAVA_VERSION"]), frozenset(facts.get("MODULES", "").split()))
    return _ask(launcher)


def parse_release(text: str) -> dict[str, str]:
    """Return the facts of a ``release`` file: lines of ``NAME="value"``."""
    return dict(re.findall(r'^(\w+)="?([^"\n]*)"?\s*$', text, flags=re.MULTILINE))


def major_version(version: str) -> int:
    """Return 8 for ``1.8.0_392``, 17 for ``17.0.15``, 25 for ``25-ea``, and 0 for anything that is not a version."""
    numbers = [int(number) for number in re.findall(r"\d+", version)[:2]]
    if not numbers:
        return 0
    return numbers[1] if numbers[0] == 1 and len(numbers) > 1 else numbers[0]


def _ask(launcher: Path) -> Java | None:
    command = [str(launcher), "-XshowSettings:properties", "-version"]
    try:
        answer = subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS_TO_ANSWER, check=False).stderr
    except (OSError, subprocess.TimeoutExpired):
        return None
    properties = dict(re.findall(r"^\s*(java\.home|java\.version) = (.+?)\s*$", answer, flags=re.MULTILINE))
    if len(properties) < 2:
        return None
    return Java(Path(properties["java.home"]), major_version(properties["java.version"]))
