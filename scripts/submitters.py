"""Run the tests of Dags that submit jobs by other providers, with these providers' packages, in an environment of its own.

``python3 scripts/submitters.py [pytest's arguments]``. It lives in ``.tools/submitters/``, of the invoking Python, or where
``SUBMITTERS_TOOLS`` names a folder. It is made anew when ``pyproject.toml`` changes. The providers are the dependency group ``submitters``:
too many packages for everybody's environment. Spark is left out: what Airflow parses needs none.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setup import ROOT, TOOLS, SetupError, bring_uv, child_environment, is_brought, run, start_log

FOLDER = Path(os.environ.get("SUBMITTERS_TOOLS") or TOOLS / "submitters").resolve()
PYTHON = FOLDER / "venv" / "bin" / "python"
TESTS = "tests/unit/airflow/submitters"
LEFT_OUT = ("pyspark",)


def main(arguments: list[str]) -> int:
    """Make the environment where it is not there, run the tests in it, and return their exit code."""
    try:
        make_environment()
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    environment = {**child_environment(), "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([str(PYTHON.parent), os.environ["PATH"]])}
    # The conftest.py above this folder imports Spark.
    command = [str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", "--confcutdir", "tests/unit/airflow", *(arguments or [TESTS])]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def make_environment() -> None:
    """Install the providers beside the project's own requirements; do nothing where they are there already."""
    wanted = f"{sys.version}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}"
    if is_brought(FOLDER, wanted):
        return
    start_log()
    uv = bring_uv()
    FOLDER.mkdir(parents=True, exist_ok=True)
    versions = FOLDER / "versions.txt"
    advice = "see that this machine reaches its Python package registry, then run the same again."
    compiled: list[str | Path] = [uv, "pip", "compile", "--quiet", "--python", sys.executable]
    left_out = [word for name in LEFT_OUT for word in ("--no-emit-package", name)]
    run("versions", [*compiled, "pyproject.toml", "--group", "submitters", *left_out, "-o", versions], advice)
    run("an environment for them", [uv, "venv", "--clear", "--python", sys.executable, FOLDER / "venv"], advice)
    run("the providers' packages (1.5 GB the first time)", [uv, "pip", "sync", "--python", PYTHON, versions], advice)
    (FOLDER / "stamp").write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
