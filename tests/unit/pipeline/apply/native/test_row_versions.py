"""A key's row versions, folded in Python as Spark folds them: random events of many keys, and the cases that the rules name."""

from __future__ import annotations

import random
from collections.abc import Sequence
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
from airflow_cdc.pipeline.apply.native.row_versions import Image, KeyEvent, fold_versions
from airflow_cdc.pipeline.decode.decode_events import AFTER, BEFORE, ORDINAL_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.reconcile.fold_row_versions import fold_row_versions
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import REACH, REDELIVERED
from airflow_cdc.pipeline.reconcile.order_events import ORDER

TEXTS = (None, "", "0", "x", "y")


def an_event(chance: random.Random, number: int, transaction: str | None, *, images: Sequence[Image]) -> KeyEvent:
    op = chance.choice("ccuuddr") if chance.random() < 0.9 else "d"
    before = chance.choice([None, *images]) if op in "ud" else None
    return KeyEvent(
        event=number,
        op=op,
        transaction=transaction,
        position=(number // 8, number, 0),
        partition=chance.choice([0, 0, 0, 1, LANES]),
        offset=chance.choice([number, number, None]),
        before=before,
        after=None if op == "d" else chance.choice([None, *images]),
    )


def a_history(chance: random.Random) -> list[KeyEvent]:
    """Return a key's events in order: transactions of up to four, some of them sent again."""
    images = [image for image in {(chance.choice(TEXTS), chance.choice(TEXTS)) for _ in range(4)} if image != (None, None)]
    events: list[KeyEvent] = []
    number = 8
    for _ in range(chance.randint(1, 4)):
        number += 8
        for _ in range(chance.randint(1, 4)):
            number += 1
            event = an_event(chance, number, chance.choice([None, *[str(number // 8)] * 7]), images=images)
            events += [replace(event, offset=event.offset and event.offset + copy) for copy in range(chance.choice([1, 1, 1, 1, 2]))]
    return events


def in_spark(spark: SparkSession, histories: Sequence[Sequence[KeyEvent]], *, keeps_deleted: bool) -> dict[int, dict[str, object]]:
    """Return by key what Spark's fold leaves; ``v`` is the number of the event whose row it is."""
    left_out = f"if({OP} = 'd', array('v'), NULL)" if keeps_deleted else "CAST(NULL AS ARRAY<STRING>)"
    place = f"position {POSITION_TYPE}, read INT, ordinal {ORDINAL_TYPE}"
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
            event.before,
            event.after,
            ((*map(Decimal, event.position[:2]), event.position[2]), int(event.op == "r"), (place, 0, 0)),
        )
        for key, events in enumerate(histories)
        for place, event in enumerate(events)
    ]
    hashed = {name: f"CAST(transform({name}, text -> if(text IS NULL, NULL, xxhash64(text))) AS ARRAY<BIGINT>)" for name in (BEFORE, AFTER)}
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
    folded = fold_row_versions(events, ["id"], ["id", "v"], keeps_deleted=keeps_deleted).selectExpr(
        *("id", "v", OP, OP_IF_ABSENT, OFFSET, f"{REDELIVERED} AS copies", f"{REACH}.began.change AS began"),
        *(f"{REACH}.{name}" for name in ("depends", "first_offset", "last_offset", "expects", "deletes", "writes")),
        f"{UNAVAILABLE} = array('v') AS asks_target",
        f"{VALUE_POSITIONS}[0].position.change AS value_from",
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
    return KeyEvent(event=number, op=op, transaction=transaction, position=number, partition=0, offset=number, before=before, after=after)


@pytest.mark.parametrize(
    ("events", "op", "op_if_absent", "survivor"),
    [
        ([event(1, "c", after=("new",)), event(2, "d", ("",))], "c", "d", 1),
        ([event(1, "c", after=("new",)), event(2, "d", ("new",))], KEEP, "d", None),
        ([event(1, "c", after=("new",)), event(2, "d", ("old",))], "c", "d", 1),
        ([event(1, "c", after=("new",)), event(2, "d", ("new",), transaction="2")], "d", "d", None),
    ],
    ids=["only the key", "the new row", "another row", "another transaction"],
)
def test_a_delete_is_about_the_row_of_its_image(events: list[KeyEvent], op: str, op_if_absent: str, survivor: int | None) -> None:
    fold = fold_versions(events)
    assert (fold.op, fold.op_if_absent, fold.survivor) == (op, op_if_absent, survivor)
