"""Thousands of made-up requests to the page: none ends in an error of the server."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fastapi.openapi.utils import get_openapi

from airflow_cdc.plugins.page.alone import LAKE, alone_app
from tests.support.page_lakes import ACCOUNTS, CUSTOMERS, ORDERS, STOCK, TICKETS, write_shop

pytestmark = pytest.mark.system_deep
ROOT = Path(__file__).parents[2]
TOOLS = Path(os.environ.get("PAGE_REQUESTS_TOOLS") or ROOT / ".tools" / "page-requests")
_KNOWN: dict[str, dict[str, Any]] = {
    "lake": {"enum": [LAKE]},
    "flow": {"anyOf": [{"enum": [CUSTOMERS, ORDERS, ACCOUNTS, STOCK, TICKETS]}, {"type": "string", "minLength": 1}]},
    "key": {
        "anyOf": [{"type": "string", "pattern": "^id=[0-9]{1,3}$"}, {"enum": ["1", '{"id":1}', "[1]", "id=1,id=2"]}, {"type": "string"}]
    },
}
"""Values by which requests get further than to the lake's name."""


@pytest.fixture
def page(tmp_path: Path) -> Iterator[tuple[str, str]]:
    """Serve the page over a lake as ``airflow-cdc page`` does; yield its origin and the cookie that lets in."""
    shop = write_shop(tmp_path)
    command = [sys.executable, "-m", "airflow_cdc", "page", "--lake", str(shop.lake), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout
            found = next(match for line in server.stdout if (match := re.search(r"(http://[^/]+):(\d+)/\?token=(\S+)", line)))
            host, port, token = found.groups()
            time.sleep(2)
            yield f"{host}:{port}", f"airflow_cdc_{port}={token}"
        finally:
            server.terminate()


def test_no_request_ends_in_an_error_of_the_server(page: tuple[str, str], tmp_path: Path) -> None:
    origin, cookie = page
    document = get_openapi(title="page", version="1", routes=alone_app(str(tmp_path / "lake"), "", 0).routes)
    for path in document["paths"].values():
        for parameter in path["get"].get("parameters", []):
            parameter["schema"] = _KNOWN.get(parameter["name"], parameter["schema"])
    described = tmp_path / "openapi.json"
    described.write_text(json.dumps(document))
    command = [str(TOOLS / "venv" / "bin" / "st"), "run", str(described), "--url", origin, "-H", f"Cookie: {cookie}"]
    done = subprocess.run(
        [*command, "--checks", "not_a_server_error", "-n", "100", "--seed", "1"], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr
    (passed,) = re.findall(r"(\d+) generated, \1 passed", done.stdout)
    assert int(passed) > 500
