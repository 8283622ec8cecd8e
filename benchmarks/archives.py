"""Write archives of change events, fast: SQL Server's, as Debezium writes them, one file a partition."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from pathlib import Path

import duckdb

from benchmarks.sequence import Keys, Mix, events_of
from benchmarks.shapes import KEY, PARTITIONS, TOPIC, Shape

SNAPSHOT_ROWS = 16
"""The archive begins with a snapshot of that many rows: the keys from 0 on."""
_PER_PARTITION = SNAPSHOT_ROWS // PARTITIONS
_VERSION = 1
"""Of what is written here: another one, and archives that lie about are written anew."""


@dataclass(frozen=True)
class Traffic:
    """Change events of a table."""

    shape: Shape
    count: int
    keys: Keys
    mix: Mix
    seed: int = 1
    events_per_file: int | None = None
    """None: one file a partition."""

    def files(self, folder: Path) -> list[Path]:
        """Return the archived files, by partition; they are written below the folder where they are not there yet."""
        return kept(folder, f"{_VERSION}{self}", self._write)

    def _write(self, folder: Path) -> None:
        events = events_of(self.count, self.keys, self.mix, seed=self.seed)
        connection = duckdb.connect()
        connection.register("events", events)
        step = self.events_per_file or len(events)
        for partition, first in product(range(PARTITIONS), range(0, len(events), step)):
            of_file = f"partition = {partition} AND place >= {first} AND place < {first + step}"
            lines = connection.execute(f"SELECT {_line(self.shape)} FROM events WHERE {of_file} ORDER BY place")
            _write_lines(archive_path(folder, partition, first + _PER_PARTITION), lines)


def kept(cache: Path, content: str, write: Callable[[Path], None]) -> list[Path]:
    """Return the files of a folder that ``write`` makes, in their order; it is made once.

    :param content: what they hold, down to the last detail.
    """
    name = hashlib.sha256(content.encode()).hexdigest()[:16]
    if not (cache / name).exists():
        half = cache / f"{name}.half"
        shutil.rmtree(half, ignore_errors=True)
        write(half)
        half.rename(cache / name)
    return sorted(path for path in (cache / name).rglob(f"{TOPIC}+*") if path.is_file())


def write_snapshot(folder: Path, shape: Shape) -> None:
    """Write the reads of a table's first rows."""
    rows = f"""
        SELECT 'r' AS op, key, key % {PARTITIONS} AS partition, key // {PARTITIONS} - {_PER_PARTITION} AS place,
            0 AS transaction, 1 AS serial FROM range({SNAPSHOT_ROWS}) AS keys(key)
    """
    for partition in range(PARTITIONS):
        query = f"SELECT {_line(shape)} FROM ({rows}) WHERE partition = {partition} ORDER BY place"
        _write_lines(archive_path(folder, partition, 0), duckdb.connect().execute(query))


def archive_path(folder: Path, partition: int, offset: int) -> Path:
    """Return where a sink would write a file."""
    return folder / TOPIC / f"partition={partition}" / f"{TOPIC}+{partition}+{offset:010d}.json"


def _line(shape: Shape) -> str:
    """Return DuckDB's SQL of a whole record as JSON text."""
    now, before = (f"(hash(key, transaction - {age}) >> 2)" for age in (0, 1))
    row = shape.json_row("key", f"CAST({now} AS BIGINT)")
    old = shape.json_row("key", f"CAST({before} AS BIGINT)")
    time = "(1700000000000 + transaction)"
    lsn = "printf('%08x:%08x:%04x', 16, CAST(transaction AS BIGINT), {})"
    source = f"""
        '{{"version":"3.5.0.Final","connector":"sqlserver","name":"bench","ts_ms":' || {time}
        || ',"snapshot":' || if(op = 'r', '"true"', '"false"') || ',"db":"bench","sequence":null,"ts_us":' || {time}
        || '000,"ts_ns":' || {time} || '000000,"schema":"dbo","table":"accounts","change_lsn":'
        || if(op = 'r', 'null', '"' || {lsn.format(3)} || '"') || ',"commit_lsn":"' || {lsn.format(5)}
        || '","event_serial_no":' || if(op = 'r', 'null', serial::VARCHAR) || '}}'
    """
    value = f"""
        '{{"before":' || if(op IN ('u', 'd'), {old}, 'null') || ',"after":' || if(op = 'd', 'null', {row}) || ',"source":' || {source}
        || ',"transaction":null,"op":"' || op || '","ts_ms":' || ({time} + 100) || ',"ts_us":' || ({time} + 100)
        || '000,"ts_ns":' || ({time} + 100) || '000000}}'
    """
    return f"""
        '{{"topic":"{TOPIC}","partition":' || partition || ',"offset":' || (place + {_PER_PARTITION}) || ',"key":{{"{KEY}":' || key
        || '}},"value":' || if(op = 't', 'null', {value}) || '}}' AS line
    """


def _write_lines(path: Path, found: duckdb.DuckDBPyConnection) -> None:
    """Write a file; none where there are no lines."""
    rows = found.fetchmany(50_000)
    if not rows:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8") as file:
        while rows:
            file.writelines(f"{row[0]}\n" for row in rows)
            rows = found.fetchmany(50_000)
