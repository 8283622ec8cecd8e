"""Run the Airflow layer's tests with the lowest versions that ``pyproject.toml`` allows, in an environment of its own.

``python3 scripts/min_versions.py [pytest's arguments]``. It lives in ``.tools/min-versions/``, of the invoking Python, and is made anew
when ``pyproject.toml`` changes.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from setup import ROOT, TOOLS, SetupError, bring_uv, child_environment, run, start_log

FOLDER = TOOLS / "min-versions"
PYTHON = FOLDER / "venv" / "bin" / "python"
TESTS = ("tests/unit/airflow", "tests/unit/model")

# Airflow 3.1.0 does not run with what came later of these; Airflow's own constraints file for it has older ones, too.
CONSTRAINTS = """\
cadwyn<7
fastapi<0.130
pyjwt<2.11
starlette<1
structlog<25.5
universal-pathlib<0.3
"""


def main(arguments: list[str]) -> int:
    """Make the environment where it is not there, run the tests in it, and return their exit code."""
    try:
        make_environment()
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    environment = {**child_environment(), "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([str(PYTHON.parent), os.environ["PATH"]])}
    command = [str(PYTHON), "-m", "pytest", "-p", "no:cacheprovider", *(arguments or TESTS)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def make_environment() -> None:
    """Install the lowest versions; do nothing where they are there already."""
    stamp = FOLDER / "stamp"
    wanted = f"{sys.version}\n{CONSTRAINTS}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}"
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == wanted:
        return
    start_log()
    uv = bring_uv()
    FOLDER.mkdir(parents=True, exist_ok=True)
    constraints, versions = FOLDER / "constraints.txt", FOLDER / "versions.txt"
    constraints.write_text(CONSTRAINTS, encoding="utf-8")
    advice = "see that this machine reaches its Python package registry, then run the same again."
    lowest: list[str | Path] = [uv, "pip", "compile", "--quiet", "--resolution", "lowest-direct", "--python", sys.executable]
    run("lowest versions", [*lowest, "pyproject.toml", "--group", "dev", "--constraints", constraints, "-o", versions], advice)
    run("an environment for them", [uv, "venv", "--clear", "--python", sys.executable, FOLDER / "venv"], advice)
    run("the packages (0.7 GB the first time)", [uv, "pip", "sync", "--python", PYTHON, versions], advice)
    stamp.write_text(wanted, encoding="utf-8")
    names = ("apache-airflow==", "apache-airflow-providers-apache-spark==", "apache-airflow-task-sdk==", "fsspec==", "pendulum==")
    print("with " + ", ".join(line for line in versions.read_text(encoding="utf-8").splitlines() if line.startswith(names)), flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
