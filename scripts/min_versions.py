"""Run the Airflow layer's tests with the lowest versions that ``pyproject.toml`` allows, in an environment of its own.

``python3 scripts/min_versions.py [pytest's arguments]``. It lives in ``.tools/min-versions/``, of the invoking Python, and is made anew
when ``pyproject.toml`` changes.
"""

from __future__ import annotations

import sys

from setup import TOOLS, SetupError, bring_environment, run_tests

FOLDER = TOOLS / "min-versions"
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
NAMED = ("apache-airflow==", "apache-airflow-providers-apache-spark==", "apache-airflow-task-sdk==", "fsspec==", "pendulum==")


def main(arguments: list[str]) -> int:
    """Make the environment where it is not there, run the tests in it, and return their exit code."""
    constraints = FOLDER / "constraints.txt"
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        constraints.write_text(CONSTRAINTS, encoding="utf-8")
        lowest = ["--group", "dev", "--resolution", "lowest-direct", "--constraints", constraints]
        python = bring_environment(FOLDER, CONSTRAINTS, lowest)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    versions = (FOLDER / "versions.txt").read_text(encoding="utf-8").splitlines()
    print("with " + ", ".join(line for line in versions if line.startswith(NAMED)), flush=True)
    return run_tests(python, arguments or TESTS)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
