"""Many small source databases whose topic and log have lives: restored, the topic made anew, partitions raised, read in part.

All databases of an archive share the topic and the log, as the tables of one server do, so that each thing that happens befalls thousands
of histories at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from tests.support.connectors import Row
from tests.support.events import Record
from tests.support.histories import Archive, Change, Database

PARTITIONS = 3
TABLES = 2
"""Physical tables that share the topic, where a truncate is to concern one of them."""


@dataclass
class LivingArchive(Archive):
    """What the connector wrote for all histories, while their server and their topic were rebuilt."""

    happenings: tuple[str, ...] = ()
    """What befell them, one thing after each round: one of those in :meth:`_after_round`."""
    eras: list[list[int]] = field(default_factory=list)
    """By era, the one behind a restore or a new topic: places of its records."""
    shuffled_eras: set[int] = field(default_factory=set)
    """Those that are known in whatever order their files come: a log that went back stops a flow that sees changes before a snapshot."""

    def __post_init__(self) -> None:
        self._left = list(self.happenings)
        self._began: dict[int, int] = {}
        self._restores = 0
        self._begin_era(is_known=True)
        self.is_shared = "truncated" in self.happenings
        super().__post_init__()
        assert not self._left, "more happens than there are rounds"

    def _first_partitions(self) -> int:
        return PARTITIONS - 1 if "raised" in self.happenings else super()._first_partitions()

    def _after_round(self) -> None:
        happenings: dict[str, Callable[[], None]] = {
            "restored": self._restored,
            "topic": self._topic_made_anew,
            "moved": self._moved,
            "raised": self._raised,
            "in part": self._read_in_part,
            "truncated": self._truncated,
            "log reset": self._log_reset,
        }
        if self._left:
            name = self._left.pop(0)
            self.reached[name] += 1
            happenings[name]()

    def _restored(self) -> None:
        """The server is restored from a backup, its log begins low, and the connector takes a new initial snapshot."""
        self._unseen()
        self._log_reset()
        self._read(self._all_rows(), is_initial=True)

    def _log_reset(self) -> None:
        """The log begins low again, and nothing was missed."""
        self._restores += 1
        # No position of one epoch is a position of another.
        self._log = self._last_commit = 100 + self._restores
        self._transaction = 700
        self._begin_era(is_known=False)

    def _begin_era(self, *, is_known: bool) -> None:
        self.shuffled_eras |= {len(self.eras)} if is_known else set()
        self.eras.append([])

    def _topic_made_anew(self) -> None:
        """Offsets begin at 0; what can take a snapshot takes one."""
        self._offsets.clear()
        self._begin_era(is_known=True)
        if self.dialect.says_again:
            self._unseen()
            self._read(self._all_rows(), is_initial=True)

    def _moved(self) -> None:
        """The server is restored and the topic made anew, at once."""
        self._unseen()
        self._offsets.clear()
        self._log_reset()
        self._read(self._all_rows(), is_initial=True)

    def _raised(self) -> None:
        self._partitions = PARTITIONS

    def _read_in_part(self) -> None:
        """A blocking snapshot with a filter: its marks are those of a whole one."""
        self._read([row for row in self._all_rows() if self._random.random() < 0.5], is_initial=False)

    def _truncated(self) -> None:
        """One of the tables that share the topic is emptied."""
        table = self._random.randrange(TABLES)
        self._log += 10
        change = self._log
        self._log += 10
        self._transaction += 1
        for database in self._databases:
            if database.number % TABLES == table:
                database.rows.clear()
        example: Row = {"db": table, "id": 0, "v": "", "body": ""}
        self._emit("t", None, example, commit=self._log, change=change)
        self._last_commit = self._log
        for database in self._databases:
            self._remember(database)

    def _statements(self, database: Database) -> Iterator[list[Change]]:
        self._began[database.number] = self._written
        yield from super()._statements(database)

    def _write(self, database: Database, place: int | None, after: Row | None, *, touched: bool = True) -> list[Change]:
        """Where it is kept plain, no transaction removes a row that it made (docs/reference/known-differences.md)."""
        is_removal = place is not None and after is None
        if self.plain and is_removal and database.rows[place]["arrived"] > self._began[database.number]:
            self.reached["made and removed"] += 1
            return []
        return super()._write(database, place, after, touched=touched)

    def _unseen(self) -> None:
        """Databases change while nobody captures: no event says so."""
        for database in self._random.sample(self._databases, len(self._databases) // 2):
            changes = [change for statement in self._statements(database) for change in statement]
            keys = [row["id"] for row in database.rows]
            if len(keys) > len(set(keys)):
                database.rows[:] = self._undone(database, changes)

    def _all_rows(self) -> list[Row]:
        return [row for database in self._databases for row in database.rows]

    def _read(self, rows: list[Row], *, is_initial: bool) -> None:
        self._log += 10
        self._last_commit = self._log
        for place, row in enumerate(rows):
            mark = "last" if place == len(rows) - 1 else "first" if place == 0 else "true"
            self._emit("r", None, row, commit=None if is_initial else self._last_commit, change=self._log, snapshot=mark)
        self._log += 10
        for database in self._databases:
            self._remember(database)

    def _redeliver(self) -> None:
        """A connector whose offsets are lost, or whose topic is new, has nothing to send again of the time before."""
        self.reached["redelivery"] += 1
        era = self.eras[-1]
        for place in era[-self._random.randint(1, 30) :]:
            self._append(self.records[place])

    def _append(self, record: Record) -> None:
        value: dict[str, Any] | None = record["value"]
        if value and "source" in value:
            source = dict(value["source"])
            image = value["after"] or value["before"]
            # A truncate that is sent again has no row, but its table.
            if self.is_shared and image:
                source["table"] = _table(image)
            # The connector's own clock goes on, wherever the source's log goes.
            value = {**value, "source": source, "ts_ms": 1_900_000_000_000 + 1000 * len(self.records)}
            if value["op"] == "t":
                value |= {"before": None, "after": None}
                record = {**record, "key": None, "partition": 0}
        self.eras[-1].append(len(self.records))
        super()._append({**record, "value": value})

    def _row(self, database: Database, key: int) -> Row:
        row = super()._row(database, key)
        return {**row, "t": _table(row)} if self.is_shared else row

    def files(self, count: int, *, shuffled: bool = False, again: bool = False) -> list[list[Record]]:
        """Cut each era of the archive into files; the order of eras is kept, and of files in those that are not to be shuffled."""
        found = []
        for number, era in enumerate(self.eras):
            records = [self.records[place] for place in era]
            found += self._cut(records, count, shuffled=shuffled and number in self.shuffled_eras, again=again)
        return found


def _table(image: Row) -> str:
    return f"histories_{image['db'] % TABLES}"
