"""What a history may hold. Each seed draws some; a history can be limited to fewer, without changing the rest of it."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from enum import Enum
from random import Random


class Feature(str, Enum):
    """Something that archives, sources or their keepers do."""

    WIDE_KEYS = "wide_keys"
    """Keys of type DECIMAL beyond 53 bits."""
    EDGE_KEYS = "edge_keys"
    """Keys of 38 digits, of times, of truth values."""
    EDGE_VALUES = "edge_values"
    """NaN and infinity, decimals of 38 digits, zoned times."""
    TWINS = "twins"
    """Rows that differ by NULL, 0, "" or false alone."""
    BARE = "bare"
    """No schemas: types come from the flows file."""
    SINK = "sink"
    """A sink's files of values, with companions that hold the keys."""
    NO_KEYS = "no_keys"
    """Of these, without companions: keys come from the flows file."""
    SCATTER = "scatter"
    """Records without a key: events of one row in any partition."""
    DECLARED = "declared"
    """Declared keys that are not the record's: an update may change them."""
    KEY_SCHEMA = "key_schema"
    """The key's schema changes, so its bytes hash to other partitions."""
    FILLERS = "fillers"
    """PostgreSQL's default identity: images before hold the key alone."""
    HANDED_ON = "handed_on"
    """Keys that rows swap or rotate within a transaction."""
    SNAPSHOT = "snapshot"
    """The topic begins with an initial snapshot."""
    READS_ABOVE = "reads_above"
    """The snapshot's reads have a position above that of changes which follow them (PostgreSQL)."""
    INCREMENTAL = "incremental"
    """Reads of incremental snapshots among the changes."""
    RESTART = "restart"
    """The connector sends a block again, with new offsets."""
    LATE = "late"
    """Files come after files that follow them."""
    LAGGING = "lagging"
    """Files of a partition come in their order, but long after those of others."""
    AGAIN = "again"
    """Files, or parts of them, come again in another folder."""
    GROWN = "grown"
    """A file grows after it was applied."""
    CUT = "cut"
    """Files end inside of transactions."""
    EQUAL_POSITIONS = "equal_positions"
    """Changes of one transaction share a position."""
    UNITS = "units"
    """A column of times changes its unit."""
    NEW_COLUMN = "new_column"
    """A column is added."""
    TRUNCATE = "truncate"
    """The table is emptied."""
    FLAG = "flag"
    """The table flags deletes."""
    MARKED = "marked"
    """Rows of the table are marked by deletion vectors, as in large tables."""
    SMALL_BATCHES = "small_batches"
    """A run takes several microbatches."""
    JUNK = "junk"
    """Some lines break off: their records are in the quarantine, and a replay reads their files again."""
    CRASH = "crash"
    """A run ends after one of its effects."""
    OPTIMIZE = "optimize"
    """Somebody compacts the table."""
    REPAIR = "repair"
    """Parts of the archive are read again: reprocess, replay, rebuild."""
    EXPIRE = "expire"
    """Delete markers expire."""


_CHANCES = {
    **dict.fromkeys(Feature, 0.25),
    Feature.CUT: 0.5,
    Feature.SNAPSHOT: 0.4,
    Feature.LATE: 0.3,
    Feature.SINK: 0.4,
    Feature.NO_KEYS: 0.4,
    Feature.HANDED_ON: 0.3,
    Feature.TWINS: 0.4,
    Feature.LAGGING: 0.2,
    Feature.READS_ABOVE: 0.15,
    Feature.EDGE_KEYS: 0.05,
    Feature.EDGE_VALUES: 0.08,
    Feature.FILLERS: 0.2,
    Feature.EQUAL_POSITIONS: 0.15,
    Feature.UNITS: 0.15,
    Feature.NEW_COLUMN: 0.08,
    Feature.TRUNCATE: 0.03,
    Feature.JUNK: 0.03,
    Feature.AGAIN: 0.12,
    Feature.GROWN: 0.12,
    Feature.CRASH: 0.12,
    Feature.REPAIR: 0.15,
    Feature.EXPIRE: 0.08,
    Feature.SMALL_BATCHES: 0.15,
}
_EXCLUDED_BY = {
    # Without an order in one partition, nothing tells which of two changes with one position came last.
    Feature.EQUAL_POSITIONS: {Feature.SCATTER, Feature.DECLARED, Feature.KEY_SCHEMA},
    # In another partition, a position above that of the change is all that there is of such a read.
    # Nor do the positions and times of reads that a file gains later prove that they are of the same topic: the flow stops, and asks.
    Feature.READS_ABOVE: {Feature.SCATTER, Feature.DECLARED, Feature.KEY_SCHEMA, Feature.GROWN},
    # Nothing in such events shows what an update's or a delete's declared key was.
    Feature.FILLERS: {Feature.SCATTER, Feature.DECLARED},
    # A schema is in no record.
    Feature.UNITS: {Feature.BARE},
    Feature.NEW_COLUMN: {Feature.BARE},
    # Tables that keep history are rebuilt, and not read again in place.
    Feature.REPAIR: {Feature.FLAG},
    # An event that comes again behind the marker of its row's delete may bring the row back, as documented.
    Feature.EXPIRE: {Feature.AGAIN, Feature.RESTART},
}
OF_SOURCE = frozenset(
    {
        *(
            Feature.WIDE_KEYS,
            Feature.TWINS,
            Feature.BARE,
            Feature.SINK,
            Feature.NO_KEYS,
            Feature.SCATTER,
            Feature.DECLARED,
            Feature.KEY_SCHEMA,
        ),
        *(Feature.FILLERS, Feature.HANDED_ON, Feature.SNAPSHOT, Feature.CUT, Feature.EQUAL_POSITIONS, Feature.UNITS),
        *(Feature.FLAG, Feature.MARKED, Feature.SMALL_BATCHES),
    }
)
"""What a source, its layout and its flow are, other than what happens to them; of these the native engine takes all."""


def draw(seed: int, allowed: Iterable[Feature]) -> frozenset[Feature]:
    """Return the features of a history."""
    r = Random(f"{seed} features")
    return compatible({feature for feature in Feature if r.random() < _CHANCES[feature]} & set(allowed))


def compatible(features: Collection[Feature]) -> frozenset[Feature]:
    """Return features without those that others exclude."""
    return frozenset(feature for feature in features if not _EXCLUDED_BY.get(feature, set()) & set(features))
