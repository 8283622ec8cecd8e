"""What keeping the last event per key gets wrong, and how much: histories as data."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.events import Record
from tests.support.hazard_events import PLACEHOLDER, Hazard, Row, event, filler, read, row

_BEHIND_READS = (
    event("u", 60, row(1, "newer"), commit=58, offset=5),
    event("d", 61, row(2, "read"), commit=58, offset=6),
    event("u", 64, row(3, "newer"), commit=63, offset=7),
    event("d", 65, row(4, "read"), commit=64, offset=8),
)

HAZARDS = {
    "a create and, in the next batch, the delete of the row it took the key from": Hazard(
        [
            [read(10, row(2, "old"), offset=0)],
            [event("c", 21, row(2, "new"), commit=20, offset=1)],
            [event("d", 22, filler(2), commit=20, offset=2)],
        ],
        [row(2, "new")],
    ),
    "the same, the later file first": Hazard(
        [
            [read(10, row(2, "old"), offset=0)],
            [event("d", 22, filler(2), commit=20, offset=2)],
            [event("c", 21, row(2, "new"), commit=20, offset=1)],
        ],
        [row(2, "new")],
    ),
    "born in one batch and gone in the next": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("c", 21, row(5, "brief"), commit=20, offset=1)],
            [event("d", 22, filler(5), commit=20, offset=2)],
        ],
        [row(1, "other")],
    ),
    "gone in one batch, born in a later one that was archived before": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("d", 22, filler(5), commit=20, offset=2)],
            [event("c", 21, row(5, "brief"), commit=20, offset=1)],
        ],
        [row(1, "other")],
    ),
    "a second row under a key for the length of a transaction": Hazard(
        [
            [read(10, row(1, "lives"), offset=0)],
            [event("c", 21, row(1, "brief"), commit=20, offset=1)],
            [event("d", 22, row(1, "brief"), commit=20, offset=2)],
        ],
        [row(1, "lives")],
    ),
    "a row that took its key from one whose create comes later": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("c", 21, row(5, "taker"), commit=20, offset=2), event("d", 22, filler(5), commit=20, offset=3)],
            [event("c", 15, row(5, "first"), commit=14, offset=1)],
        ],
        [row(1, "other"), row(5, "taker")],
    ),
    "the same, the earlier events in two batches, the first of another row": Hazard(
        [
            [
                read(10, row(1, "other"), offset=0),
                event("c", 31, row(5, "taker"), commit=30, offset=4),
                event("d", 32, filler(5), commit=30, offset=5),
            ],
            [event("c", 15, row(5, "first"), commit=14, offset=1), event("d", 17, filler(5), commit=16, offset=2)],
            [event("c", 20, row(5, "second"), commit=19, offset=3)],
        ],
        [row(1, "other"), row(5, "taker")],
    ),
    "born and gone, and the file of its birth once more": Hazard(
        [
            [read(10, row(1, "lives"), offset=0)],
            [
                event("c", 21, row(1, "brief"), commit=20, offset=1),
                event("d", 22, row(1, "brief"), commit=20, offset=2),
                event("c", 23, row(5, "brief"), commit=20, offset=3),
                event("d", 24, row(5, "brief"), commit=20, offset=4),
            ],
            [event("c", 21, row(1, "brief"), commit=20, offset=1), event("c", 23, row(5, "brief"), commit=20, offset=3)],
        ],
        [row(1, "lives")],
    ),
    "a row whose create comes later than one that was born and gone beside it": Hazard(
        [
            [read(10, row(1, "other"), offset=0)],
            [event("c", 21, row(5, "brief"), commit=20, offset=2), event("d", 22, row(5, "brief"), commit=20, offset=3)],
            [event("c", 15, row(5, "lives"), commit=14, offset=1)],
        ],
        [row(1, "other"), row(5, "lives")],
    ),
    "a value that a key change left out, in the table": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [event("d", 31, filler(1), commit=30, offset=1), event("c", 31, row(7, PLACEHOLDER), commit=30, offset=2)],
        ],
        [row(7, "long")],
        pain="apache/seatunnel#10512",
    ),
    "a value that a key change left out, before it in the batch": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [
                event("u", 30, row(1, "longer"), commit=29, offset=1),
                event("d", 32, filler(1), commit=31, offset=2),
                event("c", 32, row(7, PLACEHOLDER), commit=31, offset=3),
            ],
        ],
        [row(7, "longer")],
    ),
    "a value that two key changes left out": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [
                event("d", 31, filler(1), commit=30, offset=1),
                event("c", 31, row(7, PLACEHOLDER), commit=30, offset=2),
                event("d", 32, filler(7), commit=30, offset=3),
                event("c", 32, row(8, PLACEHOLDER), commit=30, offset=4),
            ],
        ],
        [row(8, "long")],
    ),
    "two rows that swap keys and leave their values out": Hazard(
        [
            [read(10, row(1, "one"), offset=0), read(10, row(2, "two"), offset=1)],
            [
                event("d", 31, filler(1), commit=30, offset=2),
                event("c", 31, row(2, PLACEHOLDER), commit=30, offset=3),
                event("d", 32, filler(2), commit=30, offset=4),
                event("c", 32, row(1, PLACEHOLDER), commit=30, offset=5),
            ],
        ],
        [row(1, "two"), row(2, "one")],
    ),
    "a value that a key change left out, whose delete came a batch before": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [event("u", 30, row(1, "longer"), commit=29, offset=1), event("d", 32, filler(1), commit=31, offset=2)],
            [event("c", 32, row(7, PLACEHOLDER), commit=31, offset=3)],
        ],
        [row(7, "longer")],
    ),
    "a value that a key change left out, whose delete comes a batch later": Hazard(
        [
            [read(10, row(1, "long"), offset=0)],
            [event("c", 32, row(7, PLACEHOLDER), commit=31, offset=0, partition=1)],
            [event("u", 30, row(1, "longer"), commit=29, offset=1), event("d", 32, filler(1), commit=31, offset=2)],
        ],
        [row(7, "longer")],
        unresolved=1,
    ),
    "a value that is nowhere to be had": Hazard(
        [[read(10, row(1, "long"), offset=0)], [event("c", 31, row(9, PLACEHOLDER), commit=30, offset=1)]],
        [row(1, "long"), row(9, None)],
        unresolved=1,
        pain="apache/hudi#19748",
    ),
    "a value that an update left out, in its before image and in no other event": Hazard(
        [[event("u", 31, row(1, PLACEHOLDER, price=2), row(1, "long", price=1), commit=30, offset=0)]],
        [row(1, "long", price=2)],
    ),
    "a value that an update left out, whose before image holds the key alone": Hazard(
        [[event("u", 31, row(1, PLACEHOLDER, price=2), row(1, ""), commit=30, offset=0)]],
        [row(1, None, price=2)],
        unresolved=1,
    ),
    "the older of two rows under a key is changed, and then leaves it": Hazard(
        [
            [read(10, row(3, "long", price=1), offset=0)],
            [
                event("c", 31, row(3, "new", price=2), commit=30, offset=1),
                event("u", 32, row(3, PLACEHOLDER, price=7), commit=30, offset=2),
                event("d", 33, filler(3), commit=30, offset=3),
                event("c", 33, row(1, PLACEHOLDER, price=7), commit=30, offset=4),
            ],
        ],
        [row(1, "long", price=7), row(3, "new", price=2)],
    ),
    "late events fill what the newest left out, the newer of them last or not": Hazard(
        [
            [read(10, row(1, "ten", price=1), offset=0), event("u", 50, row(1, PLACEHOLDER, price=5), commit=49, offset=4)],
            [event("u", 40, row(1, "forty", price=4), commit=39, offset=3)],
            [event("u", 30, row(1, "thirty", price=3), commit=29, offset=2)],
        ],
        [row(1, "forty", price=5)],
    ),
    "a value in an earlier batch, between the two events of a later one": Hazard(
        [
            [event("u", 20, row(1, "between", price=2), commit=19, offset=1)],
            [read(10, row(1, "first", price=1), offset=0), event("u", 30, row(1, PLACEHOLDER, price=5), commit=29, offset=2)],
        ],
        [row(1, "between", price=5)],
    ),
    "a snapshot read whose position lies above events archived after it": Hazard(
        [
            [
                read(100, row(1, "read"), offset=0),
                read(100, row(2, "read"), offset=1),
                event("u", 60, row(2, "newer"), commit=50, offset=2),
            ],
            [event("u", 61, row(1, "newer"), commit=50, offset=3)],
            [event("r", 58, row(1, "newer still"), commit=57, offset=4, snapshot="incremental")],
        ],
        [row(1, "newer still"), row(2, "newer")],
        pain="memiiso/debezium-server-iceberg#544",
    ),
    "a read and the change behind it, sent again by a connector that crashed": Hazard(
        [
            [
                read(58, row(1, "read"), offset=1, snapshot="incremental"),
                event("u", 60, row(1, "newer"), commit=59, offset=2),
                read(58, row(1, "read"), offset=3, snapshot="incremental"),
                event("u", 60, row(1, "newer"), commit=59, offset=4),
            ],
            [read(58, row(1, "read"), offset=5, snapshot="incremental"), event("u", 60, row(1, "newer"), commit=59, offset=6)],
            [read(58, row(1, "read"), offset=7, snapshot="incremental")],
        ],
        [row(1, "newer")],
        pain="MaterializeInc/materialize#14211",
    ),
    "a read sent again between two deliveries of the change behind it, the first read in an earlier batch": Hazard(
        [
            [
                read(58, row(1, "read"), offset=1, snapshot="incremental"),
                read(58, row(2, "read"), offset=2, snapshot="incremental"),
                read(99, row(3, "read"), offset=3),
                read(58, row(4, "read"), offset=4, snapshot="incremental"),
            ],
            [
                *_BEHIND_READS,
                read(58, row(1, "read"), offset=9, snapshot="incremental"),
                read(58, row(2, "read"), offset=10, snapshot="incremental"),
                read(99, row(3, "read"), offset=11),
                read(58, row(4, "read"), offset=12, snapshot="incremental"),
                *({**each, "offset": each["offset"] + 8} for each in _BEHIND_READS),
            ],
        ],
        [row(1, "newer"), row(3, "newer")],
    ),
    "a read sent again behind the delete, and no more": Hazard(
        [
            [read(58, row(1, "read"), offset=1), read(58, row(2, "read"), offset=2)],
            [event("d", 62, row(1, "read"), commit=61, offset=3), read(58, row(1, "read"), offset=4)],
        ],
        [row(2, "read")],
    ),
    "a second whole snapshot, without the rows that vanished between": Hazard(
        [
            [read(10, row(key, "first"), offset=key, snapshot="last" if key == 3 else "true") for key in (1, 2, 3)],
            [
                event("c", 30, row(9, "gone unseen"), commit=29, offset=4),
                read(50, row(1, "second"), offset=5, snapshot="first"),
                read(50, row(3, "second"), offset=6, snapshot="last"),
                event("c", 56, row(4, "after"), commit=55, offset=7),
            ],
        ],
        [row(1, "second"), row(3, "second"), row(4, "after")],
    ),
    "a second snapshot that was not finished": Hazard(
        [
            [read(10, row(key, "first"), offset=key, snapshot="last" if key == 3 else "true") for key in (1, 2, 3)],
            [read(50, row(1, "second"), offset=5, snapshot="first")],
        ],
        [row(1, "second"), row(2, "first"), row(3, "first")],
    ),
    "a column that an older schema does not have": Hazard(
        [
            [read(10, row(1, "one", x=5), offset=0)],
            [event("u", 40, row(1, "two"), commit=39, offset=1), event("c", 41, row(2, "new", x=7), commit=40, offset=2)],
        ],
        [row(1, "two", x=5), row(2, "new", x=7)],
        pain="Altinity/clickhouse-sink-connector#1395",
    ),
    "deleted and inserted again in one transaction": Hazard(
        [
            [read(10, row(1, "old"), offset=0), read(10, row(2, "old"), offset=1)],
            [
                event("d", 21, filler(1), commit=20, offset=2),
                event("c", 22, row(1, "new"), commit=20, offset=3),
                event("d", 23, filler(2), commit=20, offset=4),
            ],
            [event("c", 24, row(2, "new"), commit=20, offset=5)],
        ],
        [row(1, "new"), row(2, "new")],
        pain="Altinity/clickhouse-sink-connector#1346",
    ),
    "an old file once more, and one whose first records another held": Hazard(
        [
            [
                event("c", 11, row(1, "one"), commit=10, offset=0),
                event("c", 12, row(2, "one"), commit=10, offset=1),
                event("u", 21, row(1, "two"), commit=20, offset=2),
                event("d", 22, filler(2), commit=20, offset=3),
            ],
            [event("c", 11, row(1, "one"), commit=10, offset=0), event("c", 12, row(2, "one"), commit=10, offset=1)],
            [event("d", 22, filler(2), commit=20, offset=3), event("c", 31, row(3, "three"), commit=30, offset=4)],
        ],
        [row(1, "two"), row(3, "three")],
        pain="bruin-data/ingestr#1007, confluentinc/kafka-connect-storage-cloud#341",
    ),
    "two changes of a row that the log places at one commit": Hazard(
        [
            [read(10, row(1, "old"), offset=0)],
            [event("u", 21, row(1, "first"), commit=20, offset=1), event("u", 22, row(1, "second"), commit=20, offset=2)],
            [event("u", 23, row(1, "third"), commit=20, offset=3)],
        ],
        [row(1, "third")],
        pain="PostHog/posthog#82568",
    ),
    "a key changed, and the row's next change comes first": Hazard(
        [
            [read(10, row(1, "old"), offset=0)],
            [event("u", 31, row(8, "changed"), commit=30, offset=0, partition=1)],
            [event("c", 21, row(8, "old"), commit=20, offset=2), event("d", 21, filler(1), commit=20, offset=1)],
        ],
        [row(8, "changed")],
        pain="MaterializeInc/materialize#6553",
    ),
    "a column renamed, and events of the old schema behind": Hazard(
        [
            [read(10, row(1, "one", amount=1), offset=0)],
            [event("u", 30, row(1, "two", total=2), commit=29, offset=2)],
            [event("u", 20, row(1, "between", amount=3), commit=19, offset=1)],
        ],
        [row(1, "two", amount=1, total=2)],
        pain="Altinity/clickhouse-sink-connector#1395",
    ),
    "a row that came and went, and with it the old file whose row was deleted in between": Hazard(
        [
            [read(10, row(2, "old"), offset=0)],
            [event("d", 21, filler(2), commit=20, offset=1)],
            [
                read(10, row(2, "old"), offset=0),
                event("c", 31, row(2, "brief"), commit=30, offset=2),
                event("d", 32, filler(2), commit=30, offset=3),
            ],
        ],
        [],
    ),
    "an update without its large value, and later the delete of the row that had the key before": Hazard(
        [
            [
                event("c", 11, row(5, "of the first", price=1), commit=10, offset=0),
                event("c", 31, row(5, "its own", price=1), commit=30, offset=2),
                event("u", 32, row(5, PLACEHOLDER, price=2), commit=30, offset=3),
            ],
            [event("d", 21, filler(5), commit=20, offset=1)],
        ],
        [row(5, "its own", price=2)],
    ),
    "an update without its large value, of the second row that a transaction put under its key": Hazard(
        [
            [
                event("c", 21, row(3, "goes on", price=1), commit=20, offset=0),
                event("c", 22, row(3, "its own", price=1), commit=20, offset=1),
                event("d", 23, filler(3), commit=20, offset=2),
                event("u", 24, row(3, PLACEHOLDER, price=2), commit=20, offset=3),
            ],
        ],
        [row(3, "its own", price=2)],
    ),
}


THREE = [row(1, "a"), row(2, "b"), row(3, "c")]
HANDED_ON: dict[str, tuple[Sequence[tuple[Row, int]], Sequence[Row]]] = {
    "shift up, lowest first": (((THREE[0], 2), (THREE[1], 3), (THREE[2], 4)), [row(2, "a"), row(3, "b"), row(4, "c")]),
    "shift down, highest first": (((THREE[2], 2), (THREE[1], 1), (THREE[0], 0)), [row(0, "a"), row(1, "b"), row(2, "c")]),
    "rotation": (((THREE[0], 2), (THREE[1], 3), (THREE[2], 1)), [row(1, "c"), row(2, "a"), row(3, "b")]),
    "through a temporary key": (((THREE[0], 9), (THREE[1], 1), (row(9, "a"), 2)), [row(1, "b"), row(2, "a"), row(3, "c")]),
    "there and back": (((THREE[0], 9), (row(9, "a"), 1)), THREE),
}
"""By name: which row gets which key, in turn and in one transaction; and the rows then."""


def _handed_on(steps: Sequence[tuple[Row, int]]) -> tuple[list[Record], list[Record]]:
    """Return the snapshot of three rows, and the transaction as PostgreSQL logs it with REPLICA IDENTITY FULL."""
    changes = []
    for place, (before, to) in enumerate(steps, start=1):
        changes.append(event("d", 20 + place, before, commit=20, offset=1 + 2 * place))
        changes.append(event("c", 20 + place, {**before, "id": to}, commit=20, offset=2 + 2 * place))
    return [read(10, image, offset=place) for place, image in enumerate(THREE)], changes


for name, (steps, rows) in HANDED_ON.items():
    reads, changes = _handed_on(steps)
    HAZARDS[f"{name}, all in one batch"] = Hazard([[*reads, *changes]], rows, pain="MaterializeInc/materialize#6553")
    HAZARDS[f"{name}, the rows in the table"] = Hazard([reads, changes], rows)
