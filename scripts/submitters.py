"""Run the tests of Dags that submit jobs by other providers, with these providers' packages, in an environment of its own.

``python3 scripts/submitters.py [pytest's arguments]``. It lives in ``.tools/submitters/``, of the invoking Python, or where
``SUBMITTERS_TOOLS`` names a folder. It is made anew when ``pyproject.toml`` changes. The providers are the dependency group ``submitters``:
too many packages for everybody's environment. Spark is left out: what Airflow parses needs none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from setup import TOOLS, SetupError, bring_environment, run_tests

FOLDER = Path(os.environ.get("SUBMITTERS_TOOLS") or TOOLS / "submitters").resolve()
TESTS = "tests/unit/airflow/submitters"


def main(arguments: list[str]) -> int:
    """Make the environment where it is not there, run the tests in it, and return their exit code."""
    try:
        FOLDER.mkdir(parents=True, exist_ok=True)
        python = bring_environment(FOLDER, "", ["--group", "submitters", "--no-emit-package", "pyspark"])
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    # The conftest.py above this folder imports Spark.
    return run_tests(python, ["--confcutdir", "tests/unit/airflow", *(arguments or [TESTS])])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
