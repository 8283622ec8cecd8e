"""How a flow stands to its archive: one word, one sentence, and what waits. Nothing is written."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from airflow_cdc.model.look.standing import Standing, Waiting, held_by, look_at, standing_of, waiting_of
from airflow_cdc.model.look.unsurveyed import NOT_LISTED, Unsurveyed, list_unsurveyed
from airflow_cdc.model.state.lake import ArchiveState, FlowState, archives_in
from airflow_cdc.model.state.lease import Leases
from tests.support.many_flows import Shop
from tests.support.page_lakes import ACCOUNTS, CUSTOMERS, LINES, ORDERS, PAYMENTS, STOCK, TICKETS, write_shop
from tests.support.surveys import FS


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return write_shop(tmp_path, microbatches=2)


def listed(state: ArchiveState) -> Unsurveyed:
    return list_unsurveyed(FS, state.archive, state, state.ledger(write=False))[0]


def stands(shop: Shop, name: str) -> tuple[Standing, str, Waiting]:
    root = str(shop.lake)
    archives = [look_at(state, listed(state)) for state in archives_in(FS, root)]
    flow = FlowState(FS, root, name)
    checkpoint = flow.checkpoint(write=False)
    waiting = waiting_of(archives, name, checkpoint)
    return *standing_of(FS, root, flow, waiting=waiting, archives=archives, findings=checkpoint.findings), waiting


@pytest.mark.parametrize(
    ("flow", "word", "sentence"),
    [
        (CUSTOMERS, Standing.ATTENTION, ""),
        (ORDERS, Standing.UP_TO_DATE, ""),
        (LINES, Standing.BEHIND, "1 archived file waits for the next run."),
        (ACCOUNTS, Standing.BEHIND, "1 archived file waits for the next run."),
        (PAYMENTS, Standing.WAITING, "1 archived file waits for the rest of a transaction."),
        (TICKETS, Standing.CATCHING_UP, "Written by process"),
        (STOCK, Standing.STOPPED, "1 archived file cannot be read: shop.sales.dbo.stock+0+0000000080.json"),
    ],
)
def test_a_flow_stands_in_a_word_and_a_sentence(shop: Shop, flow: str, word: Standing, sentence: str) -> None:
    standing, reason, _ = stands(shop, flow)
    assert standing is word
    assert reason.startswith(sentence)
    assert bool(reason) is bool(sentence)


def test_what_waits_is_counted_in_files_bytes_and_events(shop: Shop) -> None:
    assert stands(shop, LINES)[2] == Waiting(files=1, bytes=90_000, events=1_200)
    assert stands(shop, PAYMENTS)[2] == Waiting(files=1, bytes=90_000, events=1_200, for_transactions=1)
    assert stands(shop, ORDERS)[2] == Waiting()


def test_a_lease_that_is_given_back_or_too_old_is_held_by_nobody(shop: Shop) -> None:
    flow, root = FlowState(FS, str(shop.lake), LINES), str(shop.lake)
    lease = Leases(FS, root).take(LINES)
    assert held_by(FS, root, flow) == str(lease.held.holder)
    old = time.time() - 600
    os.utime(lease.path, (old, old))
    assert held_by(FS, root, flow) is None
    os.utime(lease.path)
    lease.release()
    assert held_by(FS, root, flow) is None


def test_a_look_writes_nothing_even_where_checkpoint_and_ledger_are_lost(shop: Shop) -> None:
    for path in [*shop.lake.rglob("checkpoint.json"), *shop.lake.rglob("ledger.json")]:
        path.unlink()
    before = {path: path.stat().st_mtime_ns for path in shop.lake.rglob("*")}
    assert stands(shop, LINES)[0] is Standing.BEHIND
    assert {path: path.stat().st_mtime_ns for path in shop.lake.rglob("*")} == before


def land(shop: Shop, name: str, text: str = "{}") -> None:
    path = shop.archive / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_files_that_no_run_has_looked_at_wait_too(shop: Shop) -> None:
    for offset in range(1000):
        land(shop, f"{ORDERS}+0+{5_000 + offset:010d}.json")
    standing, reason, waiting = stands(shop, ORDERS)
    assert (standing, waiting) == (Standing.BEHIND, Waiting(files=1000, bytes=2000, unsurveyed=1000))
    assert reason == "1,000 archived files wait for the next run; no run has looked at 1,000 of them."
    assert stands(shop, CUSTOMERS)[0] is Standing.ATTENTION


def test_a_flow_is_not_up_to_date_where_its_archive_cannot_be_listed(shop: Shop) -> None:
    root = str(shop.lake)
    flow = FlowState(FS, root, ORDERS)
    for unsurveyed, why in ((NOT_LISTED, "is being listed"), (Unsurveyed(at=1.0, failure="no entry"), "cannot be listed from here")):
        archives = [look_at(state, unsurveyed) for state in archives_in(FS, root)]
        standing, reason = standing_of(FS, root, flow, waiting=Waiting(), archives=archives)
        assert (standing, why in reason) == (Standing.UNKNOWN, True)
