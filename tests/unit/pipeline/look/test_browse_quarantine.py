"""A quarantine is browsed by page, reason and text."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.pipeline.look.browse_quarantine import QuarantineSearch, browse_quarantine
from tests.support.small_lakes import FLOW, write_flow, write_quarantine

RECORD = {"detail": None, "topic": FLOW, "partition": 0, "offset": 1, "raw_key": None}


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lake")
    write_flow(folder)
    records = [
        {**RECORD, "microbatch": number, "reason": reason, "file": f"{number}.jsonl", "line": 1, "raw": f"It's Raw-{number}"}
        for number, reason in enumerate(["malformed_json", "missing_key", "malformed_json"], 1)
    ]
    write_quarantine(folder, records)
    return folder


def numbers(lake: Path, **search: object) -> list[int]:
    found = browse_quarantine(str(lake), FLOW, QuarantineSearch(**search))  # type: ignore[arg-type]
    assert found.reasons == {"malformed_json": 2, "missing_key": 1}, "whatever is searched"
    return [record["microbatch"] for record in found.records]


def test_all_records_are_there_in_archive_order(lake: Path) -> None:
    assert numbers(lake) == [1, 2, 3]


def test_a_page_has_its_part_and_the_number_of_all(lake: Path) -> None:
    assert numbers(lake, limit=2) == [1, 2]
    assert numbers(lake, limit=2, offset=2) == [3]
    assert browse_quarantine(str(lake), FLOW, QuarantineSearch(limit=1)).matching == 3


def test_records_are_found_by_reason_and_by_text_in_any_case(lake: Path) -> None:
    assert numbers(lake, reason="malformed_json") == [1, 3]
    assert numbers(lake, text="rAW-2") == [2]
    assert numbers(lake, text="3.JSONL", reason="malformed_json") == [3]
    assert numbers(lake, text="raw-2", reason="malformed_json") == []


def test_a_search_is_text_and_no_sql(lake: Path) -> None:
    assert numbers(lake, text="It's raw-1") == [1]
    assert numbers(lake, text="' OR true --") == []
    assert numbers(lake, reason="' OR true --") == []


def test_an_unknown_flow_is_refused(lake: Path) -> None:
    with pytest.raises(ConfigurationError, match="knows no flow nobody"):
        browse_quarantine(str(lake), "nobody", QuarantineSearch())
