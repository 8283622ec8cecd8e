"""What happens to the keys of a table, as arrays: one entry an event, in the order of the source's log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from benchmarks.shapes import PARTITIONS

_UPDATE, _CREATE, _DELETE, _MOVE = range(4)


@dataclass(frozen=True)
class Mix:
    """Which share of the events is what; with the tombstones behind deletes they make 1."""

    updates: float = 0.6
    creates: float = 0.18
    deletes: float = 0.08
    """Each followed by a tombstone."""
    moves: float = 0.02
    """Key changes: a delete, its tombstone and a create."""


MIXED = Mix()
INSERTS = Mix(updates=0, creates=1, deletes=0, moves=0)


@dataclass(frozen=True)
class Keys:
    """Which keys of a table of ``rows`` keys, 0 and up, the changes are about."""

    rows: int
    newest: float = 1.0
    """The share of the table that changes are about, at its end."""
    hot: float = 0.0
    """The share of the changes that are about a thousandth of these keys."""

    def draw(self, count: int, dice: np.random.Generator) -> np.ndarray:
        """Return as many keys."""
        among = max(1, int(self.rows * self.newest))
        places = dice.integers(0, among, count)
        few = dice.random(count) < self.hot
        # Spread over the table: with a step that shares no divisor with most sizes.
        places[few] = places[few] % max(1, among // 1000) * 997 % among
        result: np.ndarray = self.rows - among + places
        return result


def events_of(count: int, keys: Keys, mix: Mix, *, seed: int) -> pa.Table:
    """Return about ``count`` events without any that contradict each other: a row is created where there is none, and so on.

    :return: ``op`` (``c``, ``u``, ``d``; ``t`` for a tombstone), ``key``, ``transaction`` (from 1, rising), ``serial`` (in the
        transaction), ``partition`` and ``place`` (in the partition, from 0, rising).
    """
    dice = np.random.default_rng(seed)
    kinds = _kinds(count, mix, dice)
    old = keys.draw(len(kinds), dice)
    is_new = kinds == _CREATE
    old[is_new] = keys.rows + np.arange(is_new.sum())
    kinds = _made_to_live(kinds, old)
    # A key change is three events, a delete two.
    widths = np.select([kinds == _MOVE, kinds == _DELETE], [3, 2], 1)
    which = np.repeat(np.arange(len(kinds)), widths)
    step = np.arange(len(which)) - np.repeat(np.cumsum(widths) - widths, widths)
    kind, key = kinds[which], old[which]
    arrives = (kind == _MOVE) & (step == 2)
    key[arrives] = keys.rows + is_new.sum() + np.arange(arrives.sum())
    op = np.select([step == 1, arrives | (kind == _CREATE), kind == _UPDATE], ["t", "c", "u"], "d")
    serial = np.select([arrives | (kind == _UPDATE)], [2], 1)
    partition = key % PARTITIONS
    place = np.empty(len(key), dtype=np.int64)
    for number in range(PARTITIONS):
        mine = partition == number
        place[mine] = np.arange(mine.sum())
    return pa.table({"op": op, "key": key, "transaction": which + 1, "serial": serial, "partition": partition, "place": place})


def _kinds(count: int, mix: Mix, dice: np.random.Generator) -> np.ndarray:
    shares = {_UPDATE: mix.updates, _CREATE: mix.creates, _DELETE: mix.deletes, _MOVE: mix.moves}
    kinds = np.concatenate([np.full(round(count * share), kind) for kind, share in shares.items()])
    dice.shuffle(kinds)
    return kinds


def _made_to_live(kinds: np.ndarray, keys: np.ndarray) -> np.ndarray:
    """Return the kinds, with creates in place of the changes of rows that are gone."""
    order = np.lexsort((np.arange(len(keys)), keys))
    kind, key = kinds[order], keys[order]
    ends = np.isin(kind, (_DELETE, _MOVE))
    follows = np.concatenate([[False], key[1:] == key[:-1]])
    # Of deletes in a row the second is a create instead, the third a delete again, and so on.
    begins_run = ends & ~(follows & np.concatenate([[False], ends[:-1]]))
    places = np.arange(len(kind))
    first_of_run = np.maximum.accumulate(np.where(begins_run, places, -1))
    really_ends = ends & ((places - first_of_run) % 2 == 0)
    gone = follows & np.concatenate([[False], really_ends[:-1]])
    kind[(ends & ~really_ends) | (gone & ~ends)] = _CREATE
    result = np.empty_like(kind)
    result[order] = kind
    return result
