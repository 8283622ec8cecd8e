"""Events of one row with one position in files without offsets: their images show which came first, or the flow stops until the names of
the files are declared to be in order.
"""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.policies import OnUnknownOrder
from airflow_cdc.model.report.apply_report import FlowOutcome
from tests.attack import judge
from tests.conftest import Apply

TOPIC = "srv.s.t"
FLOW = CdcFlow(TOPIC, keys=("id",))
VERSIONS = replace(FLOW, stored_as_scd_type=2)
BY_NAMES = OnUnknownOrder.FILE_NAMES


def event(op: str, before: str | None, after: str | None, at: int) -> dict[str, Any]:
    """Return a change of the row 1 in a compressed transaction of MySQL: all its events have one position."""
    source = {"version": "2.7.0.Final", "connector": "mysql", "name": "srv", "db": "d", "table": "t", "server_id": 1, "gtid": None}
    place = {"file": "bin.000001", "pos": at, "row": 0, "snapshot": "false", "ts_ms": 1_700_000_000_000}
    before_row, after_row = (None if value is None else {"id": 1, "v": value} for value in (before, after))
    return {"before": before_row, "after": after_row, "source": {**source, **place}, "op": op, "ts_ms": 1_700_000_000_010}


BORN = event("c", None, "A", 10)
TO_B, BACK_TO_A, TO_C = (event("u", one, other, 20) for one, other in ("AB", "BA", "BC"))


class Files:
    """An archive of values without offsets, and its table."""

    def __init__(self, folder: Path, apply: Apply, flow: CdcFlow) -> None:
        self.folder, self.apply, self.flow = folder, apply, flow

    def lands(self, name: str, *events: dict[str, Any]) -> None:
        file = self.folder / "archive" / TOPIC / "dt=1" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(json.dumps(each) + "\n" for each in events))

    def run(self, flow: CdcFlow | None = None) -> FlowOutcome:
        report = self.apply(self.folder / "archive", self.folder / "lake", flows={TOPIC: flow or self.flow}, may_fail=True)
        return report.flows[0]

    @property
    def value(self) -> list[Any]:
        rows = judge.rows_of(self.folder / "lake" / TOPIC)
        return [row["v"] for row in rows if row.get("__cdc_is_current", True)]


@pytest.fixture(params=[FLOW, VERSIONS], ids=["rows", "versions"])
def files(request: pytest.FixtureRequest, tmp_path: Path, apply: Apply) -> Files:
    return Files(tmp_path, apply, request.param)


@pytest.mark.parametrize("rounds", [1, 2])
def test_a_way_there_and_back_stops_the_flow_until_the_names_are_declared(files: Files, rounds: int) -> None:
    files.lands("part-1.jsonl", BORN, TO_B)
    if rounds == 2:
        assert (files.run().error, files.value) == (None, ["B"])
    files.lands("part-2.jsonl", BACK_TO_A)

    stopped = files.run()

    assert stopped.error is not None
    assert stopped.error["type"] == "OrderUnknownError"
    assert all(text in str(stopped.error) for text in ("id = 1", "part-1.jsonl", "part-2.jsonl", "on_unknown_order"))
    done = files.run(replace(files.flow, on_unknown_order=BY_NAMES))
    assert (done.error, files.value) == (None, ["A"])


@pytest.mark.parametrize("rounds", [1, 2])
@pytest.mark.parametrize(("last", "expected"), [(TO_C, ["C"]), (event("d", "B", None, 20), [])], ids=["update", "delete"])
def test_images_that_continue_each_other_show_the_order(files: Files, rounds: int, last: dict[str, Any], expected: list[str]) -> None:
    """The file with the last event has the first name."""
    files.lands("part-2.jsonl", BORN, TO_B)
    if rounds == 2:
        assert files.run().error is None
    files.lands("part-1.jsonl", last)

    assert files.run().error is None
    assert files.value == expected


def test_a_file_that_lies_there_twice_holds_copies(files: Files) -> None:
    for name in ("part-1.jsonl", "part-1-again.jsonl"):
        files.lands(name, BORN, TO_B, TO_C)
    done = files.run()
    assert (done.error, files.value) == (None, ["C"])
