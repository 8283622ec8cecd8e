"""Bring what the tests of the page need: Playwright beside the locked packages, axe-core, and a Chromium of the machine's own.

``python3 scripts/browser.py [FOLDER]``, after ``make setup``; a second time does nothing. Needs npm, and Chromium, which the system's
packages have (``apt-get install chromium``). The folder is ``.tools/browser/`` unless named; the tests look there, or where BROWSER_TOOLS
points.
"""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import setup

# Without what they depend on that is in .venv/ already.
PACKAGES = ["greenlet==3.5.6", "playwright==1.65.2", "pyee==13.0.1"]
UI = Path(__file__).parents[1] / "ui"


def bring(folder: Path) -> None:
    """Bring what is not there in these versions."""
    if not (shutil.which("chromium") or shutil.which("google-chrome")):
        raise setup.SetupError("There is no Chromium, in which the page is tested.", "install it: apt-get install chromium.")
    if shutil.which("npm") is None:
        raise setup.SetupError("There is no npm, which brings axe-core.", "install Node.js 20 or newer.")
    state = "\n".join([sys.version, *PACKAGES, (UI / "package-lock.json").read_text(encoding="utf-8")])
    if setup.is_brought(folder, state) and (UI / "node_modules").is_dir():
        return
    setup.start_log()
    shutil.rmtree(folder / "python", ignore_errors=True)
    setup.install_beside(folder, "Playwright", PACKAGES)
    setup.run("the page's packages", ["npm", "--prefix", str(UI), "ci", "--no-audit", "--no-fund"], "see that this machine reaches npm.")
    (folder / "stamp").write_text(state, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(setup.bring_tools(sys.argv[1:], "browser", bring))
