"""``python -m benchmarks.minors PYTHON ...``: what the same runs take by the Spark of each environment, whole processes in turn.

A run with 16 rows shows the cold start, one with 200,000 events the merge.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

from benchmarks.archives import Traffic, write_snapshot
from benchmarks.measure import Result, in_turn
from benchmarks.sequence import MIXED, Keys
from benchmarks.shapes import ACCOUNTS, TOPIC

EVENTS, ROWS, ROUNDS = 200_000, 100_000, 3
_VERSIONS = "import platform, pyspark; print(f'Spark {pyspark.__version__}, Python {platform.python_version()}')"


def main(pythons: list[str]) -> None:
    """Measure and print."""
    named = {_printed(python): python for python in pythons}
    with tempfile.TemporaryDirectory(prefix="minors-") as scratch:
        folder = Path(scratch)
        flows = folder / "flows.yaml"
        flows.write_text(json.dumps({"flows": [{"topic": TOPIC, "columns": ACCOUNTS.declared}]}), encoding="utf-8")
        write_snapshot(folder / "archive", ACCOUNTS)
        runs = {name: partial(_run, python, folder, flows, name) for name, python in named.items()}
        cold = in_turn(runs, rounds=ROUNDS, before=partial(_remove_lake, folder))
        files = Traffic(ACCOUNTS, EVENTS, Keys(ROWS), MIXED).files(folder / "cache")
        for file in files:
            target = folder / "archive" / TOPIC / file.parent.name
            shutil.copy2(file, target)
        for name in named:
            shutil.copytree(folder / f"lake {name}", folder / f"start {name}")
        merge = in_turn(runs, rounds=ROUNDS, before=partial(_restore_lake, folder))
    first = next(iter(named))
    print("| environment | 16 rows: wall s | 200,000 events: wall s |\n|---|---|---|")
    results = [Result("", "", first, taken) for taken in (cold, merge)]
    for name in named:
        figures = [f"{result.median(name, 'wall'):.1f}" for result in results]
        print(f"| {name} | {' | '.join(figures)} |")


def _printed(python: str) -> str:
    return subprocess.run([python, "-c", _VERSIONS], check=True, capture_output=True, text=True).stdout.strip()


def _run(python: str, folder: Path, flows: Path, name: str) -> None:
    places = ["--archive", str(folder / "archive"), "--lake", str(folder / f"lake {name}"), "--flows", str(flows)]
    command = [python, "-m", "airflow_cdc", "apply", *places, "--engine", "spark", "--json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _remove_lake(folder: Path, name: str) -> None:
    shutil.rmtree(folder / f"lake {name}", ignore_errors=True)


def _restore_lake(folder: Path, name: str) -> None:
    _remove_lake(folder, name)
    shutil.copytree(folder / f"start {name}", folder / f"lake {name}")


if __name__ == "__main__":
    main(sys.argv[1:])
