"""The committed page is what its sources build, where npm has brought what builds it."""

from __future__ import annotations

import filecmp
import json
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
BUILT = ROOT / "airflow_cdc" / "plugins" / "ui"
UI = ROOT / "ui"


def test_the_page_is_committed_whole() -> None:
    assert {path.name for path in BUILT.iterdir()} == {"index.html", "page.js", "page.css", "notices.txt"}
    index = (BUILT / "index.html").read_text(encoding="utf-8")
    assert './page.js"' in index
    assert './page.css"' in index


def test_the_notices_of_what_is_in_the_bundle_come_with_it() -> None:
    notices = (BUILT / "notices.txt").read_text(encoding="utf-8")
    bundled = json.loads((UI / "package.json").read_text(encoding="utf-8"))["dependencies"]
    for name, version in bundled.items():
        assert f"{name} {version}\n\n" in notices
    assert notices.count("Permission is hereby granted") >= len(bundled)


def test_each_version_of_what_builds_it_is_locked() -> None:
    lock = json.loads((UI / "package-lock.json").read_text(encoding="utf-8"))
    for name, package in lock["packages"].items():
        assert not name or package.get("integrity"), name


@pytest.mark.slow
@pytest.mark.skipif(
    not (shutil.which("npm") and (UI / "node_modules").is_dir()), reason="make ui, or make test-system, brings what builds it"
)
def test_the_committed_page_is_what_its_sources_build(tmp_path: Path) -> None:
    command = ["npm", "--prefix", str(UI), "exec", "--", "vite", "build", str(UI), "--outDir", str(tmp_path), "--logLevel", "error"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=UI)
    assert done.returncode == 0, done.stderr
    _, differing, lost = filecmp.cmpfiles(BUILT, tmp_path, ["index.html", "page.js", "page.css", "notices.txt"], shallow=False)
    assert (differing, lost) == ([], []), "run make ui and commit what it writes"
