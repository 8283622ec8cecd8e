"""Bring what the tests on source databases need: Airflow's PostgreSQL and MySQL providers with a driver each, beside the locked packages.

``python3 scripts/source_databases.py [FOLDER]``, after ``make setup``; a second time does nothing. The folder is
``.tools/source-databases/`` unless named; the tests look there, or where SOURCE_DATABASES_TOOLS points. The servers are the machine's own
(Debian: ``postgresql``, ``mariadb-server``); tests of one that is not there are skipped.
"""

from __future__ import annotations

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


def bring(folder: Path) -> None:
    """Bring what is not there in these versions."""
    state = "\n".join([sys.version, *PACKAGES])
    if setup.is_brought(folder, state):
        return
    setup.start_log()
    shutil.rmtree(folder / "python", ignore_errors=True)
    setup.install_beside(folder, "Airflow's PostgreSQL and MySQL providers", PACKAGES)
    (folder / "stamp").write_text(state, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(setup.bring_tools(sys.argv[1:], "source-databases", bring))
