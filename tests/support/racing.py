"""Writers that commit one version of a table at one instant."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from deltalake import DeltaTable

from airflow_cdc.model.errors import ConcurrentRunError

Write = Callable[[DeltaTable, int, int], None]


def winners_of(writers: int, rounds: int, *, opened: Callable[[], DeltaTable], write: Write) -> list[int]:
    """Let writers commit to the version that all of them see, in each round; return who did, and check that it was one.

    :param opened: opens the table.
    :param write: commits to the table as a writer in a round, both counted from 0.
    """
    together = threading.Barrier(writers)
    with ThreadPoolExecutor(writers) as pool:
        results = list(pool.map(partial(_write_all, together, rounds, opened, write), range(writers)))
    winners = [[writer for writer in range(writers) if results[writer][number]] for number in range(rounds)]
    assert [len(each) for each in winners] == [1] * rounds
    return [winner for (winner,) in winners]


def _write_all(together: threading.Barrier, rounds: int, opened: Callable[[], DeltaTable], write: Write, writer: int) -> list[bool]:
    won = []
    for number in range(rounds):
        found = opened()
        together.wait()
        try:
            write(found, writer, number)
            won.append(True)
        except ConcurrentRunError:
            won.append(False)
        together.wait()
    return won
