"""Install the wheel into released Airflows under their own constraints, and see that it works there.

``python3 scripts/installs.py [AIRFLOW-INSTALLER ...]``, such as ``3.3.1-uv`` or ``3.2.1-pip``; none: all. The constraints lie in
``scripts/constraints/``, for Python 3.12, which must be on PATH. Each combination is a fresh environment below ``.tools/installs/``:
Airflow by its constraints, then the wheel by the same. Told are the seconds that takes and the pinned packages that it changes; then
provider and plugin are looked for, the shipped Dags are parsed, and a small archive is merged by each engine.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from setup import ROOT, TOOLS, SetupError, bring_uv, child_environment, forget_unused, run, set_up, start_log

FOLDER = TOOLS / "installs"
CONSTRAINTS = sorted((ROOT / "scripts" / "constraints").glob("airflow-*.txt"))
INSTALLERS = ("uv", "pip")
_NEEDED = "python3.12"
_ADVICE = "see that this machine reaches its Python package registry, and what the log says of versions that exclude each other."
_CHECK = """\
import sys
from pathlib import Path
from airflow.providers_manager import ProvidersManager
from airflow.plugins_manager import get_plugin_info
assert "airflow-cdc" in ProvidersManager().providers, "no provider"
names = [plugin["name"] for plugin in get_plugin_info()]
assert "airflow_cdc" in names, names
try:
    from airflow.dag_processing.dagbag import DagBag
except ImportError:
    from airflow.models.dagbag import DagBag
bag = DagBag(sys.argv[1])
assert not bag.import_errors, bag.import_errors
print("dags", *sorted(bag.dags))
"""
_HELD = """\
import os, sys
from deltalake import DeltaTable
print(sorted((row["id"], row["name"]) for row in DeltaTable(sys.argv[1]).to_pyarrow_table().to_pylist()), flush=True)
os._exit(0)
"""
"""Ends at once: threads of the libraries that read here may abort an interpreter that ends (seen with pyarrow 23)."""
_ROWS = "[(1, 'second'), (3, 'third')]"


@dataclass(frozen=True)
class Installation:
    """A combination."""

    airflow: str
    installer: str

    @property
    def name(self) -> str:
        """Its name on the command line."""
        return f"{self.airflow}-{self.installer}"

    @property
    def folder(self) -> Path:
        """Its environment."""
        return FOLDER / self.name

    @property
    def python(self) -> Path:
        """Its Python."""
        return self.folder / "venv" / "bin" / "python"

    @property
    def constraints(self) -> Path:
        """Its constraints."""
        return ROOT / "scripts" / "constraints" / f"airflow-{self.airflow}.txt"


ALL = [Installation(path.stem.partition("-")[2], installer) for path in CONSTRAINTS for installer in INSTALLERS]


def main(names: list[str]) -> int:
    """Try the combinations; return 1 where one fails."""
    known = {each.name: each for each in ALL}
    if unknown := set(names) - set(known):
        print(f"{__doc__}\nThere is no {', '.join(sorted(unknown))}; there are {', '.join(known)}.", file=sys.stderr)
        return 2
    try:
        set_up()
        start_log()
        wheel = build_wheel()
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return max(told(each, wheel) for each in (known[name] for name in names or known))


def told(installation: Installation, wheel: Path) -> int:
    """Try a combination and print what was found; return 1 where it fails."""
    try:
        print(f"{installation.name}: {try_out(installation, wheel)}", flush=True)
        # 1.5 GB, as is each pyspark that uv builds.
        shutil.rmtree(installation.folder)
        forget_unused(bring_uv())
    except SetupError as error:
        print(f"\n{installation.name}: {error}", file=sys.stderr)
        return 1
    return 0


def build_wheel() -> Path:
    """Build the wheel of this checkout, without the network."""
    target = FOLDER / "wheel"
    shutil.rmtree(target, ignore_errors=True)
    command: list[str | Path] = [bring_uv(), "build", "--quiet", "--wheel", "--no-build-isolation", "--offline", "--out-dir", target]
    run("the wheel", [*command, "--python", ROOT / ".venv" / "bin" / "python", ROOT], "look for what is wrong in pyproject.toml.")
    return next(target.glob("*.whl"))


def try_out(installation: Installation, wheel: Path) -> str:
    """Make the environment, install, and look; return what was found.

    :raises SetupError: where anything fails.
    """
    uv, here = bring_uv(), installation
    shutil.rmtree(here.folder, ignore_errors=True)
    here.folder.mkdir(parents=True)
    run("an environment", [uv, "venv", "--seed", "--python", _NEEDED, here.folder / "venv"], f"install {_NEEDED}.")
    # Without this checkout's own settings of uv, which leave pyspark-client out.
    by_uv = [uv, "pip", "install", "--no-config", "--python", here.python]
    by = [here.python, "-m", "pip", "install", "--quiet"] if here.installer == "pip" else by_uv
    pinned: list[str | Path] = [*by, "--constraint", here.constraints]
    image = [f"apache-airflow=={here.airflow}", "apache-airflow-providers-apache-spark", "apache-airflow-providers-standard"]
    run(f"Airflow {here.airflow} by {here.installer}", [*pinned, *image, "apache-airflow-providers-fab", "pandas"], _ADVICE)
    before, started = _versions(here), time.monotonic()
    run("the wheel into it", [*pinned, wheel], _ADVICE)
    seconds, after = time.monotonic() - started, _versions(here)
    changed = {name: (version, after.get(name)) for name, version in before.items() if after.get(name) != version}
    if changed:
        raise SetupError(f"The wheel changes packages that were there: {changed}.", "loosen the bounds in pyproject.toml.")
    dags = _run(here, "provider, plugin and Dags", [here.python, "-c", _CHECK, _shipped_dags(here)])
    _run(here, "Delta's jars", [here.python, "-m", "airflow_cdc.runtime", "install"])
    for engine in ("native", "spark"):
        _merge(here, engine)
    count = len(dags.rpartition("dags ")[2].split())
    spark = f"pyspark {after['pyspark']}, client {after.get('pyspark-client', 'none')}, pandas {after['pandas']}"
    return f"{seconds:.0f} s, 0 packages changed, {len(after) - len(before)} added ({spark}); {count} Dags; merged by both engines"


def _shipped_dags(here: Installation) -> Path:
    # Those of services need other providers.
    folder = here.folder / "dags"
    shutil.copytree(ROOT / "dags", folder, ignore=shutil.ignore_patterns("submitters", "__pycache__"))
    return folder


def _merge(here: Installation, engine: str) -> None:
    archive, lake = here.folder / f"archive-{engine}", here.folder / f"lake-{engine}"
    archive.mkdir()
    for number, changes in enumerate([[("r", 1, "first"), ("r", 2, "gone")], [("u", 1, "second"), ("d", 2, None), ("c", 3, "third")]]):
        lines = [_line(10 * number + place, *change) for place, change in enumerate(changes)]
        (archive / f"{number}.jsonl").write_text("".join(lines), encoding="utf-8")
    _run(
        here,
        f"a merge by {engine}",
        [here.python.parent / "airflow-cdc", "apply", "--archive", archive, "--lake", lake, "--engine", engine],
    )
    held = _run(here, "its rows", [here.python, "-c", _HELD, lake / "shop.public.items"]).strip()
    if held != _ROWS:
        raise SetupError(f"The table holds {held}, and the source {_ROWS}.", "look into the engine.")


def _line(offset: int, op: str, key: int, name: str | None) -> str:
    row = None if op == "d" else {"id": key, "name": name}
    source = {"connector": "postgresql", "snapshot": str(op == "r").lower(), "txId": offset, "lsn": offset, "ts_ms": offset}
    source |= {"sequence": json.dumps([None if op == "r" else str(offset), str(offset)]), "schema": "public", "table": "items"}
    value = {"before": {"id": key} if op == "d" else None, "after": row, "source": source, "op": op, "ts_ms": offset}
    return json.dumps({"topic": "shop.public.items", "partition": 0, "offset": offset, "key": {"id": key}, "value": value}) + "\n"


def _versions(here: Installation) -> dict[str, str]:
    listed = subprocess.run(
        [bring_uv(), "pip", "list", "--python", here.python, "--format", "json"],
        capture_output=True,
        text=True,
        env=child_environment(),
        check=True,
    )
    return {each["name"]: each["version"] for each in json.loads(listed.stdout)}


def _run(here: Installation, step: str, command: list[str | Path]) -> str:
    """Run a command of the environment, in an Airflow home of its own; return its output.

    :raises SetupError: with the end of that, where it fails.
    """
    environment = {name: value for name, value in child_environment().items() if not name.startswith(("AIRFLOW", "PYTHON"))}
    environment |= {"AIRFLOW_HOME": str(here.folder / "home"), "PATH": os.pathsep.join([str(here.python.parent), os.environ["PATH"]])}
    environment |= {"AIRFLOW__CORE__LOAD_EXAMPLES": "False", "HOME": str(here.folder)}
    words = [str(word) for word in command]
    ended = subprocess.run(words, env=environment, cwd=here.folder, capture_output=True, text=True, check=False)
    if ended.returncode:
        end = "\n".join(f"  | {line}" for line in (ended.stdout + ended.stderr).splitlines()[-25:])
        raise SetupError(f"{step}: failed.\n{end}", "mend what the last line names.")
    return ended.stdout


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
