"""Bring what the tests on source databases need: Airflow's PostgreSQL and MySQL providers with a driver each, beside the locked packages.

``python3 scripts/source_databases.py [FOLDER]``, after ``make setup``; a second time does nothing. The folder is
``.tools/source-databases/`` unless named, and the tests look there or where SOURCE_DATABASES_TOOLS says. The servers are the machine's own
(Debian: ``postgresql``, ``mariadb-server``); tests of one that is not there are skipped.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import setup

# Without what they depend on: the rest is in .venv/.
PACKAGES = [
    "aiomysql==0.3.2",
    "apache-airflow-providers-mysql==6.7.1",
    "apache-airflow-providers-postgres==7.1.1",
    "mysql-connector-python==26.10.0",
    "psycopg2-binary==2.9.13",
    "pymysql==1.2.4",
]


def main(arguments: list[str]) -> int:
    """Bring them; return the exit code."""
    folder = Path(arguments[0] if arguments else os.environ.get("SOURCE_DATABASES_TOOLS") or setup.TOOLS / "source-databases").resolve()
    try:
        bring(folder)
    except setup.SetupError as error:
        print(f"\n{error}", file=sys.stderr)
        return 1
    return 0


def bring(folder: Path) -> None:
    """Bring what is not there in these versions."""
    stamp, state = folder / "stamp", "\n".join([sys.version, *PACKAGES])
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == state:
        return
    setup.start_log()
    shutil.rmtree(folder / "python", ignore_errors=True)
    command = [setup.bring_uv(), "pip", "install", "--python", setup.PYTHON, "--no-deps", "--target", folder / "python", *PACKAGES]
    setup.run("Airflow's PostgreSQL and MySQL providers", command, "see that this machine reaches its Python package registry.")
    stamp.write_text(state, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
