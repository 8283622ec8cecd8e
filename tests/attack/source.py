"""A simulated table of a database: its rows, its transactions, and what a connector makes of its log."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.attack.columns import EDGE_KEY_KINDS, EDGE_KINDS, KEY_KINDS, OTHER_UNIT, VALUE_KINDS, WIDE_KEY_KINDS, Column, column, zero
from tests.attack.dialects import CHECKS_AT_END, DIALECTS, Json, Place, source_block
from tests.attack.features import Feature
from tests.attack.records import Topic, envelope_fields
from tests.attack.truth import Key, Row, Truth

TOPIC = "srv.s.tbl"
_KEYS = 9
_STEP = 10
_ZONED_AS_TIME = frozenset({"postgresql", "mysql"})
"""Databases whose zoned times a table's TIMESTAMP holds; of the others it keeps the text."""


@dataclass(frozen=True)
class Change:
    """A row's change: from ``old`` to ``new``, each a key and a row, or None."""

    op: str
    old: tuple[Key, Row] | None
    new: tuple[Key, Row] | None
    place: Place


class Source:
    """A table and its log. ``changes`` of transactions are made by :mod:`tests.attack.transactions`."""

    def __init__(self, seed: str, features: frozenset[Feature]) -> None:
        self.random = r = Random(f"{seed} source")
        self.features = features
        self.dialect = self._dialect()
        self.has_fillers = self.dialect == "postgresql" and Feature.FILLERS in features
        self.record_key = self._record_key()
        self.key_columns = self._key_columns()
        self.columns = [*self.key_columns, *self._value_columns()]
        self.topic = Topic(TOPIC, 1, Feature.BARE not in features, r.randrange)
        self.topic.partitions = r.choice([1, 2, 3]) if not features & {Feature.SCATTER, Feature.KEY_SCHEMA} else r.choice([2, 3])
        self.has_tombstones = r.random() < 0.7
        self.rows: dict[Key, Row] = {}
        self.truth = Truth()
        self.clock, self.transaction = 1_000, 0
        self.last_commit: int | None = None
        self.universe = list({self._new_key(): None for _ in range(40)})[:_KEYS]
        self._snapshot_at = 0
        self._last_keys: set[Key] = set()
        self._last_start = self.clock
        self._next_id = 0
        self._usual: dict[str, Any] = {}

    def _dialect(self) -> str:
        needs = {"postgresql"} if self.features & {Feature.FILLERS, Feature.READS_ABOVE} else set(DIALECTS)
        return self.random.choice(sorted(needs & (CHECKS_AT_END if Feature.HANDED_ON in self.features else set(DIALECTS))))

    def _record_key(self) -> str:
        """Return what the records' keys are: those of the flow, another column, or none."""
        if Feature.SCATTER in self.features:
            return "none"
        return self.random.choice(["id", "none"]) if Feature.DECLARED in self.features else "same"

    @property
    def moves_in_one_event(self) -> bool:
        """Whether an update that changes the table's key is one event: Debezium divides changes of the record's key alone."""
        return self.record_key != "same"

    def _key_columns(self) -> list[Column]:
        kinds = [self.random.choice(KEY_KINDS) for _ in range(self.random.choice([1, 1, 1, 2, 3]))]
        if Feature.WIDE_KEYS in self.features:
            kinds[self.random.randrange(len(kinds))] = self.random.choice(WIDE_KEY_KINDS)
        if Feature.EDGE_KEYS in self.features:
            zoned = {"zoned"} if self.dialect not in _ZONED_AS_TIME else set()
            kinds[0] = self.random.choice([kind for kind in EDGE_KEY_KINDS if kind not in zoned])
        return [column(kind, f"k{number}", is_optional=False) for number, kind in enumerate(kinds)]

    def _value_columns(self) -> list[Column]:
        r = self.random
        kinds = r.sample(VALUE_KINDS, r.randrange(1, 5))
        if Feature.EDGE_VALUES in self.features:
            kinds.append(r.choice([kind for kind in EDGE_KINDS if kind != "zoned" or self.dialect in _ZONED_AS_TIME]))
        if Feature.UNITS in self.features:
            kinds.append(r.choice(list(OTHER_UNIT)))
        ids = [column("i32", "id", is_optional=False)] if self.record_key == "id" else []
        return ids + [column(kind, f"v{number}_{kind}", is_optional=r.random() < 0.75) for number, kind in enumerate(kinds)]

    def _new_key(self) -> Key:
        return tuple(each.draw(self.random) for each in self.key_columns)

    def new_row(self) -> Row:
        """Return random values of the columns outside of the key."""
        row: dict[str, Any] = {}
        for each in self.columns[len(self.key_columns) :]:
            if each.name == "id":
                self._next_id += 1
                row["id"] = self._next_id
                continue
            usual = each.draw(self.random)
            nothing = None if each.is_optional else zero(each.kind)
            values, shares = (usual, nothing, zero(each.kind)), (0.85, 0.1, 0.05)
            if Feature.TWINS in self.features:
                values, shares = (self._usual.setdefault(each.name, usual), *values[1:]), (0.6, 0.3, 0.1)
            row[each.name] = self.random.choices(values, shares)[0]
        return row

    # What happens to the columns.

    def change_unit(self) -> None:
        """Give a column of times another unit from here on."""
        self.columns = [
            replace(column(OTHER_UNIT[each.kind], each.name), is_optional=each.is_optional)
            if each.kind in OTHER_UNIT and each not in self.key_columns
            else each
            for each in self.columns
        ]

    def add_column(self) -> None:
        """Add a column, which is NULL in all rows."""
        if all(each.name != "added" for each in self.columns):
            self.columns.append(column("i32", "added"))

    # What happens to the rows.

    def snapshot(self, count: int) -> None:
        """Fill the table with rows that nobody saw come, and read them all."""
        self.clock += _STEP
        above = Feature.READS_ABOVE in self.features
        self._snapshot_at = self.clock + (1_000 if above else 0)
        keys = self.random.sample(self.universe, min(count, len(self.universe)))
        for number, key in enumerate(keys):
            self.rows[key] = self.new_row()
            mark = "last" if number == len(keys) - 1 else "true" if number else "first"
            self._read(key, Place(self._snapshot_at, self._snapshot_at, None, snapshot=mark))
        self.clock += 0 if above else _STEP

    def read_again(self, count: int) -> None:
        """Read some rows by an incremental snapshot, of those that the last transaction left alone."""
        if self.last_commit is None:
            return
        keys = [key for key in self.rows if key not in self._last_keys]
        for key in self.random.sample(keys, min(count, len(keys))):
            self._read(key, Place(self.last_commit, self.last_commit, self.last_commit, self.transaction, snapshot="incremental"))

    def _read(self, key: Key, place: Place) -> None:
        self.transaction += 1
        serial = self.truth.add(self.transaction, {key: self.rows[key]}, place.commit, is_snapshot=place.snapshot != "incremental")
        self._emit(serial, Change("r", None, (key, self.rows[key]), place))

    def truncate(self) -> None:
        """Empty the table."""
        self.transaction += 1
        self.clock += _STEP
        place = Place(self.clock, self.clock + _STEP, self.last_commit, self.transaction)
        self.clock += _STEP
        self.last_commit = self.clock
        self._last_keys = set()
        serial = self.truth.add(self.transaction, {}, self.clock, empties_table=True)
        self.rows.clear()
        self._emit(serial, Change("t", None, None, place))

    def commit(self, changes: Sequence[tuple[str, tuple[Key, Row] | None, tuple[Key, Row] | None, int]], handed_on: set[Key]) -> None:
        """Log a transaction, whose changes the rows hold already.

        :param changes: operation, old and new key and row, serial; of a key's change in two events the halves follow one another.
        :param handed_on: keys that had two rows in between.
        """
        if not changes:
            return
        self.transaction += 1
        keys = {side[0] for _, old, new, _ in changes for side in (old, new) if side}
        start = self.clock
        # Transactions run beside each other, and are sent one by one when they commit.
        if self.dialect != "mysql" and not keys & self._last_keys and self.random.random() < 0.3:
            self.clock = self._last_start + 1 + self.transaction % 8
        self._last_start, self._last_keys = self.clock, keys
        places: list[Place] = []
        kinds = _kinds_of_rows_events(changes)
        for number, (op, _, _, serial) in enumerate(changes):
            is_second_half = number and op == "c" and changes[number - 1][0] == "d" and serial == 2
            if is_second_half:
                places.append(replace(places[-1], serial=2))
            elif self.dialect == "mysql" and places and self.random.random() < 0.5 and kinds[number] == kinds[number - 1]:
                places.append(replace(places[-1], serial=serial, row=places[-1].row + 1))
            else:
                self.clock += _STEP
                places.append(Place(self.clock, 0, self.last_commit, self.transaction, serial))
        self.clock = max(self.clock, start, self._snapshot_at) + _STEP
        for (op, old, new, _), place in zip(changes, places, strict=True):
            effects: dict[Key, Row | None] = {**({old[0]: None} if old else {}), **({new[0]: new[1]} if new else {})}
            serial = self.truth.add(self.transaction, effects, self.clock)
            self._emit(serial, Change(op, old, new, replace(place, commit=self.clock)))
        if handed_on:
            self.truth.handed_on[self.transaction] = {key: self.rows.get(key) for key in handed_on}
        self.last_commit = self.clock

    # What the connector writes.

    def _emit(self, serial: int, change: Change) -> None:
        is_shared = Feature.EQUAL_POSITIONS in self.features
        source = source_block(self.dialect, TOPIC.rsplit(".", 1)[-1], change.place, is_read=change.op == "r", is_shared=is_shared)
        images = {"before": self._before(change), "after": self._image(change.new)}
        payload: Json = {**images, "source": source, "op": change.op, "ts_ms": source["ts_ms"] + 5}
        value = self.topic.wrap(payload, envelope_fields(self.columns, TOPIC, source), f"{TOPIC}.Envelope")
        key = self._key(change.new or change.old)
        self.topic.append(serial, self.transaction, key, value)
        if change.op == "d" and self.has_tombstones:
            self.topic.append(None, self.transaction, key, None)

    def _key(self, side: tuple[Key, Row] | None) -> Any:
        if side is None or self.record_key == "none":
            return None
        if self.record_key == "id":
            return self.topic.key([each for each in self.columns if each.name == "id"], [side[1]["id"]])
        return self.topic.key(self.key_columns, side[0])

    def _image(self, side: tuple[Key, Row] | None) -> Json | None:
        if side is None:
            return None
        values = dict(zip((each.name for each in self.key_columns), side[0], strict=True)) | dict(side[1])
        return {each.name: each.json(values.get(each.name)) for each in self.columns}

    def _before(self, change: Change) -> Json | None:
        image = self._image(change.old)
        if image is None or not self.has_fillers:
            return image
        if change.op == "u":
            return None
        names = {each.name for each in self.key_columns}
        fillers = {each.name: None if each.is_optional else each.filler for each in self.columns}
        return {name: value if name in names else fillers[name] for name, value in image.items()}


def _kinds_of_rows_events(changes: Sequence[tuple[str, Any, Any, int]]) -> list[str]:
    """Return by change what its rows event of MySQL does: one event writes, updates or deletes rows, never two of these."""
    halves = {number for number, (op, _, _, serial) in enumerate(changes) if op == "c" and serial == 2}
    return ["u" if number in halves or number + 1 in halves else op for number, (op, *_) in enumerate(changes)]
