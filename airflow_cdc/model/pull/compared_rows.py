"""Comparing a table with its source by hashes: the statements for either side, and what two looks at a differing row prove.

A row's key hash puts it into a bucket. Of each bucket both sides return the number of rows and the sum of their hashes; of those that
differ, the rows' hashes; of rows that differ, the keys. So what crosses the network is small where the sides are equal.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NamedTuple

from airflow_cdc.model.catalogue.row_hashes import CellForm, Dialect
from airflow_cdc.model.plain_json import BigInt, JsonObject

Rows = Sequence[Sequence[object]]
Ask = Callable[[str], Rows]
"""Runs a statement on one side, and returns its rows."""

_ROWS_A_BUCKET = 1000
_MOST_BUCKETS = 65_536
_MOST_ROWS_READ = 200_000
"""Hashes of rows that a comparison reads of differing buckets, about; what other buckets hold the next comparison reads."""
MOST_OPEN = 1000
"""Differing rows that are looked at again."""
_IN_A_STATEMENT = 500


class NoHashError(Exception):
    """Raised where a database gives no hash of a row that it has."""


class Seen(NamedTuple):
    """A row as one side has it."""

    row: int
    """Its hash."""
    mark: int


@dataclass(frozen=True)
class Side:
    """The rows of one side."""

    ask: Ask
    dialect: Dialect
    rows: str
    """SQL of the relation that holds them."""
    columns: Mapping[str, CellForm]
    """The compared columns by this side's name, in an order that both sides share."""
    keys: Sequence[str]
    """Those of the key, by this side's name."""
    mark: str = "0"
    """SQL of a number that differs once the row was written again, whatever it holds; 0 where that is not known."""

    def buckets(self, count: int) -> dict[int, tuple[int, int]]:
        """Return the number of rows and the sum of their hashes by bucket.

        :param count: number of buckets.
        """
        bucket = f"MOD(k, {count})"
        found = self.ask(f"SELECT {bucket}, COUNT(*), COUNT(r), SUM(r) FROM {self._hashed} GROUP BY {bucket}")
        if any(bucket is None or hashed != rows for bucket, rows, hashed, _ in found):
            raise NoHashError
        return {_whole(bucket): (_whole(rows), _whole(total)) for bucket, rows, _, total in found}

    def rows_in(self, buckets: Collection[int], count: int) -> dict[int, Seen]:
        """Return rows' hashes by their keys', of some of so many buckets."""
        return self._pairs(f"MOD(k, {count}) IN ({{}})", sorted(buckets))

    def rows_of(self, keys: Collection[int]) -> dict[int, Seen]:
        """Return rows' hashes by their keys' hashes, as far as there are such rows."""
        return self._pairs("k IN ({})", sorted(keys))

    def key_texts(self, keys: Collection[int]) -> dict[int, dict[str, str]]:
        """Return the text of each key column by the keys' hashes, as far as there are such rows."""
        if not keys:
            return {}
        texts = ", ".join(f"{self.dialect.text_of(key, self.columns[key])} AS t{place}" for place, key in enumerate(self.keys))
        hashed = f"SELECT {self._key_hash} AS k, {texts} FROM {self.rows}"
        found = self.ask(f"SELECT * FROM ({hashed}) x WHERE k IN ({', '.join(map(str, sorted(keys)))})")
        return {_whole(k): {key: str(value) for key, value in zip(self.keys, values, strict=True)} for k, *values in found}

    def _pairs(self, where: str, numbers: Sequence[int]) -> dict[int, Seen]:
        found: dict[int, Seen] = {}
        given = iter(numbers)
        while some := list(islice(given, _IN_A_STATEMENT)):
            rows = self.ask(f"SELECT k, r, m FROM {self._hashed} WHERE {where.format(', '.join(map(str, some)))}")
            for key, row, mark in rows:
                if row is None:
                    raise NoHashError
                # A key that has two rows equals none that has one.
                before = found.get(_whole(key), Seen(0, 0))
                found[_whole(key)] = Seen(before.row + _whole(row), before.mark + _whole(mark))
        return found

    @property
    def _key_hash(self) -> str:
        return self.dialect.hash_of({key: self.columns[key] for key in self.keys})

    @property
    def _hashed(self) -> str:
        return f"(SELECT {self._key_hash} AS k, {self.dialect.hash_of(self.columns)} AS r, {self.mark} AS m FROM {self.rows}) x"


def _whole(value: object) -> int:
    # Sums come as decimals from some drivers.
    return int(str(value))


@dataclass(frozen=True)
class OpenRow(JsonObject):
    """A row that the two sides do not hold alike, and that may be under way."""

    key: BigInt
    """Hash of its key."""
    source: BigInt | None
    """Hash of the source's row; None where it has none. As below, for the table's."""
    table: BigInt | None
    mark: BigInt
    """As :attr:`Side.mark` of the table's row; 0 where it has none."""
    since: int
    """The source's clock, in milliseconds since 1970, when both sides were first seen so."""


@dataclass(frozen=True)
class Difference:
    """What a comparison of all rows found."""

    source_rows: int
    table_rows: int
    open: tuple[OpenRow, ...] = ()
    """At most :data:`MOST_OPEN`."""
    is_cut: bool = False
    """Whether more rows differ than ``open`` names."""


def compare_all(source: Side, table: Side, at: int, table_rows: int) -> Difference:
    """Return the rows that differ. The source is asked first: what it commits in between, the table may already have.

    :param at: the source's clock before this.
    :param table_rows: the table's number of rows, about.
    """
    count = min(max(1, table_rows // _ROWS_A_BUCKET), _MOST_BUCKETS)
    theirs, ours = source.buckets(count), table.buckets(count)
    differing = sorted(bucket for bucket in theirs.keys() | ours.keys() if theirs.get(bucket) != ours.get(bucket))
    read = list(_first(differing, theirs, ours))
    left, right = (side.rows_in(read, count) if read else {} for side in (source, table))
    seen = (_seen(key, left, right, at) for key in sorted(left.keys() | right.keys()))
    rows = tuple(row for row in seen if row.source != row.table)
    there, here = (sum(rows for rows, _ in side.values()) for side in (theirs, ours))
    return Difference(there, here, rows[:MOST_OPEN], len(read) < len(differing) or len(rows) > MOST_OPEN)


def _seen(key: int, source: Mapping[int, Seen], table: Mapping[int, Seen], at: int) -> OpenRow:
    theirs, ours = source.get(key), table.get(key)
    return OpenRow(key, theirs and theirs.row, ours and ours.row, ours.mark if ours else 0, at)


def _first(differing: Iterable[int], *sides: Mapping[int, tuple[int, int]]) -> Iterator[int]:
    left = _MOST_ROWS_READ
    for bucket in differing:
        if left <= 0:
            return
        left -= max(side.get(bucket, (0, 0))[0] for side in sides)
        yield bucket


@dataclass(frozen=True)
class Settled:
    """What another look at open rows proves."""

    open: tuple[OpenRow, ...] = field(default_factory=tuple)
    different: tuple[OpenRow, ...] = field(default_factory=tuple)


def look_again(rows: Collection[OpenRow], source: Side, table: Side, at: int, is_settled: Callable[[int], bool]) -> Settled:
    """Look at open rows again: one that is alike now was under way, one that changed still is.

    :param at: the source's clock before this.
    :param is_settled: whether the table must show what the source held at a moment of its clock.
    """
    keys = [row.key for row in rows]
    theirs, ours = source.rows_of(keys), table.rows_of(keys)
    still, different = [], []
    for row in rows:
        now = _seen(row.key, theirs, ours, at)
        if now.source == now.table:
            continue
        # A row that was written again may hold what it held before, and be under way all the same.
        if (now.source, now.table, now.mark) != (row.source, row.table, row.mark):
            still.append(now)
        elif is_settled(row.since):
            different.append(row)
        else:
            still.append(row)
    return Settled(tuple(still), tuple(different))
