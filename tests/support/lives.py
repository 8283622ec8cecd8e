"""A source database whose topic and log have lives: restored, captured anew, its topic made anew, its partitions raised, read in part."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.support.events import Record
from tests.support.oracle import KEYS, TRANSACTIONS, SourceDatabase, Statement, Transaction

MOST_PARTITIONS = 3
UNSEEN = st.lists(
    st.one_of(st.builds(Statement, st.just("put"), KEYS, value=st.integers(100, 199)), st.builds(Statement, st.just("delete"), KEYS))
)


class LivingDatabase(SourceDatabase):
    """A source database, and what happens around it."""

    _restores = 0

    def unseen(self, statements: Iterable[Statement]) -> None:
        """Change rows while nobody captures: no event says so."""
        captured = len(self.events)
        for statement in statements:
            self.commit((statement,))
        for record in self.events[captured:]:
            self._offsets[record["partition"]] -= 1
        del self.events[captured:]

    def restored(self, unseen: Iterable[Statement]) -> None:
        """The log begins at a lower place again; rows changed in between, and the connector takes a new initial snapshot."""
        self.unseen(unseen)
        self._restores += 1
        # Not the very place again: what a restored server logs of itself comes first.
        self._position = self._last_commit = 50 + self._restores
        self.read_whole()

    def topic_made_anew(self, unseen: Iterable[Statement]) -> None:
        """Offsets begin at 0 again; rows changed in between, and the connector takes a new initial snapshot."""
        self.unseen(unseen)
        self._offsets.clear()
        self.read_whole()

    def partitions_raised(self) -> None:
        """Keys go to other partitions from here on."""
        self.partitions = MOST_PARTITIONS

    def read_whole(self) -> None:
        """An initial snapshot."""
        self._read(sorted(self.rows), blocking=False)

    def read_in_part(self, keys: Iterable[int]) -> None:
        """A blocking snapshot with a filter: its marks are those of a whole one."""
        self._read(sorted(set(keys) & self.rows.keys()), blocking=True)

    def touch(self) -> None:
        """Change a row in every partition, so that the archive goes on behind what came before."""
        for key in range(1, MOST_PARTITIONS + 1):
            self.commit((Statement("put", key, value=self._position % 97),))

    def _read(self, keys: list[int], *, blocking: bool) -> None:
        self._position += 10
        first = len(self.events)
        for key in keys:
            self._emit("r", key, after=self.rows[key], commit=self._position, change=self._position)
        for place, record in enumerate(self.events[first:]):
            source = record["value"]["source"]
            source["snapshot"] = "last" if place == len(keys) - 1 else "first" if place == 0 else "true"
            if blocking and self.dialect == "postgresql":
                source["sequence"] = source["sequence"].replace("null", f'"{self._position}"')
        self._last_commit = self._position
        self._position += 10

    def _append(self, record: Record) -> None:
        value: dict[str, Any] | None = record["value"]
        # The connector's own clock goes on, wherever the source's log goes.
        clock = 1_900_000_000_000 + 1000 * len(self.events)
        super()._append(record if value is None else {**record, "value": {**value, "source": dict(value["source"]), "ts_ms": clock}})


@dataclass(frozen=True)
class Life:
    """Transactions, and what happens behind them."""

    groups: tuple[tuple[Transaction, ...], ...]
    ends: str
    unseen: tuple[Statement, ...]
    redelivered: int


@dataclass(frozen=True)
class LivesHistory:
    """What happened to a database and its topic."""

    dialect: str
    partitions: int
    keys: tuple[int, ...]
    lives: tuple[Life, ...]

    def play(self, topic: str) -> tuple[LivingDatabase, list[list[Record]]]:
        """Return the database at its end, and the files of its archive: each is written when something happens."""
        database = LivingDatabase(self.dialect, topic, self.partitions)
        for key in self.keys:
            database.rows[key] = {"id": key, "v": 0}
        database.read_whole()
        files, archived = [], 0
        for life in self.lives:
            for group in life.groups:
                database.commit(*group)
            # A topic that is new has nothing to send again of the one before.
            database.redeliver(min(life.redelivered, len(database.events) - archived))
            files.append(database.events[archived:])
            archived = len(database.events)
            {
                "restored": lambda life=life: database.restored(life.unseen),
                "topic": lambda life=life: database.topic_made_anew(life.unseen),
                "partitions": database.partitions_raised,
                "in part": lambda life=life: database.read_in_part(statement.key for statement in life.unseen),
                "nothing": lambda: None,
            }[life.ends]()
            database.touch()
        files.append(database.events[archived:])
        return database, [file for file in files if file]


LIVES = st.builds(
    Life,
    groups=st.lists(st.lists(TRANSACTIONS, min_size=1, max_size=2).map(tuple), min_size=1, max_size=3).map(tuple),
    ends=st.sampled_from(("restored", "topic", "partitions", "in part", "nothing")),
    unseen=UNSEEN.map(tuple),
    redelivered=st.integers(0, 4),
)


@st.composite
def lives_histories(draw: st.DrawFn) -> LivesHistory:
    """Generate histories of a source that is restored, and of a topic that is made anew, raised, or read in part."""
    return LivesHistory(
        dialect=draw(st.sampled_from(("sqlserver", "postgresql"))),
        partitions=draw(st.sampled_from((1, MOST_PARTITIONS))),
        keys=tuple(sorted(draw(st.sets(KEYS, min_size=2, max_size=6)))),
        lives=tuple(draw(st.lists(LIVES, min_size=1, max_size=4))),
    )
