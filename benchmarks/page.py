"""``python -m benchmarks.page [--flows 500] [--microbatches 1000]``: how long the page's answers take over a large lake. No Spark.

Prints milliseconds by request: of a server that has just started, where the first look at the lake is still under way, and of one that has
looked. Ends with 1 where an answer took longer than the aim.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from fastapi.testclient import TestClient

from airflow_cdc.plugins.page.alone import LAKE, OneLake
from airflow_cdc.plugins.page.app import make_app
from tests.support.many_flows import write_many

AIM_MS = 300.0
_ROUNDS = 7


def _ask(client: TestClient, path: str) -> float:
    begun = time.perf_counter()
    answer = client.get(f"/api/{path}")
    took = (time.perf_counter() - begun) * 1000
    assert answer.status_code == 200, answer.text
    return took


def main(
    flows: Annotated[int, typer.Option(help="Flows of the lake.")] = 500,
    microbatches: Annotated[int, typer.Option(help="Microbatches of each flow.")] = 1000,
) -> None:
    """Measure."""
    folder = Path(tempfile.mkdtemp(prefix="cdc-page-"))
    try:
        write_many(folder, flows=flows, microbatches=microbatches)
        found = _measure(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{flows} flows, {microbatches} microbatches each; milliseconds, median (largest) of {_ROUNDS}")
    for name, times in found.items():
        print(f"{name:45} {statistics.median(times):8.0f} ({max(times):.0f})")
    if late := [name for name, times in found.items() if statistics.median(times) > AIM_MS]:
        print(f"Over {AIM_MS:.0f} ms: {', '.join(late)}")
        raise typer.Exit(1)


def _measure(lake: Path) -> dict[str, list[float]]:
    flow = "server.db03.public.table_0003"
    found: dict[str, list[float]] = {"flows, a server that has just started": []}
    for _ in range(_ROUNDS):
        client = TestClient(make_app(OneLake(str(lake)), []))
        # The client's own first request costs more than any answer.
        client.get("/api/lakes")
        found["flows, a server that has just started"].append(_ask(client, "flows?lake=lake"))
    context = OneLake(str(lake))
    context.view(LAKE).look(patience=600)
    client = TestClient(make_app(context, []))
    client.get("/api/lakes")
    requests = {
        "flows, by state": "flows?lake=lake",
        "flows, searched and sorted by lag": "flows?lake=lake&search=table_02&sort=lag&descending=true",
        "flows, page 7": "flows?lake=lake&sort=flow&page=7",
        "one flow": f"flow?lake=lake&flow={flow}",
        "its last 200 microbatches": f"microbatches?lake=lake&flow={flow}",
        "all 1000 of another flow": "microbatches?lake=lake&limit=1000&flow=server.db04.public.table_0004",
    }
    for name, path in requests.items():
        found[name] = [_ask(client, path) for _ in range(_ROUNDS)]
        found[f"{name}, first time"] = [found[name].pop(0)]
    return found


if __name__ == "__main__":
    typer.run(main)
