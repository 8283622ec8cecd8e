"""Files of an archive: a sink's, or whole records in JSON lines; cut, late, grown, twice."""

from __future__ import annotations

import gzip
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from tests.attack.features import Feature
from tests.attack.records import JUNK, Logged, Topic


@dataclass(frozen=True)
class File:
    """A file below the archive's root."""

    path: str
    records: Sequence[Logged]


class Archive:
    """What a sink made of a topic, so far. ``archived`` holds the numbers of the events whose files have come."""

    def __init__(self, seed: str, root: Path, topic: Topic, features: frozenset[Feature], *, has_keys: bool) -> None:
        self.random = Random(f"{seed} archive")
        self.root, self.topic, self.features = root, topic, features
        self.is_sink = Feature.SINK in features
        self.has_companions = self.is_sink and has_keys and Feature.NO_KEYS not in features
        self.by_partition = self.is_sink or Feature.LAGGING in features or self.random.random() < 0.4
        self.ending = self.random.choice(["", "", ".gz"])
        self.archived: set[int] = set()
        self._places: set[tuple[int, int]] = set()
        self.written: list[File] = []
        self.held_back: list[File] = []
        self.to_grow: list[File] = []
        self.sealed: list[File] = []
        self.has_grown = False
        self._read = 0
        self._number = 0

    @property
    def owes(self) -> bool:
        """Whether records of what has happened have still to come."""
        return bool(self.held_back or self.to_grow or self.sealed or self._read < len(self.topic.log))

    def events_of_half_copies(self) -> set[int]:
        """Return the numbers of the events that a restarted connector sent again, if some of their copies have come and some have not."""
        first_deliveries: dict[int, Logged] = {}
        has_come: dict[int, set[bool]] = defaultdict(set)
        for each in self.topic.log:
            if each.serial is not None and first_deliveries.setdefault(each.serial, each) is not each:
                has_come[each.transaction].add((each.partition, each.offset) in self._places)
        half = {transaction for transaction, found in has_come.items() if len(found) > 1}
        return {serial for serial, each in first_deliveries.items() if each.transaction in half}

    def flush(self, *, is_last: bool = False) -> None:
        """Make files of what the topic got, and let most of them come."""
        self.grow()
        late, self.held_back = self.held_back, []
        sealed, self.sealed = self.sealed, []
        new = [*sealed, *self.new_files(is_last=is_last)]
        coming = [*late, *(self._of_partitions_in_time(new) if Feature.LAGGING in self.features and not is_last else new)]
        if Feature.LATE in self.features:
            self.random.shuffle(coming)
        for file in coming:
            if not is_last and Feature.LATE in self.features and self.random.random() < 0.45:
                self.held_back.append(file)
            elif not is_last and Feature.GROWN in self.features and self.random.random() < 0.35:
                self.write_part(file)
            else:
                self.write(file)
        if self.written and Feature.AGAIN in self.features and self.random.random() < 0.5:
            self.copy(self.random.choice(self.written))

    def seal(self) -> None:
        """End files here: what comes next is in others, which come with these or without."""
        self.sealed += self.new_files()

    def new_files(self, *, is_last: bool = False) -> list[File]:
        """Return files of what the topic got, none of which has come; some records at the end may wait for the next ones."""
        return self._files(self._next_records(is_last=is_last))

    def _of_partitions_in_time(self, new: Sequence[File]) -> list[File]:
        """Return the files that come now; those of a partition that lags are held back with all that follow them."""
        waiting: dict[int, list[File]] = defaultdict(list)
        for file in new:
            waiting[file.records[0].partition].append(file)
        lagging = [partition for partition in sorted(waiting) if self.random.random() < 0.5]
        self.held_back += [file for partition in lagging for file in waiting[partition]]
        return [file for partition in sorted(waiting) if partition not in lagging for file in waiting[partition]]

    def write_part(self, file: File) -> None:
        """Let a file come that will grow."""
        self.write(File(file.path, file.records[: self.random.randrange(1, len(file.records) + 1)]))
        self.to_grow.append(file)

    def grow(self) -> None:
        """Let files grow to their whole length."""
        self.has_grown = bool(self.to_grow)
        for file in self.to_grow:
            self.write(file)
        self.to_grow = []

    def copy(self, file: File) -> None:
        """Let a file come again in another folder, whole or in part."""
        records = file.records
        if self.random.random() < 0.5:
            first = self.random.randrange(len(records))
            records = records[first : self.random.randrange(first, len(records)) + 1]
        self._number += 1
        self.write(File(f"again{self._number}/{self._path(records)}", records))

    def _next_records(self, *, is_last: bool) -> list[Logged]:
        """Return the records that no file has yet; with cut transactions some at the end wait."""
        records = self.topic.log[self._read :]
        if Feature.CUT in self.features and records and not is_last:
            records = records[: self.random.randrange(max(1, len(records) - 4), len(records) + 1)]
        self._read += len(records)
        return records

    def _files(self, records: Sequence[Logged]) -> list[File]:
        if not records:
            return []
        parts: dict[int, list[Logged]] = defaultdict(list)
        for record in records:
            parts[record.partition if self.by_partition else -1].append(record)
        files = []
        for part in parts.values():
            middle = self.random.randrange(len(part)) if self.random.random() < 0.4 else 0
            cut = middle if Feature.CUT in self.features else self._end_of_transaction(part, middle)
            files += [File(self._path(piece), piece) for piece in (part[:cut], part[cut:]) if piece]
        return files

    @staticmethod
    def _end_of_transaction(records: Sequence[Logged], place: int) -> int:
        while 0 < place < len(records) and records[place].transaction == records[place - 1].transaction:
            place += 1
        return place

    def _path(self, records: Sequence[Logged]) -> str:
        first = records[0]
        if self.is_sink:
            name = f"{self.topic.name}+{first.partition}+{first.offset:010d}.json{self.ending}"
            return f"topics/{self.topic.name}/partition={first.partition}/{name}"
        self._number += 1
        folder = f"p{first.partition}/" if self.by_partition else ""
        return f"{folder}{self._number:04d}.jsonl{self.ending}"

    def write(self, file: File) -> None:
        """Put a whole file in place at once, as sinks do; one that is there already is replaced."""
        records = [each for each in file.records if each.value is not None] if self.is_sink else file.records
        if not records:
            return
        lines = [each.value if self.is_sink or each.value == JUNK else each.record(self.topic.name) for each in records]
        if self.has_companions:
            self._put(file.path.replace(".json", ".keys.json"), [each.key for each in records])
        self._put(file.path, lines)
        self.archived |= {each.serial for each in records if each.serial is not None}
        self._places |= {(each.partition, each.offset) for each in records}
        self.written = [each for each in self.written if each.path != file.path] + [file]

    def _put(self, path: str, lines: Sequence[object]) -> None:
        text = "".join((JUNK if line == JUNK else json.dumps(line, ensure_ascii=False, separators=(",", ":"))) + "\n" for line in lines)
        data = text.encode("utf-8", "surrogatepass")
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        beside = place.with_name(f".{place.name}")
        beside.write_bytes(gzip.compress(data, 1) if path.endswith(".gz") else data)
        beside.replace(place)
