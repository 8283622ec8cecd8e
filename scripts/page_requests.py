"""Bring Schemathesis, which makes up requests to the page, in an environment of its own: it needs other versions than Airflow.

``python3 scripts/page_requests.py [FOLDER]``; a second time does nothing. The folder is ``.tools/page-requests/`` unless named; the test
looks there, or where PAGE_REQUESTS_TOOLS points.
"""

from __future__ import annotations

import sys
from pathlib import Path

import setup

PACKAGE = "schemathesis==4.32.5"


def bring(folder: Path) -> None:
    """Bring what is not there in this version."""
    state = "\n".join([sys.version, PACKAGE])
    if setup.is_brought(folder, state):
        return
    setup.start_log()
    uv, python = setup.bring_uv(), folder / "venv" / "bin" / "python"
    advice = "see that this machine reaches its Python package registry."
    setup.run("an environment", [uv, "venv", "--clear", "--python", sys.executable, folder / "venv"], advice)
    setup.run("Schemathesis", [uv, "pip", "install", "--python", python, PACKAGE], advice)
    (folder / "stamp").write_text(state, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(setup.bring_tools(sys.argv[1:], "page-requests", bring))
