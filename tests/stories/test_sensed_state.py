"""What the sensors ask of a lake's state, as real runs leave it there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import fsspec
import pytest

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnGap
from airflow_cdc.model.look.lag import Lag, find_lag
from airflow_cdc.model.look.pending import pending_files
from airflow_cdc.model.look.snapshot_state import snapshot_state
from airflow_cdc.model.look.whole_cut import find_whole_cuts
from airflow_cdc.model.state.lake import ArchiveState
from tests.conftest import Apply
from tests.support.events import lsn, record, sqlserver, write_records

FS = fsspec.filesystem("file")
ORDERS, ITEMS = "shop.db.orders", "shop.db.items"
COMMITTED = 1_800_000_000


def places(archive: Path, lake: Path) -> dict[str, Any]:
    return {"archive_fs": FS, "archive_root": str(archive), "archive": str(archive), "lake_fs": FS, "lake_root": str(lake)}


def event(op: str, commit: int, row: int, *, topic: str = ORDERS, snapshot: str = "false", transaction: int | None = None) -> Any:
    event = sqlserver(op, commit=commit, change=commit, serial=row, after={"id": row}, topic=topic)
    source = {**event["value"]["source"], "snapshot": snapshot, "ts_ms": (COMMITTED + commit) * 1000}
    place = {"id": lsn(transaction), "total_order": 1, "data_collection_order": 1} if transaction else None
    return {**event, "value": {**event["value"], "source": source, "transaction": place}}


def transaction(number: int) -> list[Any]:
    common = {"id": lsn(number), "ts_ms": (COMMITTED + number) * 1000}
    counts = [{"data_collection": topic.removeprefix("shop."), "event_count": 1} for topic in (ORDERS, ITEMS)]
    marks = [{"status": "BEGIN", **common}, {"status": "END", **common, "data_collections": counts}]
    return [record("shop.transaction", None, mark, 0) for mark in marks]


def test_a_run_leaves_what_the_sensors_ask(apply: Apply, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    where = places(archive, lake)

    def snapshots() -> tuple[tuple[str, ...], tuple[str, ...]]:
        found = snapshot_state(archive=str(archive), lake_fs=FS, lake_root=str(lake), tables=())
        return found.complete, found.missing

    # load 1: both snapshots have begun, one is whole
    write_records(archive / "orders-1.jsonl", [event("r", 5, 1, snapshot="first"), event("r", 5, 2, snapshot="last_in_data_collection")])
    write_records(archive / "items-1.jsonl", [event("r", 5, 1, topic=ITEMS, snapshot="first_in_data_collection")])
    apply(archive, lake)
    assert snapshots() == ((ORDERS,), (ITEMS,))

    # load 2: the other's last read, and a transaction of which one table's event is missing
    write_records(archive / "items-2.jsonl", [event("r", 5, 2, topic=ITEMS, snapshot="last")])
    write_records(archive / "orders-2.jsonl", [event("c", 10, 3, transaction=10)])
    write_records(archive / "transactions-2.jsonl", transaction(10))
    report = apply(archive, lake, consistent=True)
    assert snapshots() == ((ITEMS, ORDERS), ())
    assert {flow.flow: [batch.committed_through for batch in flow.batches] for flow in report.flows} == {
        ITEMS: [(COMMITTED + 5) * 1000],
        ORDERS: [],
    }
    cut = find_whole_cuts(**where)["shop"]
    assert (cut.is_past, [item.transaction for item in cut.waits_for]) == (False, [lsn(10)])
    together, behind = find_lag(**where, tables=(), now=COMMITTED + 60.0)
    assert (together.files, together.seconds, list(behind)) == (1, 55.0, [ORDERS])

    # load 3: what was missing; before the run and after it
    write_records(archive / "items-3.jsonl", [event("c", 10, 3, topic=ITEMS, transaction=10)])
    assert find_whole_cuts(**where)["shop"].is_past
    apply(archive, lake, consistent=True)
    assert not find_whole_cuts(**where)["shop"].is_past
    assert find_lag(**where, tables=(), now=COMMITTED + 60.0) == (Lag(), {})
    # A next look reads no survey at all, of however many files.
    monkeypatch.setattr(ArchiveState, "_read", lambda self, number: pytest.fail(f"survey {number} is read") if number < 4 else None)
    assert not pending_files(**where)


@pytest.mark.deep
def test_a_topic_that_was_created_again_makes_no_sensor_wait_or_pass_for_offsets_of_its_earlier_life(apply: Apply, tmp_path: Path) -> None:
    archive, lake = tmp_path / "archive", tmp_path / "lake"
    flows = {ORDERS: CdcFlow(ORDERS, on_gap=OnGap.WAIT)}

    def lands(name: str, *offsets: int, life: int) -> None:
        """Write creates of rows of their own; the second life's stand behind the first's in the source's log."""
        created = [{**event("c", 100 * life + offset, 100 * life + offset), "offset": offset} for offset in offsets]
        write_records(archive / f"{name}.jsonl", created)

    def waits() -> tuple[int, int]:
        """Return the files that call for a run, as the sensor of files counts them, and those that the lag counts."""
        return pending_files(**places(archive, lake)).count, find_lag(**places(archive, lake), tables=(), now=COMMITTED + 999.0)[0].files

    lands("1", *range(6), life=1)
    apply(archive, lake, flows=flows)
    assert waits() == (0, 0)
    # The second life begins at offset 0 again, and has what the first one lacks behind it: nothing of either is missing.
    lands("2", 0, 1, life=2)
    assert waits() == (1, 1)
    (flow,) = apply(archive, lake, flows=flows).flows
    assert (flow.events.merged, flow.waiting_files, waits()) == (2, 0, (0, 0))
    # Offset 2 is missing in the second life, though the first has it: the file waits, and goes on calling for a run.
    lands("4", 3, 4, life=2)
    (flow,) = apply(archive, lake, flows=flows).flows
    assert (flow.status.value, flow.waiting_files, waits()) == ("waiting", 1, (1, 1))
    lands("3", 2, life=2)
    (flow,) = apply(archive, lake, flows=flows).flows
    assert (flow.events.merged, flow.waiting_files, waits()) == (3, 0, (0, 0))
