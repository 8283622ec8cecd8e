"""Generate a table's change events fast, file by file, and know the rows that the table must end with.

They are bare PostgreSQL events of the table that :mod:`benchmarks.small_textbook` knows.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from benchmarks import small_textbook

TOPIC = "bench.public.accounts"
_RECORD = (
    '{"topic":"%s","partition":0,"offset":%d,"key":{"id":%d},"value":{"before":%s,"after":%s,"source":{"version":"3.5.0.Final",'
    '"connector":"postgresql","ts_ms":%d,"snapshot":"%s","db":"bench","sequence":"[%s,\\"%d\\"]","schema":"public","table":"%s",'
    '"txId":%d,"lsn":%d},"op":"%s","ts_ms":%d}}\n'
)
_ROW = '{"id":%d,"amount":"%d.%02d","name":"name %d","city":"city %d","visits":%d,"note":"%032x"}'
_FIRST_MILLISECOND = 1_700_000_000_000
_COMPARED = ("id", "CAST(amount AS DECIMAL(12,2)) AS amount", "name", "city", "visits", "note")


class Source:
    """One table of a source: what happens to it is written to files, its rows are kept."""

    def __init__(self, topic: str = TOPIC, *, seed: int = 0, others: range = range(0)) -> None:
        """Begin an empty table.

        :param others: keys of rows that are there already, and are not known here.
        """
        self.topic = topic
        self.rows: dict[int, str] = {}
        """By key: the row as JSON."""
        self.gone: set[int] = set()
        """Keys of the rows that were deleted."""
        self._others = others
        self._dice = random.Random(seed)
        self._place = 0

    def read(self, path: Path, keys: Iterable[int]) -> None:
        """Write a snapshot's reads of new rows: all of them have its position."""
        position = self._place + 1
        _write(path, [self._change("r", key, position) for key in keys])

    def change(self, path: Path, count: int, keys: Sequence[int], *, deletes: float = 0.05) -> None:
        """Write ``count`` changes of keys picked by chance, each a transaction of its own; what is gone is created again."""
        picked, fates = self._dice.choices(keys, k=count), (self._dice.random() for _ in range(count))
        lines = []
        for key, fate in zip(picked, fates, strict=True):
            is_there = key in self.rows or (key in self._others and key not in self.gone)
            lines.append(self._change(("d" if fate < deletes else "u") if is_there else "c", key))
        _write(path, lines)

    def write_rows(self, path: Path) -> Path:
        """Write the rows as they are now, one JSON document a line."""
        _write(path, [f"{row}\n" for row in self.rows.values()])
        return path

    def _change(self, op: str, key: int, position: int | None = None) -> str:
        place = self._place = self._place + 1
        if op == "d":
            self.rows.pop(key, None)
            self.gone.add(key)
            return record_line(self.topic, op, key, place, transaction=place)
        noise = (key * 0x9E3779B97F4A7C15 + place * 0xC2B2AE3D27D4EB4F165667B19E3779F9) % 2**128
        row = self.rows[key] = row_text(key, place, whole=noise % 10**6, cents=place % 100, visits=noise % 1000, note=noise)
        self.gone.discard(key)
        return record_line(self.topic, op, key, place, row, transaction=place, position=position)


def row_text(key: int, place: int, *, whole: int, cents: int, visits: int, note: int) -> str:
    """Return a row as JSON; name and city follow from place and key."""
    return _ROW % (key, whole, cents, place, key % 500, visits, note)


def record_line(topic: str, op: str, key: int, place: int, row: str = "null", *, transaction: int, position: int | None = None) -> str:
    """Return a whole Kafka record as a line.

    :param place: offset, LSN, and milliseconds since the first event.
    :param row: the row after the event, as JSON; ``null`` behind a delete.
    :param transaction: its number; a snapshot's read has none.
    :param position: the LSN where it is not ``place``: a snapshot's.
    """
    before = f'{{"id":{key}}}' if op == "d" else "null"
    is_read = op == "r"
    last_commit, number = ("null", 0) if is_read else (f'\\"{transaction}\\"', transaction)
    moment = _FIRST_MILLISECOND + place
    lsn = place if position is None else position
    source = ("true" if is_read else "false", last_commit, lsn, topic.rpartition(".")[2], number, lsn)
    return _RECORD % (topic, place, key, before, row, moment, *source, op, moment)


def _write(path: Path, lines: Sequence[str]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(lines), encoding="utf-8")


def fingerprint(rows: DataFrame) -> tuple[int, int]:
    """Return how many rows there are, and a sum of hashes over all their values."""
    hashed = rows.selectExpr(*_COMPARED).selectExpr("CAST(xxhash64(*) AS DECIMAL(38,0)) AS hash")
    count, total = hashed.selectExpr("count(*)", "coalesce(sum(hash), 0)").collect()[0]
    return int(count), int(total)


def differs(spark: SparkSession, table: Path | str, rows: Path) -> str:
    """Return in words how a Delta table differs from rows that :meth:`Source.write_rows` wrote; empty where it does not."""
    found = fingerprint(spark.read.format("delta").load(str(table)))
    expected = fingerprint(spark.read.schema(small_textbook.COLUMNS).json(str(rows)))
    return "" if found == expected else f"{Path(table).name} holds {found[0]:,} rows, {expected[0]:,} are expected, or the values differ. "
