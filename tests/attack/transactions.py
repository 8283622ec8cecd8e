"""Random transactions over a simulated table: changes, moves, swaps and rotations of its keys."""

from __future__ import annotations

from collections.abc import Sequence

from tests.attack.dialects import CHECKS_AT_END
from tests.attack.features import Feature
from tests.attack.source import Source
from tests.attack.truth import Key, Row

Side = tuple[Key, Row] | None
_VERBS = {"put": 8, "delete": 3, "move": 2, "rotate": 10, "by_spare": 1, "delete_insert": 1, "insert_delete": 1}


class Transaction:
    """The changes of one transaction, each made at once in the source's rows."""

    def __init__(self, source: Source) -> None:
        self.source, self.random = source, source.random
        self.changes: list[tuple[str, Side, Side, int]] = []
        self.handed_on: set[Key] = set()

    def run(self, verbs: int) -> None:
        """Do so many random things and commit."""
        names = list(_VERBS)
        if self.source.moves_in_one_event and Feature.DECLARED not in self.source.features:
            names = [name for name in names if name not in {"move", "rotate", "by_spare"}]
        # What PostgreSQL's connector sends first names no commit: microbatches that divide it are a known difference.
        is_nameless = self.source.dialect == "postgresql" and self.source.last_commit is None
        if Feature.HANDED_ON not in self.source.features or self.source.dialect not in CHECKS_AT_END or is_nameless:
            names = [name for name in names if name != "rotate"]
        for verb in self.random.choices(names, [_VERBS[name] for name in names], k=verbs):
            getattr(self, f"_{verb}")()
        self.source.commit(self.changes, self.handed_on)

    @property
    def _live(self) -> list[Key]:
        return list(self.source.rows)

    @property
    def _free(self) -> list[Key]:
        return [key for key in self.source.universe if key not in self.source.rows]

    def _put(self) -> None:
        key = self.random.choice(self.source.universe)
        if key in self.source.rows:
            self._update(key, {**self.source.new_row(), **self._identity(key)})
        else:
            self._insert(key, self.source.new_row())

    def _delete(self) -> None:
        if self._live:
            self._remove(self.random.choice(self._live))

    def _delete_insert(self) -> None:
        if self._live:
            key = self.random.choice(self._live)
            self._remove(key)
            self._insert(key, self.source.new_row())

    def _insert_delete(self) -> None:
        if self._free:
            key = self.random.choice(self._free)
            self._insert(key, self.source.new_row())
            self._remove(key)

    def _move(self) -> None:
        if self._live and self._free:
            self._move_row(self.random.choice(self._live), self.random.choice(self._free))

    def _by_spare(self) -> None:
        """Swap two rows' keys with the help of a free one, as databases need that check each row at once."""
        if len(self._live) > 1 and self._free:
            (one, other), spare = self.random.sample(self._live, 2), self.random.choice(self._free)
            for old, new in ((one, spare), (other, one), (spare, other)):
                self._move_row(old, new)

    def _rotate(self) -> None:
        """Hand keys on in one statement: for a moment a key has two rows."""
        if len(self._live) < 2:
            return
        keys = self.random.sample(self._live, min(len(self._live), self.random.choice([2, 2, 3])))
        rows = [self.source.rows[key] for key in keys]
        for key, row, target in zip(keys, rows, _shifted(keys), strict=True):
            self._log_move((key, row), (target, row))
            self.source.rows[target] = row
        self.handed_on.update(keys)

    def _identity(self, key: Key) -> Row:
        row = self.source.rows[key]
        return {"id": row["id"]} if "id" in row else {}

    def _update(self, key: Key, row: Row) -> None:
        self.changes.append(("u", (key, self.source.rows[key]), (key, row), 2))
        self.source.rows[key] = row

    def _insert(self, key: Key, row: Row) -> None:
        # Serial 1: behind a delete of the same key it is a statement of its own, and no half of a key's change.
        self.changes.append(("c", None, (key, row), 1))
        self.source.rows[key] = row

    def _remove(self, key: Key) -> None:
        self.changes.append(("d", (key, self.source.rows.pop(key)), None, 1))

    def _move_row(self, old: Key, new: Key) -> None:
        before = row = self.source.rows.pop(old)
        if self.random.random() < 0.3:
            row = {**row, **self.source.new_row(), **({"id": row["id"]} if "id" in row else {})}
        self._log_move((old, before), (new, row))
        self.source.rows[new] = row

    def _log_move(self, old: tuple[Key, Row], new: tuple[Key, Row]) -> None:
        if self.source.moves_in_one_event:
            self.changes.append(("u", old, new, 2))
        else:
            serials = (2, 2) if self.source.dialect == "sqlserver" and self.random.random() < 0.3 else (1, 2)
            self.changes += [("d", old, None, serials[0]), ("c", None, new, serials[1])]


def _shifted(keys: Sequence[Key]) -> list[Key]:
    return [*keys[1:], keys[0]]
