"""Two S3-compatible stores of different keys on this machine, and an Airflow that reaches them by connections.

``scripts/object_store.py`` brings what they need; no part of it is in the locked environment.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("OBJECT_STORE_TOOLS") or ROOT / ".tools" / "object-store")
PACKAGES = TOOLS / "python"
HADOOP_AWS = "org.apache.hadoop:hadoop-aws:3.5.0"
SPARK_WITH_S3 = {
    "spark.hadoop.fs.s3.impl": "org.apache.hadoop.fs.s3a.S3AFileSystem",
    "spark.jars.ivy": str(TOOLS / "ivy"),
    "spark.jars.packages": HADOOP_AWS,
    "spark.driver.memory": "1g",
}
"""Spark's settings for any store."""
_GATEWAY = TOOLS / "bin" / "versitygw"
_SECONDS_TO_START = 20
_PUT = """
import fsspec
options, here, there = given
fsspec.filesystem("s3", **options).put(here, there, recursive=True)
answer = None
"""
_NAMES = """
import fsspec
options, folder = given
answer = sorted(path.rsplit("/", 1)[-1] for path in fsspec.filesystem("s3", **options).ls(folder, detail=False))
"""


@dataclass(frozen=True)
class Store:
    """A running store with one bucket."""

    endpoint: str
    bucket: str
    key: str
    secret: str

    def connection(self, **changes: Any) -> dict[str, Any]:
        """Return the fields of an ``aws`` connection."""
        fields = {"conn_type": "aws", "login": self.key, "password": self.secret, "extra": {"endpoint_url": self.endpoint}}
        return {**fields, **changes}

    def put(self, folder: Path, root: str) -> None:
        """Copy what lies in a folder below a root in the bucket."""
        python(_PUT, {**os.environ, "PYTHONPATH": path_with_packages()}, self.options, f"{folder}/", f"{self.bucket}/{root}/")

    def names(self, folder: str) -> list[str]:
        """Return the names of what lies in a folder of the bucket."""
        found: list[str] = python(_NAMES, {**os.environ, "PYTHONPATH": path_with_packages()}, self.options, f"{self.bucket}/{folder}")
        return found

    @property
    def options(self) -> dict[str, Any]:
        """s3fs's options."""
        return {"key": self.key, "secret": self.secret, "endpoint_url": self.endpoint, "use_listings_cache": False}

    @property
    def spark_options(self) -> dict[str, str]:
        """Spark's settings for the bucket."""
        settings = {
            "endpoint": self.endpoint,
            "endpoint.region": "us-east-1",
            "connection.ssl.enabled": "false",
            "path.style.access": "true",
            "access.key": self.key,
            "secret.key": self.secret,
        }
        return {f"spark.hadoop.fs.s3a.bucket.{self.bucket}.{name}": value for name, value in settings.items()}

    @property
    def delta_options(self) -> dict[str, str]:
        """delta-rs's options."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": "us-east-1",
            "AWS_ALLOW_HTTP": "true",
        }


@contextmanager
def running_store(folder: Path, bucket: str, key: str, secret: str) -> Iterator[Store]:
    """Run a store on a free port of the loopback address; ``folder`` holds its buckets."""
    if not (_GATEWAY.exists() and PACKAGES.is_dir()):
        raise FileNotFoundError(f"{TOOLS} lacks the store. Next step: python3 scripts/object_store.py (make test-system does it).")
    (folder / bucket).mkdir(parents=True)
    # Not every temporary folder takes the extended attributes that the store would keep its metadata in.
    metadata = folder.parent / f"metadata-of-{folder.name}"
    metadata.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    environment = {**os.environ, "ROOT_ACCESS_KEY": key, "ROOT_SECRET_KEY": secret}
    command = [str(_GATEWAY), "--port", f"127.0.0.1:{port}", "--quiet", "posix", "--sidecar", str(metadata), str(folder)]
    with folder.with_suffix(".log").open("w") as log:
        gateway = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        _wait_for(port, gateway)
        yield Store(f"http://127.0.0.1:{port}", bucket, key, secret)
    finally:
        gateway.terminate()
        gateway.wait(10)


@contextmanager
def two_stores(folder: Path) -> Iterator[tuple[Store, Store]]:
    """Run two stores of different keys, one for an archive and one for a lake, whose files lie in a folder."""
    with (
        running_store(folder / "archive-store", "events", "AKIDARCHIVE", "archive-s3cr3t-0123456789") as archive,
        running_store(folder / "lake-store", "tables", "AKIDLAKE", "lake-s3cr3t-0123456789") as lake,
    ):
        yield archive, lake


def _wait_for(port: int, gateway: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + _SECONDS_TO_START
    while gateway.poll() is None and time.monotonic() < until:
        with socket.socket() as client:
            if client.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.1)
    raise RuntimeError(f"The store did not start: exit code {gateway.poll()}.")


def python(program: str, environment: dict[str, str], *given: Any) -> Any:
    """Run a program where Airflow's Amazon provider is installed.

    :param program: reads ``given`` and sets ``answer``.
    :return: the answer.
    """
    whole = f"import json, sys\ngiven = json.load(sys.stdin)\n{program}\nprint(json.dumps(answer))"
    ran = subprocess.run(
        [sys.executable, "-c", whole], input=json.dumps(given), env=environment, capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stdout[-2000:] + ran.stderr[-4000:]
    return json.loads(ran.stdout.strip().splitlines()[-1])


def path_with_packages() -> str:
    """Return a PYTHONPATH with this checkout and the Amazon provider."""
    return os.pathsep.join([str(ROOT), str(PACKAGES)])
