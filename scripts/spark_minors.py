"""Run tests with another minor version of Spark, and the Delta that belongs to it, in an environment of its own.

``python3 scripts/spark_minors.py MINOR [pytest's arguments]``, such as ``4.0 tests/stories -k rename``; without arguments it runs the
golden cases and the stories, all that apply archives by Spark; with ``few`` a dozen golden cases, one a kind. The environment lives in
``.tools/spark-MINOR/``, of the invoking Python, and is made anew when ``pyproject.toml`` or the data of minors changes.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from setup import ROOT, TOOLS, SetupError, bring_uv, child_environment, is_brought, run, start_log

_DATA = ROOT / "airflow_cdc" / "runtime" / "where_it_runs.json"
_KINDS = ("x02", "x05", "x12", "21-", "32-", "61-", "75-", "81-", "86-", "93-", "y05", "27-")
_FEW = ("-q", "-m", "deep or not deep", "tests/golden/test_cases.py", "-k", f"({' or '.join(_KINDS)}) and not auto")
"""Keys of the flow's own, rows that swap keys, units that change; Scylla, names by case, Parquet, MySQL's types, Db2's positions, shards,
updates after markers, records without offsets, unwrapped ones."""
_ALL = ("-m", "deep or not deep", "tests/golden", "tests/stories", "tests/unit/pipeline/spark", "-k", "not native")


def main(arguments: list[str]) -> int:
    """Make the environment where it is not there, run the tests in it, and return their exit code."""
    known = list(json.loads(_DATA.read_text(encoding="utf-8"))["spark"])
    if not arguments or arguments[0] not in known:
        print(f"{__doc__}\nMINOR is one of {', '.join(known)}.", file=sys.stderr)
        return 2
    minor, *asked = arguments
    asked = [*_FEW] if asked == ["few"] else asked
    folder = TOOLS / f"spark-{minor}"
    python = folder / "venv" / "bin" / "python"
    environment = {**child_environment(), "PYTHONPATH": str(ROOT), "PATH": os.pathsep.join([str(python.parent), os.environ["PATH"]])}
    try:
        make_environment(minor, folder, environment)
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    command = [str(python), "-m", "pytest", "-p", "no:cacheprovider", *(asked or _ALL)]
    return subprocess.run(command, env=environment, cwd=ROOT, check=False).returncode


def make_environment(minor: str, folder: Path, environment: dict[str, str]) -> None:
    """Install that Spark and its jars beside the project's own requirements; do nothing where they are there already."""
    wanted = f"{sys.version}\n{(ROOT / 'pyproject.toml').read_text(encoding='utf-8')}\n{_DATA.read_text(encoding='utf-8')}"
    if is_brought(folder, wanted):
        return
    start_log()
    uv = bring_uv()
    folder.mkdir(parents=True, exist_ok=True)
    python, overrides, versions = folder / "venv" / "bin" / "python", folder / "overrides.txt", folder / "versions.txt"
    overrides.write_text(f"pyspark[connect]=={minor}.*\npyspark-client ; python_version < '0'\n", encoding="utf-8")
    advice = "see that this machine reaches its Python package registry, then run the same again."
    compiled: list[str | Path] = [uv, "pip", "compile", "--quiet", "--python", sys.executable, "--overrides", overrides]
    run(f"versions with Spark {minor}", [*compiled, "pyproject.toml", "--group", "dev", "-o", versions], advice)
    run("an environment for them", [uv, "venv", "--clear", "--python", sys.executable, folder / "venv"], advice)
    run("the packages (0.7 GB the first time)", [uv, "pip", "sync", "--python", python, versions], advice)
    os.environ.update(PYTHONPATH=environment["PYTHONPATH"])
    run("its Delta", [python, "-m", "airflow_cdc.runtime", "install"], "see that this machine reaches Maven Central.")
    (folder / "stamp").write_text(wanted, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
