"""Bring what the tests of metrics need: Prometheus' exporter for StatsD, and ``promtool``, which evaluates queries.

``python3 scripts/metrics_tools.py [FOLDER]``, after ``make setup``; a second time does nothing. Needs Go. The folder is
``.tools/metrics/`` unless named; the tests look there, or where METRICS_TOOLS points.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import setup

EXPORTER = "github.com/prometheus/statsd_exporter@v0.28.0"
PROMETHEUS, PROMETHEUS_VERSION = "github.com/prometheus/prometheus", "v0.55.1"
_ADVICE = "see that this machine reaches its Go module proxy."


def bring(folder: Path) -> None:
    """Bring what is not there in these versions."""
    state = "\n".join([EXPORTER, PROMETHEUS, PROMETHEUS_VERSION])
    if setup.is_brought(folder, state):
        return
    setup.start_log()
    if shutil.which("go") is None:
        raise setup.SetupError("There is no Go, which builds Prometheus' tools.", "install Go.")
    module = folder / "promtool"
    shutil.rmtree(module, ignore_errors=True)
    module.mkdir(parents=True)
    os.environ["GOBIN"] = str(folder / "bin")
    setup.run(EXPORTER, ["go", "install", EXPORTER], _ADVICE)
    # Its go.mod has replacements, with which `go install` refuses a version; as a dependency of another module it is built without them.
    tool = f"{PROMETHEUS}/cmd/promtool"
    setup.run("a module for promtool", ["go", "-C", module, "mod", "init", "promtool"], _ADVICE)
    setup.run("promtool's sources", ["go", "-C", module, "get", f"{tool}@{PROMETHEUS_VERSION}"], _ADVICE)
    setup.run("promtool (takes minutes)", ["go", "-C", module, "build", "-o", folder / "bin" / "promtool", tool], _ADVICE)
    (folder / "stamp").write_text(state, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(setup.bring_tools(sys.argv[1:], "metrics", bring))
