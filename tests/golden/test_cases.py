"""Small archives of what people meet, each with the rows of the source: right, or visibly refused or set aside, by both engines.

A case (``cases/NAME``) holds ``rounds/<n>/…``, files of the archive in the order in which they arrive; the rows by table (null: no
such table), a note, and perhaps a flows file. Tables are read by delta-rs' own query engine.
"""

from __future__ import annotations

import datetime
import decimal
import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.flows_file import read_flows
from airflow_cdc.model.flow.engine import Engine
from tests.attack import judge
from tests.conftest import Apply

CASES = Path(__file__).parent / "cases"
DIFFERENCES = Path(__file__).parents[2] / "docs" / "reference" / "known-differences.md"
DOCUMENTED = {
    "42-mongo-same-id-on-two-shards": "one `_id` on several shards",
    "y11-backwards-over-drop": "learns of it only from late events",
}
"""Cases whose rows are not the right ones, by what docs/reference/known-differences.md calls them."""


def plain(value: Any) -> Any:
    """Return a value as the cases spell it."""
    if isinstance(value, (bytes, bytearray)):
        return f"hex:{value.hex()}"
    if isinstance(value, decimal.Decimal):
        return f"dec:{value:f}"
    if isinstance(value, (datetime.datetime, datetime.date)):
        return value.isoformat()
    if isinstance(value, float) and (not math.isfinite(value)):
        return {"nan": "NaN"}.get(str(value), str(value))
    if isinstance(value, list):
        return [plain(each) for each in value]
    return {name: plain(each) for name, each in value.items()} if isinstance(value, dict) else value


def rows_of(table: Path) -> list[str] | None:
    """Return a table's rows as sorted texts; None where there is no table."""
    if not (table / "_delta_log").exists():
        return None
    rows = [row for row in judge.rows_of(table) if not row.get("__cdc_deleted")]
    return texts([{name: plain(value) for name, value in row.items() if not name.startswith("__cdc_")} for row in rows])


def texts(rows: list[dict[str, Any]]) -> list[str]:
    return sorted(json.dumps(row, sort_keys=True, default=str) for row in rows)


@pytest.mark.parametrize("engine", [Engine.AUTO, pytest.param(Engine.SPARK, marks=pytest.mark.deep)], ids=["auto", "spark"], indirect=True)
@pytest.mark.parametrize("name", sorted(case.name for case in CASES.iterdir()))
def test_a_case_is_right_or_visibly_not_read(apply: Apply, archive: Path, lake: Path, name: str) -> None:
    case = CASES / name
    flows = read_flows(case / "flows.yaml") if (case / "flows.yaml").exists() else {}
    failed, rejected = [], 0
    for number in sorted((case / "rounds").iterdir(), key=lambda path: int(path.name)):
        shutil.copytree(number, archive, dirs_exist_ok=True)
        report = apply(archive, lake, flows=flows, may_fail=True)
        failed += [flow.error for flow in report.flows if flow.error]
        failed += [] if report.ok else ["the run is not green"]
        rejected += sum(flow.events.rejected for flow in report.flows)
    expected = json.loads((case / "expected.json").read_text(encoding="utf-8"))
    found = {table: rows_of(Path(table) if table.startswith("/") else lake / table) for table in expected}
    is_right = found == {table: rows if rows is None else texts(rows) for table, rows in expected.items()}
    if name in DOCUMENTED:
        assert not is_right
        assert DOCUMENTED[name] in DIFFERENCES.read_text(encoding="utf-8")
        return
    # Otherwise a flow stops with its error, or records are in the quarantine: never a wrong table under a green run.
    assert is_right or failed or rejected, found
