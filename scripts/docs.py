"""Build the documentation as a site into ``build/site``, in an environment of its own.

``python3 scripts/docs.py`` builds, ``python3 scripts/docs.py lock`` renews ``requirements-docs.lock``. The environment lives in
``.tools/docs/``, of the invoking Python, and is made anew when the lock changes. The build itself needs no network, and fails where a
page would load anything from another host, or links to what is not there.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from docs_check import problems
from docs_llms import llms_text
from docs_pages import place_of_sources, write_pages, write_redirects
from setup import ROOT, TOOLS, SetupError, bring_uv, child_environment, is_brought, run, start_log

LOCK = ROOT / "requirements-docs.lock"
FOLDER = TOOLS / "docs"
PAGES = ROOT / "build" / "docs"
SITE = ROOT / "build" / "site"
BUILDER = "zensical==0.0.73"
"""Before its first stable version any release may change what a page looks like, so it is pinned."""
OLDEST_PYTHON = (3, 11)
"""Of the builder; the package itself runs with an older one."""


def main(arguments: list[str]) -> int:
    """Build the site, or with ``lock`` renew the lock file; return the exit code."""
    try:
        check_python()
        if arguments == ["lock"]:
            lock()
            return 0
        return build(make_environment())
    except SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1


def check_python() -> None:
    """Refuse a Python that the builder does not run with.

    :raises SetupError: for such a Python.
    """
    if sys.version_info < OLDEST_PYTHON:
        version, needed = ".".join(map(str, sys.version_info[:2])), ".".join(map(str, OLDEST_PYTHON))
        raise SetupError(f"{BUILDER} needs Python {needed} or newer, and {sys.executable} is {version}.", "make docs PYTHON=python3.12.")


def lock() -> None:
    """Renew the lock file; versions that still fit are kept."""
    start_log()
    wanted = FOLDER / "requirements.in"
    FOLDER.mkdir(parents=True, exist_ok=True)
    wanted.write_text(f"{BUILDER}\n", encoding="utf-8")
    how = ["--universal", "--generate-hashes", "--no-annotate", "--no-header", "--python-version", ".".join(map(str, OLDEST_PYTHON))]
    run(LOCK.name, [bring_uv(), "pip", "compile", *how, wanted, "-o", LOCK], "see that this machine reaches its Python package registry.")
    if "://" in LOCK.read_text(encoding="utf-8"):
        raise SetupError(f"{LOCK.name} names a host.", "unset what makes uv write it (UV_EMIT_INDEX_URL and the like) and lock again.")


def make_environment() -> Path:
    """Install the locked packages; return the folder of the environment's programs."""
    programs = FOLDER / "venv" / "bin"
    state = f"{sys.version}\n{LOCK.read_text(encoding='utf-8')}"
    if is_brought(FOLDER, state):
        return programs
    start_log()
    uv = bring_uv()
    FOLDER.mkdir(parents=True, exist_ok=True)
    advice = "see that this machine reaches its Python package registry, then run the same again."
    run("an environment for the docs", [uv, "venv", "--clear", "--python", sys.executable, FOLDER / "venv"], advice)
    run(f"packages of {LOCK.name}", [uv, "pip", "sync", "--python", programs / "python", "--require-hashes", LOCK], advice)
    (FOLDER / "stamp").write_text(state, encoding="utf-8")
    return programs


def build(programs: Path) -> int:
    """Build and check the site; return the exit code."""
    write_pages(ROOT, PAGES)
    command = [str(programs / "zensical"), "build", "--clean", "--strict", "--config-file", str(PAGES / "zensical.toml")]
    environment = {**child_environment(), "PATH": os.pathsep.join([str(programs), os.environ["PATH"]]), "NO_COLOR": "1"}
    if built := subprocess.run(command, env=environment, cwd=PAGES, check=False).returncode:
        return built
    # The builder writes into its own folder only. Pages that are gone must not stay.
    shutil.rmtree(SITE, ignore_errors=True)
    shutil.move(PAGES / "site", SITE)
    write_redirects(SITE, place_of_sources(ROOT).values())
    (SITE / "llms.txt").write_text(llms_text(ROOT), encoding="utf-8")
    if wrong := problems(SITE):
        print("\n".join(wrong), file=sys.stderr)
        print(f"{len(wrong)} things are wrong with the site. Next step: correct the pages that they name.", file=sys.stderr)
        return 1
    print(f"docs: {SITE.relative_to(ROOT)} is ready. Look at it: python3 -m http.server --directory {SITE.relative_to(ROOT)}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
