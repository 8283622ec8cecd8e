"""A key's row versions, folded in Python as Spark folds them: random events of many keys, and the cases that the rules name."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from decimal import Decimal

import pytest
from pyspark.sql import SparkSession

from airflow_cdc.model.columns import (
    ABSENT,
    COMMITTED_AT,
    OFFSET,
    OLD_KEY,
    OP,
    OP_IF_ABSENT,
    PARTITION,
    POSITION,
    TRANSACTION,
    UNAVAILABLE,
    VALUE_POSITIONS,
)
from airflow_cdc.model.operation import KEEP
from airflow_cdc.model.position.lives import LANES
from airflow_cdc.pipeline.apply.native.row_versions import Image, KeyEvent, Special, fold_versions
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE, ORDINAL_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.decode.fillers import HASH_OF_NULL
from airflow_cdc.pipeline.reconcile.fold_row_versions import fold_row_versions
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH, REDELIVERED
from airflow_cdc.pipeline.reconcile.order_events import ORDER

VALUES = (Special.NULL, Special.NOT_CARRIED, "", "0", "x", "y")
FILLERS = (Special.NULL, "0", "", "false", "1970-01-01T00:00:00Z", "x")
"""Values of whole images: all but the last are what an image shows too of a column that it does not carry."""


def an_event(chance: random.Random, number: int, transaction: str | None, *, images: Sequence[Image]) -> KeyEvent:
    op = chance.choice("ccuuddr") if chance.random() < 0.9 else "d"
    before = chance.choice([None, *images]) if op in "ud" else None
    return KeyEvent(
        event=number,
        op=op,
        transaction=transaction,
        place=(number // 8, number, 0),
        partition=chance.choice([0, 0, 0, 1, LANES]),
        offset=chance.choice([number, number, None]),
        before=before,
        after=None if op == "d" else chance.choice([None, *images]),
    )


def a_history(chance: random.Random) -> list[KeyEvent]:
    """Return a key's events in order: transactions of up to four, some of them sent again."""
    images = [(chance.choice(VALUES), chance.choice(VALUES)) for _ in range(4)]
    events: list[KeyEvent] = []
    number = 8
    for _ in range(chance.randint(1, 4)):
        number += 8
        for _ in range(chance.randint(1, 4)):
            number += 1
            event = an_event(chance, number, chance.choice([None, *[str(number // 8)] * 7]), images=images)
            events += [replace(event, offset=event.offset and event.offset + copy) for copy in range(chance.choice([1, 1, 1, 1, 2]))]
    return events


def _texts(image: Image | None) -> list[str | None] | None:
    """Return an image as texts: of NULL ``NULL``, and None of what is not carried."""
    return (
        None
        if image is None
        else [value if isinstance(value, str) else {Special.NULL: "NULL", Special.NOT_CARRIED: None}[value] for value in image]
    )


def in_spark(spark: SparkSession, histories: Sequence[Sequence[KeyEvent]], *, keeps_deleted: bool) -> dict[int, dict[str, object]]:
    """Return by key what Spark's fold leaves; ``v`` is the number of the event whose row it is."""
    left_out = f"if({OP} = 'd', array('v'), NULL)" if keeps_deleted else "CAST(NULL AS ARRAY<STRING>)"
    place = f"position {POSITION_TYPE}, read INT, tie INT, ordinal {ORDINAL_TYPE}"
    images = f"{BEFORE} ARRAY<STRING>, {AFTER} ARRAY<STRING>"
    schema = f"id INT, v INT, {OP} STRING, {TRANSACTION} STRING, {PARTITION} INT, {OFFSET} BIGINT, {images}, {ORDER} STRUCT<{place}>"
    rows = [
        (
            key,
            event.event,
            event.op,
            event.transaction,
            event.partition,
            event.offset,
            _texts(event.before),
            _texts(event.after),
            ((*map(Decimal, event.place[:2]), event.place[2]), int(event.op == "r"), 0, (None, None, None, 0, place)),
        )
        for key, events in enumerate(histories)
        for place, event in enumerate(events)
    ]
    hashed = {
        name: f"CAST(transform({name}, text -> if(text = 'NULL', {HASH_OF_NULL}, if(text IS NULL, NULL, xxhash64(text)))) AS ARRAY<BIGINT>)"
        for name in (BEFORE, AFTER)
    }
    events = spark.createDataFrame(rows, schema).selectExpr(
        "id",
        "v",
        *(
            f"{ORDER if name == POSITION else name}{'.position' if name == POSITION else ''} AS {name}"
            for name in (POSITION, OP, TRANSACTION)
        ),
        *(PARTITION, OFFSET, ORDER),
        *(f"{value} AS {name}" for name, value in hashed.items()),
        f"CAST(NULL AS TIMESTAMP) AS {COMMITTED_AT}",
        f"{left_out} AS {UNAVAILABLE}",
        f"CAST(NULL AS ARRAY<STRING>) AS {ABSENT}",
        f"CAST(NULL AS STRING) AS {OLD_KEY}",
    )
    folded = fold_row_versions(events, ["id"], ["id", "v"], keeps_deleted=keeps_deleted, change_restarts=False).selectExpr(
        *("id", "v", OP, OP_IF_ABSENT, OFFSET, f"{REDELIVERED} AS copies", f"{REACH}.began.change AS began"),
        *(f"{REACH}.{name}" for name in ("depends", "first_offset", "last_offset", "expects", "deletes", "writes")),
        f"{UNAVAILABLE} = array('v') AS asks_target",
        f"{VALUE_POSITIONS}[0].position.change AS value_from",
        f"transform({REACH}.passed, each -> array(each.began.change, each.position.change)) AS passed",
    )
    return {row["id"]: row.asDict() for row in folded.collect()}


def in_python(key: int, events: Sequence[KeyEvent], *, keeps_deleted: bool) -> dict[str, object]:
    fold = fold_versions(events, keeps_deleted=keeps_deleted)
    numbered = {event.event: event for event in reversed(events)}
    return {
        "id": key,
        "v": fold.survivor,
        OP: fold.op,
        OP_IF_ABSENT: fold.op_if_absent,
        OFFSET: numbered[fold.last].offset,
        "began": fold.began,
        "asks_target": True if fold.dies and fold.survivor is None else None,
        "value_from": fold.survivor if fold.dies else None,
        "passed": [list(stretch) for stretch in fold.passed] if fold.depends else None,
        **{name: getattr(fold, name) for name in ("copies", "depends", "first_offset", "last_offset", "expects", "deletes", "writes")},
    }


@pytest.mark.parametrize("keeps_deleted", [False, True])
def test_python_folds_the_versions_of_random_histories_as_spark(keeps_deleted: bool, spark: SparkSession) -> None:
    chance = random.Random(17)
    histories = [a_history(chance) for _ in range(4_000)]
    found = in_spark(spark, histories, keeps_deleted=keeps_deleted)
    assert len(found) == len(histories)
    folded = {key: in_python(key, events, keeps_deleted=keeps_deleted) for key, events in enumerate(histories)}
    different = {key: (events, found[key], folded[key]) for key, events in enumerate(histories) if found[key] != folded[key]}
    assert not different, (len(different), next(iter(different.values())))
    outcomes = {(row[OP], row[OP_IF_ABSENT]) for row in found.values()}
    assert {("d", "d"), ("c", "d"), (KEEP, "d"), ("u", "u")} <= outcomes
    assert sum(bool(row["depends"]) for row in found.values()) > 100
    assert (sum(bool(row["asks_target"]) for row in found.values()) > 100) == keeps_deleted
    assert (sum(bool(row["value_from"]) for row in found.values()) > 100) == keeps_deleted


def event(number: int, op: str, before: Image | None = None, after: Image | None = None, *, transaction: str = "1") -> KeyEvent:
    return KeyEvent(event=number, op=op, transaction=transaction, place=number, partition=0, offset=number, before=before, after=after)


@pytest.mark.parametrize(
    ("events", "op", "op_if_absent", "survivor"),
    [
        ([event(1, "c", after=("new",)), event(2, "d", None)], "c", "d", 1),
        ([event(1, "c", after=("new",)), event(2, "d", ("new",))], KEEP, "d", None),
        ([event(1, "c", after=("new",)), event(2, "d", ("old",))], "c", "d", 1),
        ([event(1, "c", after=("new",)), event(2, "d", ("new",), transaction="2")], "d", "d", None),
        ([event(1, "c", after=("same", Special.NULL)), event(2, "d", ("same", "A"))], "c", "d", 1),
        ([event(1, "c", after=("same", "A")), event(2, "d", ("same", Special.NULL))], "c", "d", 1),
        ([event(1, "c", after=("same", "5")), event(2, "d", ("same", "0"))], "c", "d", 1),
        ([event(1, "c", after=(Special.NULL,)), event(2, "d", (Special.NULL,))], KEEP, "d", None),
        ([event(1, "c", after=("same", "large")), event(2, "d", ("same", Special.NOT_CARRIED))], KEEP, "d", None),
        ([event(1, "c", after=("new", "large")), event(2, "d", ("old", Special.NOT_CARRIED))], "c", "d", 1),
        ([event(1, "c", after=("large",)), event(2, "d", (Special.NOT_CARRIED,))], "c", "d", 1),
        ([event(1, "c", after=("new",)), event(2, "u", ("old",), ("renamed",)), event(3, "d", ("renamed",))], "c", "d", 1),
        ([event(1, "u", ("old",), ("renamed",))], "u", "u", 1),
    ],
    ids=[
        "only the key",
        "the new row",
        "another row",
        "another transaction",
        "a row that differs by NULL",
        "a row that differs from NULL",
        "a row that differs by zero",
        "a row of NULLs",
        "a row whose large value is not shown",
        "another row whose large value is not shown",
        "no value is shown",
        "a row that was updated beside the new one",
        "no delete",
    ],
)
def test_a_delete_is_about_the_row_of_its_image(events: list[KeyEvent], op: str, op_if_absent: str, survivor: int | None) -> None:
    fold = fold_versions(events)
    assert (fold.op, fold.op_if_absent, fold.survivor) == (op, op_if_absent, survivor)


Rows = dict[int, list[Image]]
"""The rows under each key: several for the length of a transaction."""


def a_load(chance: random.Random) -> tuple[Rows, dict[int, list[KeyEvent]], Rows]:
    """Return rows by key, the events by key of transactions that hand keys on as a deferred constraint lets them, and the rows behind."""
    rows: Rows = {key: [(chance.choice(FILLERS), chance.choice(FILLERS))] for key in range(chance.randint(1, 4))}
    begun = {key: list(found) for key, found in rows.items()}
    events: dict[int, list[KeyEvent]] = {}
    number = 0

    def log(op: str, key: int, transaction: int, *, before: Image | None = None, after: Image | None = None) -> None:
        nonlocal number
        number += 1
        position = (transaction, number, 0)
        found = KeyEvent(
            event=number, op=op, transaction=str(transaction), place=position, partition=0, offset=number, before=before, after=after
        )
        events.setdefault(key, []).append(found)

    for transaction in range(chance.randint(1, 3)):
        crowded = True
        while crowded:
            occupied = [key for key, found in rows.items() if found]
            key = chance.choice([key for key in occupied if len(rows[key]) > 1] or occupied or [0])
            row = chance.choice(rows.get(key) or [None])
            choice = "create" if row is None else chance.choice(["move", "move", "move", "delete", "update", "create"])
            if choice in ("move", "delete") and row is not None:
                rows[key].remove(row)
                log("d", key, transaction, before=row)
            if choice == "update" and row is not None and len(rows[key]) == 1:
                rows[key] = [(chance.choice(FILLERS), chance.choice(FILLERS))]
                log("u", key, transaction, before=row, after=rows[key][0])
            if choice in ("move", "create"):
                goal = chance.randrange(4)
                came = row if choice == "move" and row is not None else (chance.choice(FILLERS), chance.choice(FILLERS))
                rows.setdefault(goal, []).append(came)
                log("c", goal, transaction, after=came)
            crowded = any(len(found) > 1 for found in rows.values()) or chance.random() < 0.5
    return begun, events, rows


def left_by(fold: dict[str, object], events: Sequence[KeyEvent], own: Sequence[Image]) -> list[Image]:
    """Return the rows under a key that a fold leaves, where these were there before."""
    op = fold[OP] if own else fold[OP_IF_ABSENT]
    if op == KEEP:
        return list(own)
    after = {event.event: event.after for event in events}
    found = after[int(str(fold["v"]))] if op != "d" else None
    return [found] if found is not None else []


History = tuple[list[Image], list[KeyEvent], list[Image]]
"""Of a key: its rows before, its events, and its rows after them."""


def histories_of_loads(count: int) -> list[History]:
    chance = random.Random(50)
    loads = [a_load(chance) for _ in range(count)]
    return [(begun.get(key, []), events, rows.get(key, [])) for begun, by_key, rows in loads for key, events in by_key.items()]


def check_rows_left(histories: Sequence[History], folds: Mapping[int, dict[str, object]]) -> None:
    """Rows whose values are all like fillers move between keys that hold other rows; the rows left are the database's own."""
    left = {place: left_by(folds[place], events, own) for place, (own, events, _) in enumerate(histories)}
    wrong = {place: (histories[place], found) for place, found in left.items() if found != histories[place][2]}
    assert not wrong, (len(wrong), len(histories), next(iter(wrong.values())))


def test_whole_images_say_which_row_a_delete_is_about() -> None:
    histories = histories_of_loads(500)
    check_rows_left(histories, {place: in_python(place, events, keeps_deleted=False) for place, (_, events, _) in enumerate(histories)})


@pytest.mark.parametrize("count", [100, pytest.param(1_500, marks=pytest.mark.deep)])
def test_spark_finds_the_same_row(count: int, spark: SparkSession) -> None:
    histories = histories_of_loads(count)
    check_rows_left(histories, in_spark(spark, [events for _, events, _ in histories], keeps_deleted=False))
