"""The Kafka records of one simulated table."""

from __future__ import annotations

import copy
import json
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from tests.attack.columns import Column
from tests.attack.dialects import Json

TIMESTAMP = 1_700_000_000_000
JUNK = "{half a line"


@dataclass(frozen=True)
class Logged:
    """A record of the topic, and what it says of the source."""

    serial: int | None
    """Number of the event in the source's own order; None for a tombstone. Copies share it."""
    transaction: int
    partition: int
    offset: int
    key: Any
    value: Any

    def record(self, topic: str) -> Json:
        """Return the whole Kafka record."""
        place = {"topic": topic, "partition": self.partition, "offset": self.offset, "timestamp": TIMESTAMP}
        return {**place, "key": self.key, "value": self.value}


def envelope_fields(columns: Sequence[Column], name: str, source: Mapping[str, Any]) -> list[Json]:
    """Return the fields of the schema of Debezium's envelope."""
    image = {"type": "struct", "fields": [each.schema() for each in columns], "optional": True, "name": f"{name}.Value"}
    members = [
        {"type": "int64" if isinstance(value, int) else "string", "optional": True, "field": member} for member, value in source.items()
    ]
    return [
        {**image, "field": "before"},
        {**image, "field": "after"},
        {"type": "struct", "fields": members, "optional": False, "name": "io.debezium.connector.Source", "field": "source"},
        {"type": "string", "optional": False, "field": "op"},
        {"type": "int64", "optional": True, "field": "ts_ms"},
    ]


@dataclass
class Topic:
    """A topic: who writes to it knows neither files nor tables."""

    name: str
    partitions: int
    has_schemas: bool
    pick: Callable[[int], int]
    """Returns a partition of so many, for records without a key."""
    log: list[Logged] = field(default_factory=list)
    key_has_defaults: bool = False
    """Since the key's schema changed: its bytes hash to another partition."""
    _ends: Counter[int] = field(default_factory=Counter)

    def wrap(self, payload: Any, fields: list[Json], name: str) -> Any:
        if not self.has_schemas:
            return payload
        return {"schema": {"type": "struct", "fields": fields, "optional": False, "name": name}, "payload": payload}

    def key(self, columns: Sequence[Column], values: Sequence[Any]) -> Any:
        """Return a record's key."""
        defaults = [{"default": each.filler} if self.key_has_defaults else {} for each in columns]
        fields = [{**replace(each, is_optional=False).schema(), **default} for each, default in zip(columns, defaults, strict=True)]
        return self.wrap({each.name: each.json(value) for each, value in zip(columns, values, strict=True)}, fields, f"{self.name}.Key")

    def append(self, serial: int | None, transaction: int, key: Any, value: Any) -> None:
        """Write a record to the partition of its key."""
        if key is None:
            partition = self.pick(self.partitions)
        else:
            # Without a schema the key's bytes stay; but another version of the producer may hash them otherwise.
            partition = zlib.crc32(json.dumps([key, self.key_has_defaults]).encode()) % self.partitions
        self._place(Logged(serial, transaction, partition, 0, key, value))

    def send_again(self, count: int) -> None:
        """Write the last records again, as a restarted connector does."""
        for each in self.log[-count:] if count else []:
            value = copy.deepcopy(each.value)
            if isinstance(value, dict):
                (value["payload"] if self.has_schemas else value)["ts_ms"] += 60_000
            self._place(replace(each, value=value))

    def append_junk(self) -> None:
        """Write a record of which a sink's line breaks off."""
        self._place(Logged(None, 0, self.pick(self.partitions), 0, None, JUNK))

    def _place(self, logged: Logged) -> None:
        self.log.append(replace(logged, offset=self._ends[logged.partition]))
        self._ends[logged.partition] += 1
