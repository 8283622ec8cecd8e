"""Which keys the last event alone does not decide: every chain of four events, against the rule in plain Python."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product

from pyspark.sql import SparkSession

from airflow_cdc.model.columns import ABSENT, COMMITTED_AT, OFFSET, OP, ORDINAL, PARTITION, POSITION, SNAPSHOT, TRANSACTION, UNAVAILABLE
from airflow_cdc.pipeline.decode.decode_events import ORDINAL_TYPE
from airflow_cdc.pipeline.decode.event_place import POSITION_TYPE
from airflow_cdc.pipeline.reconcile.keep_latest_per_key import HAZARD, keep_latest_per_key
from airflow_cdc.pipeline.reconcile.order_events import order_events

Chain = tuple[tuple[str, str | None], ...]
"""A key's events: operation and transaction, which a read does not have."""


def _chains(longest: int) -> Iterator[Chain]:
    for length in range(1, longest + 1):
        for operations in product("cudr", repeat=length):
            for begins_anew in product((False, True), repeat=length - 1):
                transaction, chain = 1, []
                for operation, is_new in zip(operations, (False, *begins_anew), strict=True):
                    transaction += is_new
                    chain.append((operation, None if operation == "r" else f"tx {transaction}"))
                yield tuple(chain)


def _hands_a_key_on(chain: Chain) -> bool:
    """Return whether a delete stands behind a create of its transaction that did not follow a delete."""
    created_in, before = None, ""
    for operation, transaction in chain:
        if operation == "d" and created_in == transaction:
            return True
        created_in = transaction if operation == "c" and before != "d" else created_in
        before = operation
    return False


def _marked(spark: SparkSession, chains: Sequence[Chain]) -> set[Chain]:
    events = [(key, place, *event) for key, chain in enumerate(chains) for place, event in enumerate(chain)]
    placed = spark.createDataFrame(events, f"id INT, place INT, {OP} STRING, {TRANSACTION} STRING").selectExpr(
        "id",
        OP,
        TRANSACTION,
        f"CAST(named_struct('commit', place, 'change', place, 'serial', 0) AS {POSITION_TYPE}) AS {POSITION}",
        f"CAST(named_struct('offset', place, 'run', NULL, 'file', NULL, 'block', 0, 'row', place) AS {ORDINAL_TYPE}) AS {ORDINAL}",
        f"CAST(place AS BIGINT) AS {OFFSET}",
        f"0 AS {PARTITION}",
        f"CAST(NULL AS TIMESTAMP) AS {COMMITTED_AT}",
        f"CAST(NULL AS STRING) AS {SNAPSHOT}",
        f"CAST(NULL AS ARRAY<STRING>) AS {UNAVAILABLE}",
        f"CAST(NULL AS ARRAY<STRING>) AS {ABSENT}",
    )
    ordered = order_events(placed, ["id"], reads_among_changes=True, change_restarts=False)
    latest = keep_latest_per_key(ordered, ["id"], ["id"], change_restarts=False)
    return {chains[row["id"]] for row in latest.filter(f"{HAZARD} = 1").select("id").collect()}


def test_every_key_that_one_transaction_may_have_handed_on_is_marked(spark: SparkSession) -> None:
    chains = list(dict.fromkeys(_chains(4)))
    must_be = {chain for chain in chains if _hands_a_key_on(chain)}
    marked = _marked(spark, chains)

    assert len(must_be) > 100
    assert not must_be - marked


def test_a_row_that_its_transaction_changed_and_deleted_is_not_marked(spark: SparkSession) -> None:
    """Folding such keys would give the same at a higher price, and some applications do little else."""
    plain: list[Chain] = [
        (("u", "tx 1"), ("d", "tx 1")),
        (("c", "tx 1"), ("u", "tx 2"), ("d", "tx 2")),
        (("d", "tx 1"), ("c", "tx 1"), ("d", "tx 1")),
        (("c", "tx 1"), ("d", "tx 2")),
        (("r", None), ("d", "tx 1")),
    ]
    assert not _marked(spark, plain)
