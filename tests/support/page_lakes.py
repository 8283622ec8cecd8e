"""Lakes for the page, written without Spark by the state's own classes: one whose flows stand in every way, and one of many flows."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.cut import WaitingFiles
from airflow_cdc.model.archive.set_aside import UNREADABLE, SetAsideFile
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.state.flow_documents import CommitMarker
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.lease import Leases
from airflow_cdc.model.state.microbatch import Microbatch, PlanPosition
from airflow_cdc.model.state_kind import COMMIT_MARKER
from tests.support.events import lsn, sqlserver
from tests.support.many_flows import FS, Shop, archived, reports_of, shape_of, survey_of
from tests.support.small_lakes import POSITION, field, our_properties, write_quarantine, write_table

CUSTOMERS = "shop.sales.dbo.customers"
ORDERS, LINES, STOCK, PAYMENTS, TICKETS = (f"shop.sales.dbo.{name}" for name in ("orders", "order_lines", "stock", "payments", "tickets"))
ACCOUNTS = "bank.public.accounts"
_TORN = '{"topic": "shop.sales.dbo.customers", "value": {"id": 1'
"""A line that a crash of the sink cut off."""
_NAMES = {"id": "integer", "name": "string", "city": "string"}
_OURS = ("__cdc_op", "__cdc_committed_at", "__cdc_microbatch", "__cdc_partition", "__cdc_offset")


def write_shop(folder: Path, *, microbatches: int = 40, now: datetime | None = None) -> Shop:
    """Write a lake with a flow of each standing. The customers' events, table and quarantine are whole; the others have reports alone."""
    shop = Shop(folder / "lake", folder / "archive")
    shop.archive.mkdir(parents=True)
    moment = now or datetime.now(timezone.utc)
    files = [_customers_file(shop, number) for number in (1, 2, 3)]
    others = {
        ORDERS: "sqlserver",
        LINES: "sqlserver",
        STOCK: "sqlserver",
        PAYMENTS: "sqlserver",
        TICKETS: "sqlserver",
        ACCOUNTS: "postgresql",
    }
    state = ArchiveState(FS, str(shop.lake), str(shop.archive))
    first = [*files, *((archived(f"{flow}+0+0000000000.json", 4_000), flow, "sqlserver", 40) for flow in others)]
    assert state.add(survey_of(shop, 1, first))
    second = [(archived(f"{flow}+0+0000000040.json", 90_000), flow, "sqlserver", 1_200) for flow in (LINES, PAYMENTS, TICKETS, ACCOUNTS)]
    assert state.add(survey_of(shop, 2, second))
    state.write_waiting(WaitingFiles(2, {PAYMENTS: (f"{PAYMENTS}+0+0000000040.json",)}))
    unreadable = f"{STOCK}+0+0000000080.json"
    state.write_set_aside([SetAsideFile(unreadable, STOCK, UNREADABLE, "gzip: unexpected end of the file", moment.isoformat())])
    state.ledger()
    _write_customers(shop, [file for file, *_ in files], moment)
    for place, (flow, connector) in enumerate(others.items()):
        _write_reported(shop, flow, connector, count=microbatches + place, now=moment)
    # Held, and never released, by this process: a run that is under way.
    Leases(FS, str(shop.lake)).take(TICKETS)
    return shop


def _customer(op: str, commit: int, offset: int, key: int, **values: Any) -> dict[str, Any]:
    row = {"id": key, "name": values.get("name"), "city": values.get("city")}
    images = {"before": row} if op == "d" else {"after": row}
    made = sqlserver(op, commit=commit, offset=offset, topic=CUSTOMERS, key={"id": key}, **images)
    # Minutes apart, as people would change them.
    made["value"]["source"]["ts_ms"] = _committed_ms(commit)
    return made


def _committed_ms(commit: int) -> int:
    return 1_795_161_600_000 + commit * 60_000


_STORY = {
    1: [
        _customer("c", 101, 0, 1, name="Ada", city="London"),
        _customer("u", 102, 1, 1, name="Ada", city="Paris"),
        _customer("c", 103, 2, 2, name="Brahe", city="Lund"),
    ],
    2: [
        _customer("u", 110, 3, 1, name="Ada Lovelace", city="Paris"),
        _customer("u", 110, 4, 1, name="Ada Lovelace", city="Paris"),
        _customer("d", 111, 5, 2, name="Brahe", city="Lund"),
    ],
    # Late: archived behind what it came before.
    3: [_customer("u", 105, 6, 1, name="Ada", city="Berlin"), _customer("c", 120, 7, 3, name="Curie", city="Warsaw")],
}
_COUNTS = {
    1: (EventCounts(3, merged=2, superseded=1), RowCounts(inserted=2)),
    2: (EventCounts(4, merged=2, redelivered=1, rejected=1), RowCounts(updated=1, deleted=1)),
    3: (EventCounts(2, merged=1, stale=1), RowCounts(inserted=1)),
}


def _customers_file(shop: Shop, number: int) -> tuple[ArchivedFile, str, str, int]:
    records = _STORY[number]
    path = f"{CUSTOMERS}+0+{records[0]['offset']:010d}.json"
    lines = [json.dumps(record) for record in records] + (
        ['{"topic": "shop.sales.dbo.customers", "value": {"id": 1'] if number == 2 else []
    )
    shop.archive.joinpath(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return archived(path, shop.archive.joinpath(path).stat().st_size), CUSTOMERS, "sqlserver", len(records)


def _write_customers(shop: Shop, files: Sequence[ArchivedFile], now: datetime) -> None:
    state = FlowState(FS, str(shop.lake), CUSTOMERS)
    table = f"{shop.lake}/{CUSTOMERS}"
    for number, file in enumerate(files, 1):
        shape = shape_of(file, CUSTOMERS, "sqlserver", len(_STORY[number]))
        intent = Microbatch(CUSTOMERS, number, str(shop.archive), (file,), PlanPosition(2 if number == 3 else 1, number % 3), (shape,))
        assert state.write_intent(intent)
        events, rows = _COUNTS[number]
        last = _STORY[number][-1]["value"]["source"]
        report = BatchReport(
            CUSTOMERS,
            number,
            1,
            file.size,
            events=events,
            rows=rows,
            rejects={"malformed_json": 1} if events.rejected else {},
            applied_through={"0": Position(int(lsn(100 + number * 10).replace(":", ""), 16), 1, 1)},
            committed_through=last["ts_ms"],
            columns_added=("city",) if number == 2 else (),
            table_version=number,
            merge_plan="merge" if number < 3 else "guarded merge: late events",
            engine="native" if number == 2 else "spark",
            started_at=int((now - timedelta(minutes=31 - number)).timestamp() * 1000),
            seconds=1.5 * number,
            stage_seconds={"stage": 0.5 * number, "delete_markers": 0.1 * number, "merge": 0.7 * number, "count": 0.2 * number},
        )
        marker = CommitMarker(table, report, (now - timedelta(minutes=30 - number)).isoformat(), intent.digest)
        COMMIT_MARKER.replace(FS, f"{shop.lake}/_cdc/flows/{CUSTOMERS}/commits/{number:08d}.json", marker.to_json())
    state.checkpoint()
    rows_of = [_row(110, 2, 3, id=1, name="Ada Lovelace", city="Paris"), _row(120, 3, 7, id=3, name="Curie", city="Warsaw")]
    _write_target(Path(table), rows_of)
    raw = {"raw": _TORN, "raw_key": None}
    reject = {"microbatch": 2, "reason": "malformed_json", "detail": None, "topic": CUSTOMERS, "partition": None, "offset": None}
    write_quarantine(shop.lake, [{**reject, "file": files[1].path, "line": 4, **raw}], CUSTOMERS)


def _row(commit: int, microbatch: int, offset: int, **values: Any) -> dict[str, Any]:
    number = int("".join(part.zfill(8 if place < 2 else 4) for place, part in enumerate(lsn(commit).split(":"))), 16)
    at = datetime.fromtimestamp(_committed_ms(commit) / 1000, timezone.utc)
    ours = dict(zip(_OURS, ("u", at, microbatch, 0, offset), strict=True))
    return {**values, "__cdc_position": {"commit": number, "change": number, "serial": 1}, **ours}


def _write_target(folder: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    kinds = dict(zip(_OURS, ("string", "timestamp", "long", "integer", "long"), strict=True))
    fields = [
        *(field(name, kind) for name, kind in _NAMES.items()),
        field("__cdc_position", POSITION),
        *(field(*each) for each in kinds.items()),
    ]
    arrow = {"string": pa.string(), "integer": pa.int32(), "long": pa.int64(), "timestamp": pa.timestamp("us", tz="UTC")}
    place = pa.struct([("commit", pa.decimal128(38, 0)), ("change", pa.decimal128(38, 0)), ("serial", pa.int64())])
    schema = pa.schema(
        [
            *((name, arrow[kind]) for name, kind in _NAMES.items()),
            ("__cdc_position", place),
            *((name, arrow[kind]) for name, kind in kinds.items()),
        ]
    )
    write_table(folder, fields, [pa.Table.from_pylist([dict(row) for row in rows], schema=schema)], properties=our_properties(["id"]))


def _write_reported(shop: Shop, flow: str, connector: str, *, count: int, now: datetime) -> None:
    """Write a flow whose table is not there: intents, commit markers, checkpoint."""
    state = FlowState(FS, str(shop.lake), flow)
    for report, at in reports_of(flow, connector, numbers=range(1, count + 1), now=now, count=count):
        file = archived(f"{flow}+0+0000000000.json", 4_000)
        shape = shape_of(file, flow, connector, 40)
        intent = Microbatch(flow, report.microbatch, str(shop.archive), (file,), PlanPosition(2, 0), (shape,))
        assert state.write_intent(intent)
        marker = CommitMarker(f"{shop.lake}/{flow}", report, at.isoformat(), intent.digest)
        COMMIT_MARKER.replace(FS, f"{shop.lake}/_cdc/flows/{flow}/commits/{report.microbatch:08d}.json", marker.to_json())
    state.checkpoint()
