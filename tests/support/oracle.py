"""The source database, in plain Python: rows, transactions, and the log from which a connector would read.

The oracle models the source, not our rule: statements change its rows, every change is logged with the position that the
database would give it, and what a faithful replay must reach is simply the rows at the end.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from hypothesis import strategies as st

from tests.support.events import Record, postgresql, sqlserver, tombstone

Row = dict[str, Any]


@dataclass(frozen=True)
class Statement:
    """One statement; what it cannot do (insert a key that lives, update one that does not) it does not do."""

    verb: str
    """``put`` inserts or updates, ``delete``, ``move`` gives the row another, free key, ``truncate``."""
    key: int = 0
    to: int = 0
    value: int = 0


Transaction = tuple[Statement, ...]


@dataclass
class SourceDatabase:
    """One table, its rows, and the change events of everything that happened to it."""

    dialect: str
    topic: str
    partitions: int = 1
    rows: dict[int, Row] = field(default_factory=dict)
    events: list[Record] = field(default_factory=list)
    _position: int = 100
    _last_commit: int = 100
    _offsets: dict[int, int] = field(default_factory=dict)

    def snapshot(self, keys: Iterable[int]) -> None:
        """Fill the table before the connector starts, and let it read what is there."""
        for key in keys:
            self.rows[key] = {"id": key, "v": 0}
            self._emit("r", self.rows[key]["id"], after=self.rows[key], commit=self._position, change=self._position)
        self._position += 10

    def commit(self, *transactions: Transaction) -> None:
        """Run transactions that are open at the same time: their changes interleave in the log, they come out one by one.

        Each works on keys of its own, as row locks would have it (key modulo the number of transactions).
        """
        changes: list[list[tuple[int, str, Row | None, Row | None]]] = [[] for _ in transactions]
        longest = max(len(transaction) for transaction in transactions)
        for number in range(longest):
            for owner, transaction in enumerate(transactions):
                if number < len(transaction):
                    self._execute(transaction[number], owner, len(transactions), changes[owner])
        for owner in range(len(transactions)):
            self._position += 10
            commit = self._position
            for change, op, before, after in changes[owner]:
                self._log(op, before, after, commit, change)
            self._last_commit = commit

    def redeliver(self, count: int) -> None:
        """The connector crashed and sends its last records once more."""
        for item in self.events[-count:] if count else []:
            self._append(dict(item))

    def _execute(self, statement: Statement, owner: int, owners: int, log: list[tuple[int, str, Row | None, Row | None]]) -> None:
        key, to = (number - number % owners + owner for number in (statement.key, statement.to))
        self._position += 10
        change = self._position
        before = self.rows.get(key)
        if statement.verb == "put":
            self.rows[key] = {"id": key, "v": statement.value}
            log.append((change, "u" if before else "c", before, self.rows[key]))
        elif statement.verb == "delete" and before:
            del self.rows[key]
            log.append((change, "d", before, None))
        elif statement.verb == "move" and before and to not in self.rows:
            del self.rows[key]
            self.rows[to] = {**before, "id": to}
            log.append((change, "move", before, self.rows[to]))
        elif statement.verb == "truncate" and owners == 1 and self.dialect == "postgresql":
            self.rows.clear()
            log.append((change, "t", None, None))

    def _log(self, op: str, before: Row | None, after: Row | None, commit: int, change: int) -> None:
        if op == "move":
            assert before
            assert after
            self._emit("d", before["id"], before=before, commit=commit, change=change, serial=1)
            self._append(tombstone({"id": before["id"]}, topic=self.topic, partition=self._partition(before["id"])))
            self._emit("c", after["id"], after=after, commit=commit, change=change, serial=2)
            return
        image = after or before
        self._emit(
            op, image["id"] if image else None, before=before, after=after, commit=commit, change=change, serial=2 if op == "u" else 1
        )
        if op == "d":
            assert before
            self._append(tombstone({"id": before["id"]}, topic=self.topic, partition=self._partition(before["id"])))

    def _emit(
        self, op: str, key: int | None, *, commit: int, change: int, serial: int = 1, before: Row | None = None, after: Row | None = None
    ) -> None:
        place = {"topic": self.topic, "partition": self._partition(key)}
        if self.dialect == "sqlserver":
            event = sqlserver(op, commit=commit, change=change, serial=serial, before=before, after=after, **place)  # type: ignore[arg-type]
        else:
            # PostgreSQL sends the last commit before this transaction, and the change's own place.
            last = None if op == "r" else self._last_commit
            identity = {"id": before["id"], "v": 0} if op == "d" and before else None
            event = postgresql(op, commit=last, change=change, before=identity, after=after, **place)  # type: ignore[arg-type]
        self._append({**event, "key": None if key is None else {"id": key}})

    def _partition(self, key: int | None) -> int:
        return 0 if key is None else key % self.partitions

    def _append(self, record: Record) -> None:
        offset = self._offsets.get(record["partition"], 0)
        self._offsets[record["partition"]] = offset + 1
        self.events.append({**record, "offset": offset})


KEYS = st.integers(1, 8)
STATEMENTS = st.one_of(
    st.builds(Statement, st.just("put"), KEYS, value=st.integers(1, 99)),
    st.builds(Statement, st.just("delete"), KEYS),
    st.builds(Statement, st.just("move"), KEYS, KEYS),
)
TRANSACTIONS = st.lists(STATEMENTS, min_size=1, max_size=5).map(tuple)
TRUNCATES = st.just((Statement("truncate"),))


@dataclass(frozen=True)
class History:
    """Everything that happened to a source table, and how its archive was written."""

    dialect: str
    partitions: int
    snapshot: tuple[int, ...]
    groups: tuple[tuple[Transaction, ...], ...]
    redelivered: tuple[int, ...]
    """After each group: how many of the last records come again."""
    cuts: tuple[int, ...]
    """Shares, in percent of the events, at which one file ends and the next begins."""

    def play(self, topic: str) -> SourceDatabase:
        """Let it happen."""
        database = SourceDatabase(self.dialect, topic, self.partitions)
        database.snapshot(self.snapshot)
        for group, redelivered in zip(self.groups, self.redelivered, strict=True):
            database.commit(*group)
            database.redeliver(redelivered)
        return database

    def files(self, events: Sequence[Record]) -> list[list[Record]]:
        """Cut the events into files."""
        marks = sorted({len(events) * cut // 100 for cut in self.cuts} | {0, len(events)})
        return [list(events[first:last]) for first, last in pairwise(marks) if last > first]


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Generate source histories with interleaved transactions, key changes, rebirths, truncates and redeliveries."""
    dialect = draw(st.sampled_from(("sqlserver", "postgresql")))
    group = st.one_of(st.lists(TRANSACTIONS, min_size=1, max_size=3).map(tuple), TRUNCATES.map(lambda transaction: (transaction,)))
    groups = draw(st.lists(group, min_size=2, max_size=10))
    return History(
        dialect=dialect,
        partitions=draw(st.sampled_from((1, 3))),
        snapshot=tuple(sorted(draw(st.sets(KEYS, min_size=1, max_size=5)))),
        groups=tuple(groups),
        redelivered=tuple(draw(st.lists(st.integers(0, 6), min_size=len(groups), max_size=len(groups)))),
        cuts=tuple(draw(st.lists(st.integers(1, 99), min_size=1, max_size=3))),
    )
