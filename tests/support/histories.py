"""Many small source databases in one table: transactions as the databases allow them, events as the connectors write them.

The model is the source, not our rule: statements change rows, a deferrable key is checked at the commit, and what a faithful
replay must reach is the rows at the end. Each database owns the rows of one value of ``db``, the first column of the key, so that one
archive holds thousands of histories at the price of one.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.connectors import Dialect, LogPlace, Row, spell
from tests.support.events import Record, tombstone

PLACEHOLDER = "__debezium_unavailable_value"
KEYS = range(1, 7)


@dataclass(frozen=True)
class Change:
    """One row's change by one statement."""

    place: int
    before: Row | None
    after: Row | None
    touched: bool
    """Whether the statement set ``body``."""


@dataclass
class Database:
    """The rows of one history; between statements of a transaction two may have one key."""

    number: int
    rows: list[Row] = field(default_factory=list)

    def at(self, key: int) -> list[int]:
        return [place for place, row in enumerate(self.rows) if row["id"] == key]


@dataclass
class Archive:
    """What the connector wrote for all histories, and what their databases hold at the end."""

    dialect: Dialect
    topic: str
    seed: int
    histories: int
    plain: bool = False
    """Whether to keep to what a merge by sequence gets right too: no key is handed on, nothing is read under load or twice."""
    records: list[Record] = field(default_factory=list)
    reached: Counter[str] = field(default_factory=Counter)
    """What the generator came to: shifts, swaps and so on."""
    states: dict[int, list[list[Row]]] = field(default_factory=dict)
    """By database: its rows when the snapshot was taken, and after each commit."""

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._log = 100
        self._last_commit = 100
        self._transaction = 700
        self._written = 0
        self._offsets: Counter[int] = Counter()
        self._databases = [Database(number) for number in range(self.histories)]
        self._headers = self._random.random() < 0.5
        self._partitions = self._first_partitions()
        self._snapshot()
        for _ in range(6):
            self._round()
            self._after_round()

    def _first_partitions(self) -> int:
        return self.dialect.partitions

    def _after_round(self) -> None:
        """Do what befalls all databases at once: nothing here."""

    @property
    def rows(self) -> list[Row]:
        """The rows at the end, ordered by key."""
        everything = [_columns_of(row) for database in self._databases for row in database.rows]
        return sorted(everything, key=lambda row: (row["db"], row["id"]))

    def _row(self, database: Database, key: int) -> Row:
        value = self._random.randrange(100)
        return {"db": database.number, "id": key, "v": f"v{value}", "body": f"body {value} of {database.number}"}

    def _snapshot(self) -> None:
        # Under load the snapshot's position lies above streamed events that it does not hold.
        position = self._log + (0 if self.plain else 25)
        for database in self._databases:
            for key in self._random.sample(KEYS, self._random.randint(0, 4)):
                database.rows.append({**self._row(database, key), "arrived": 0})
                self._emit("r", None, database.rows[-1], commit=None, change=position, snapshot="true")
            self._remember(database)

    def _round(self) -> None:
        """Let every database run a transaction or two, in groups that are open at the same time."""
        waiting = [database for database in self._databases for _ in range(self._random.choice((1, 1, 2)))]
        self._random.shuffle(waiting)
        while waiting:
            group = {database.number: database for database in (waiting.pop() for _ in range(min(len(waiting), 3)))}
            for changes in self._concurrently(list(group.values())):
                self._commit(changes)
            if self._random.random() < 0.02 and self.dialect.says_again:
                self._redeliver()
            if self._random.random() < 0.05 and not self.plain and self.dialect.says_again:
                self._read_again(self._random.choice(self._databases))

    def _concurrently(self, group: list[Database]) -> list[list[Change]]:
        """Run one transaction in each database; their statements interleave in the log."""
        running = [(database, self._statements(database), []) for database in group]
        finished: list[list[Change]] = []
        while running:
            chosen = self._random.choice(running)
            database, statements, changes = chosen
            statement = next(statements, None)
            if statement is not None:
                changes += statement
                continue
            running.remove(chosen)
            keys = [row["id"] for row in database.rows]
            if len(keys) > len(set(keys)):
                # The deferred constraint fails: what was done is undone, nothing is logged.
                database.rows[:] = self._undone(database, changes)
                self.reached["rolled back"] += 1
                continue
            finished.append(changes)
        return finished

    def _undone(self, database: Database, changes: list[Change]) -> list[Row]:
        rows = list(database.rows)
        for change in reversed(changes):
            if change.after is not None:
                rows.remove(change.after)
            if change.before is not None:
                rows.append(change.before)
        return rows

    def _statements(self, database: Database) -> Iterator[list[Change]]:
        verbs: list[Callable[[Database], list[Change]]] = [self._put, self._put, self._touch, self._delete, self._reborn]
        if not self.plain:
            verbs += [self._move, self._shift, self._swap, self._through_another_key, self._born_and_gone, self._there_and_back]
        for _ in range(self._random.choice((1, 1, 2, 3))):
            yield self._random.choice(verbs)(database)

    def _write(self, database: Database, place: int | None, after: Row | None, *, touched: bool = True) -> list[Change]:
        """Change one row, unless the log could not show which of two rows with its key it was."""
        self._log += 10
        self._written += 1
        before = None if place is None else database.rows[place]
        if before is not None and not self.dialect.full_before and self._is_younger(database, before):
            self.reached["not tellable"] += 1
            return []
        if (
            after is not None
            and not self.dialect.deferrable
            and any(row["id"] == after["id"] for row in database.rows if row is not before)
        ):
            self.reached["refused"] += 1
            return []
        if after is not None:
            keeps_key = before is not None and before["id"] == after["id"]
            # Not the log's place: a server that is restored begins its log low again.
            after = {**after, "arrived": before["arrived"] if before is not None and keeps_key else self._written}
        if place is None:
            assert after is not None
            database.rows.append(after)
        elif after is None:
            del database.rows[place]
        else:
            database.rows[place] = after
        return [Change(self._log, before, after, touched)]

    @staticmethod
    def _is_taken(database: Database, key: int, by: Row | None) -> bool:
        return any(row["id"] == key for row in database.rows if row is not by)

    @staticmethod
    def _is_younger(database: Database, row: Row) -> bool:
        return any(other["id"] == row["id"] and other["arrived"] < row["arrived"] for other in database.rows)

    def _put(self, database: Database) -> list[Change]:
        key = self._random.choice(KEYS)
        places = database.at(key)
        return self._write(database, places[0] if places else None, self._row(database, key))

    def _touch(self, database: Database) -> list[Change]:
        """Update a row and leave its large value alone."""
        if not database.rows:
            return []
        place = self._random.randrange(len(database.rows))
        self.reached["left-out value"] += 1
        return self._write(database, place, {**database.rows[place], "v": f"w{self._random.randrange(100)}"}, touched=False)

    def _delete(self, database: Database) -> list[Change]:
        if not database.rows:
            return []
        return self._write(database, self._random.randrange(len(database.rows)), None)

    def _to(self, database: Database, place: int, key: int) -> list[Change]:
        return self._write(database, place, {**database.rows[place], "id": key}, touched=not self.dialect.leaves_out_in_moves)

    def _move(self, database: Database) -> list[Change]:
        if not database.rows:
            return []
        self.reached["key change"] += 1
        return self._to(database, self._random.randrange(len(database.rows)), self._random.choice(KEYS))

    def _shift(self, database: Database) -> list[Change]:
        """``UPDATE t SET id = id + 1``, row by row in whatever order the rows lie."""
        step = self._random.choice((1, -1))
        places = list(range(len(database.rows)))
        self._random.shuffle(places)
        self.reached["shift"] += len(places) > 1
        return [change for place in places for change in self._to(database, place, database.rows[place]["id"] + step)]

    def _swap(self, database: Database) -> list[Change]:
        if len(database.rows) < 2:
            return []
        one, other = self._random.sample(range(len(database.rows)), 2)
        first, second = database.rows[one]["id"], database.rows[other]["id"]
        self.reached["swap"] += 1
        return self._to(database, one, second) + self._to(database, other, first)

    def _through_another_key(self, database: Database) -> list[Change]:
        if len(database.rows) < 2:
            return []
        one, other = self._random.sample(range(len(database.rows)), 2)
        first, second = database.rows[one]["id"], database.rows[other]["id"]
        self.reached["temporary key"] += 1
        return self._to(database, one, 99) + self._to(database, other, first) + self._to(database, one, second)

    def _born_and_gone(self, database: Database) -> list[Change]:
        self.reached["born and gone"] += 1
        born = self._write(database, None, self._row(database, self._random.choice(KEYS)))
        return born + self._write(database, len(database.rows) - 1, None)

    def _there_and_back(self, database: Database) -> list[Change]:
        if not database.rows:
            return []
        place = self._random.randrange(len(database.rows))
        key = database.rows[place]["id"]
        self.reached["there and back"] += 1
        return self._to(database, place, 98) + self._to(database, place, key)

    def _reborn(self, database: Database) -> list[Change]:
        if not database.rows:
            return []
        place = self._random.randrange(len(database.rows))
        key = database.rows[place]["id"]
        self.reached["reborn"] += 1
        return self._write(database, place, None) + self._write(database, None, self._row(database, key))

    def _commit(self, changes: list[Change]) -> None:
        if not changes:
            return
        self._log += 10
        self._transaction += 1
        commit = self._log
        for statement, change in enumerate(changes):
            at = {"commit": commit, "change": change.place, "statement": statement}
            moved = change.before and change.after and change.before["id"] != change.after["id"]
            if moved and not self.dialect.moves_in_one:
                self._emit("d", change.before, None, **at, serial=1)
                self._emit("c", None, change.after, **at, serial=2, touched=change.touched, old=change.before)
            elif change.after is None:
                self._emit("d", change.before, None, **at)
            else:
                op = "u" if change.before else "c"
                self._emit(op, change.before, change.after, **at, serial=2 if change.before else 1, touched=change.touched)
        self._last_commit = commit
        image = changes[0].after or changes[0].before
        assert image
        self._remember(self._databases[image["db"]])

    def _remember(self, database: Database) -> None:
        self.states.setdefault(database.number, []).append([_columns_of(row) for row in database.rows])

    def _read_again(self, database: Database) -> None:
        """An incremental snapshot reads the rows of one database."""
        self.reached["incremental read"] += 1
        for row in database.rows:
            self._emit("r", None, row, commit=self._last_commit, change=self._log, snapshot="incremental")

    def _redeliver(self) -> None:
        """The connector crashed and sends its last records once more."""
        self.reached["redelivery"] += 1
        for item in self.records[-self._random.randint(1, 30) :]:
            self._append(item)

    def _emit(
        self,
        op: str,
        before: Row | None,
        after: Row | None,
        *,
        commit: int | None,
        change: int,
        serial: int = 1,
        statement: int = 999,
        touched: bool = True,
        old: Row | None = None,
        snapshot: str = "false",
    ) -> None:
        before, after = (_columns_of(row) if row else None for row in (before, after))
        image = after or before
        assert image
        key = {"db": image["db"], "id": image["id"]}
        if after and not touched and self.dialect.leaves_values_out:
            after = {**after, "body": None if self.dialect.name == "huawei cdl" else PLACEHOLDER}
        if before and not self.dialect.full_before:
            before = {**key, "v": "", "body": None} if op == "d" else None
        place: dict[str, Any] = {"topic": self.topic, "partition": (image["db"] * 7 + image["id"]) % self._partitions, "key": key}
        log = LogPlace(commit, self._last_commit, change, serial, statement, self._transaction)
        made = spell(self.dialect, op, before, after, log, **place)
        if "source" in made["value"]:
            made["value"]["source"] |= {"snapshot": snapshot}
        if old and self._headers:
            made["headers"] = [{"key": "__debezium.oldkey", "value": {"db": old["db"], "id": old["id"]}}]
        self._append(made)
        if op == "d" and not self.dialect.moves_in_one:
            self._append(tombstone(key, topic=self.topic, partition=place["partition"]))

    def _append(self, record: Record) -> None:
        offset = self._offsets[record["partition"]]
        self._offsets[record["partition"]] += 1
        self.records.append({**record, "offset": offset})

    def story(self, number: int) -> str:
        """Return one history's events, a line each: partition, offset and what the value holds."""
        lines = []
        for record in self.records:
            value = record["value"]
            images = value and [value.get(name) for name in ("before", "after", "data")]
            if value and any(image and image["db"] == number for image in images):
                place = value.get("source") or value["transaction"]
                lines.append(f"{record['partition']} {record['offset']} {value.get('op') or value['OPERATION']} {images} {place}")
        return "\n".join(lines)

    def files(self, count: int, *, shuffled: bool = False, again: bool = False) -> list[list[Record]]:
        """Cut the archive into files as a sink does: by partition, at any record.

        :param count: about how many a partition, were there three.
        :param shuffled: return them in any order.
        :param again: let some come twice.
        """
        return self._cut(self.records, count, shuffled=shuffled, again=again)

    def _cut(self, wanted: list[Record], count: int, *, shuffled: bool, again: bool) -> list[list[Record]]:
        dice = _dice_for_cuts(self.seed)
        closed: list[tuple[int, list[Record]]] = []
        partitions = sorted({record["partition"] for record in wanted})
        for partition in partitions:
            placed = [(place, record) for place, record in enumerate(wanted) if record["partition"] == partition]
            marks = sorted({0, len(placed), *(dice.randrange(len(placed)) for _ in range(count * 3 // len(partitions) - 1))})
            closed += [(placed[last - 1][0], [record for _, record in placed[first:last]]) for first, last in itertools.pairwise(marks)]
        # As they would be closed: by how far the archive was when the last record came.
        files = [file for _, file in sorted(closed, key=lambda each: each[0])]
        if again:
            files += dice.sample(files, 2)
        if shuffled:
            dice.shuffle(files)
        return files


def _columns_of(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != "arrived"}


def _dice_for_cuts(seed: int) -> random.Random:
    """Return dice of their own, so that cutting does not change what happens."""
    return random.Random(seed + 1)
