"""Measure merges of small batches spread over a table: ours and the textbook's in turn, on the same events.

Ratios within one run are what counts: CPU seconds of this process and of its Java, which a busy machine changes least.
A contestant whose table ends up different voids the run.
"""

from __future__ import annotations

import json
import os
import random
import shutil
import statistics
import time
from collections.abc import Callable
from pathlib import Path

from rich.console import Console
from rich.table import Table

from airflow_cdc import runtime
from airflow_cdc.pipeline.apply_archive import ArchiveRun, apply_archive
from airflow_cdc.pipeline.session import start_session
from benchmarks import textbook

ROWS, EVENTS, ROUNDS = 200_000, 20_000, 4
TOPIC = "bench.public.spread"
FOLDER = Path(".airflow-cdc/bench")
RESULTS = Path(__file__).parent / "results"


def write_events(path: Path, number: int, dice: random.Random) -> None:
    """Write round 0, the snapshot, or a later round of updates, inserts and deletes spread over the keys."""
    keys = range(ROWS) if number == 0 else [dice.randrange(int(ROWS * 1.02)) for _ in range(EVENTS)]
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        for place, key in enumerate(keys):
            op = "r" if number == 0 else dice.choices(("u", "d"), (95, 5))[0]
            lsn = number * 10_000_000 + place
            row = {"id": key, "amount": f"{dice.randrange(10**6) / 100:.2f}", "name": f"name {lsn}", "city": f"city {key % 500}"}
            source = {"connector": "postgresql", "ts_ms": lsn, "snapshot": str(number == 0).lower(), "lsn": lsn, "txId": number}
            source["sequence"] = json.dumps([None if number == 0 else str(number * 10_000_000), str(0 if number == 0 else lsn)])
            images = {"before": {"id": key}, "after": None} if op == "d" else {"before": None, "after": row}
            value = {**images, "op": op, "source": source}
            record = {"topic": TOPIC, "partition": 0, "offset": lsn, "key": {"id": key}, "value": value}
            file.write(json.dumps(record) + "\n")


def cpu_seconds(pids: list[int]) -> float:
    """Return the CPU time that the processes have used so far."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def measure(work: Callable[[], object], pids: list[int]) -> dict[str, float]:
    """Do it and return what it took."""
    cpu, wall = cpu_seconds(pids), time.monotonic()
    work()
    return {"cpu": cpu_seconds(pids) - cpu, "wall": time.monotonic() - wall}


def main() -> None:
    """Run all rounds, compare the tables, print and keep the result."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.environ.update(runtime.spark_environment("local[2]"))
    spark = start_session("airflow-cdc bench", master="local[2]", options={"spark.sql.warehouse.dir": str(FOLDER / "warehouse")})
    spark.sparkContext.setLogLevel("ERROR")
    gateway = spark.sparkContext._gateway
    pids = [os.getpid(), gateway.proc.pid]  # type: ignore[union-attr]
    dice, theirs = random.Random(1), (FOLDER / "textbook").absolute()
    found: dict[str, list[dict[str, float]]] = {"ours": [], "textbook": []}
    settings = {"spark.sql.ansi.enabled": "false", "spark.sql.shuffle.partitions": "2"}
    peer = spark.newSession()
    for name, value in settings.items():
        peer.conf.set(name, value)
    for number in range(ROUNDS + 1):
        file = FOLDER / "archive" / f"{number:03d}.jsonl"
        write_events(file, number, dice)
        run = ArchiveRun(spark, str(FOLDER / "archive"), str(FOLDER / "lake"))
        contestants = {"ours": lambda run=run: apply_archive(run), "textbook": lambda file=file: textbook.merge(peer, file, theirs)}
        for name in sorted(contestants, reverse=bool(number % 2)):
            taken = measure(contestants[name], pids)
            # The snapshot and the first round warm up.
            found[name] += [taken] if number > 1 else []
    columns = "id, CAST(amount AS DECIMAL(12,2)) AS amount, name, city"
    tables = [spark.sql(f"SELECT {columns} FROM delta.`{path}`") for path in (FOLDER.absolute() / "lake" / TOPIC, theirs)]
    differing = tables[0].exceptAll(tables[1]).count() + tables[1].exceptAll(tables[0]).count()
    report(
        {name: {unit: statistics.median(run[unit] for run in runs) for unit in ("cpu", "wall")} for name, runs in found.items()}, differing
    )


def report(medians: dict[str, dict[str, float]], differing: int) -> None:
    """Print the medians and their ratios and keep them as JSON; a run whose tables differ ends with 1."""
    table = Table(title=f"{EVENTS:,} events spread over {ROWS:,} rows; medians of {ROUNDS - 1} rounds")
    for heading in ("", "CPU s", "wall s", "CPU, ratio to the textbook"):
        table.add_column(heading, justify="right" if heading else "left")
    for name, took in medians.items():
        table.add_row(name, f"{took['cpu']:.1f}", f"{took['wall']:.1f}", f"{took['cpu'] / medians['textbook']['cpu']:.2f}")
    Console().print(table)
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "spread.json").write_text(json.dumps({"rows": ROWS, "events": EVENTS, "medians": medians, "differing": differing}, indent=1))
    if differing:
        raise SystemExit(f"Void: the tables differ in {differing} rows.")


if __name__ == "__main__":
    main()
