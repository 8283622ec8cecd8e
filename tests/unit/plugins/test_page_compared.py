"""What the page says of a flow's comparison with its source."""

from __future__ import annotations

from pathlib import Path

from airflow_cdc.model.pull.compared_rows import OpenRow
from airflow_cdc.model.state.comparison import FlowComparison, FlowComparisons
from tests.support.page_lakes import CUSTOMERS, ORDERS, write_shop
from tests.support.surveys import FS
from tests.unit.plugins.test_page import Page


def test_a_flow_says_since_when_it_equals_its_source_and_one_that_differs_needs_a_look(tmp_path: Path) -> None:
    lake = write_shop(tmp_path, microbatches=2).lake
    comparisons = FlowComparisons(FS, str(lake))
    open_row = OpenRow(7, 1, None, 0, 1000)
    comparisons.put(ORDERS, FlowComparison(ORDERS, "run 1", 2000, left_out=("f: real and float",), open=(open_row,), verified_through=1000))
    page = Page(lake)
    assert page.get("flow", flow=CUSTOMERS)["compared"] is None
    found = page.get("flow", flow=ORDERS)
    times = {"at": 2000, "verified_through": 1000}
    assert found["compared"] == {**times, "different": 0, "undecided": 1, "is_cut": False, "left_out": ["f: real and float"], "skipped": ""}
    assert found["standing"] == "up to date"

    sample = ({"side": "missing", "id": "a secret"},)
    comparisons.put(ORDERS, FlowComparison(ORDERS, "run 1", 3000, different=2, sample=sample, verified_through=1000))
    found = Page(lake).get("flow", flow=ORDERS)
    assert found["standing"] == "needs a look"
    assert found["findings"] == ["Rows that differ from the source's: 2 rows. Next step: the task that compared them names some keys"]
    assert "a secret" not in str(found), "keys are values, which not everybody sees"
