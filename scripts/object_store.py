"""Bring what the tests on object stores need: an S3-compatible server, and Airflow's Amazon provider beside the locked packages.

``python3 scripts/object_store.py [FOLDER]``, after ``make setup``; a second time does nothing. Needs Go. The folder is
``.tools/object-store/`` unless named; the tests look there, or where OBJECT_STORE_TOOLS points. Hadoop's jars come with the first test.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import setup

SERVER = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
# Without what they depend on: the rest is in .venv/, but for the newer python-dateutil that is locked there and that botocore refuses.
PACKAGES = [
    "aiobotocore==3.10.0",
    "aiohappyeyeballs==2.7.1",
    "aiohttp==3.14.5",
    "aioitertools==0.13.0",
    "aiosignal==1.4.0",
    "apache-airflow-providers-amazon==9.39.0",
    "boto3==1.43.117",
    "botocore==1.43.117",
    "frozenlist==1.8.0",
    "jmespath==1.1.0",
    "multidict==7.2.1",
    "propcache==0.5.4",
    "python-dateutil==2.9.0.post0",
    "s3fs==2026.9.0",
    "s3transfer==0.19.3",
    "yarl==1.25.1",
]


def bring(folder: Path) -> None:
    """Bring what is not there in these versions."""
    state = "\n".join([SERVER, sys.version, *PACKAGES])
    if setup.is_brought(folder, state):
        return
    setup.start_log()
    shutil.rmtree(folder / "python", ignore_errors=True)
    if shutil.which("go") is None:
        raise setup.SetupError("There is no Go, which builds the server that stands for S3.", "install Go.")
    os.environ["GOBIN"] = str(folder / "bin")
    setup.run(f"{SERVER} (takes minutes)", ["go", "install", SERVER], "see that this machine reaches its Go module proxy.")
    setup.install_beside(folder, "Airflow's Amazon provider", PACKAGES)
    (folder / "stamp").write_text(state, encoding="utf-8")


if __name__ == "__main__":
    sys.exit(setup.bring_tools(sys.argv[1:], "object-store", bring))
