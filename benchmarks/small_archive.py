"""An archive of small tables that grows by a batch of each table a round, whole and as that of its first table alone."""

from __future__ import annotations

import os
from pathlib import Path

from benchmarks.small_events import Source

ROWS, EVENTS = 10_000, 1_000


class SmallArchive:
    """Tables of 10,000 rows, 1,000 events each a round."""

    def __init__(self, folder: Path, *, tables: int, seed: int = 0) -> None:
        folder = folder.absolute()
        self.whole = folder / "archive"
        """The archive of all tables."""
        self.first = folder / "archive-of-the-first"
        """The archive of the first table."""
        self.sources = [Source(f"bench.public.t{number:03d}", seed=seed + number) for number in range(tables)]
        self._rows = folder / "rows"

    def write(self, number: int) -> None:
        """Write the batches of a round; those of round 0 are the snapshots."""
        for source in self.sources:
            if number:
                source.change(self.file(source, number), EVENTS, range(ROWS))
            else:
                source.read(self.file(source, number), range(ROWS))
        written = self.file(self.sources[0], number)
        linked = self.first / written.relative_to(self.whole)
        linked.parent.mkdir(parents=True, exist_ok=True)
        os.link(written, linked)

    def file(self, source: Source, number: int) -> Path:
        """Return where a table's batch of a round is."""
        return self.whole / source.topic / f"{number:03d}.jsonl"

    def rows(self, source: Source) -> Path:
        """Write a table's rows as they have to be now; return where."""
        return source.write_rows(self._rows / f"{source.topic}.jsonl")
