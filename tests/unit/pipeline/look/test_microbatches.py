"""A flow's microbatches are read from its commit markers."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.pipeline.look.microbatches import DoneMicrobatch, read_history
from tests.support.small_lakes import FLOW, write_flow
from tests.unit.model.state import samples
from tests.unit.model.state.golden import write_lake


def test_every_microbatch_is_there_with_its_report_and_time(tmp_path: Path) -> None:
    write_lake(tmp_path)
    found = read_history(str(tmp_path), samples.FLOW)
    written = samples.WRITTEN_AT
    assert found.microbatches == (DoneMicrobatch(1, written, samples.REPORT), DoneMicrobatch(2, written, samples.DECISION_REPORT))
    assert found.total == 2
    assert found.microbatches[0].to_json() == {"number": 1, "committed_at": written, "report": samples.REPORT.to_json()}


def test_a_limit_keeps_the_newest(tmp_path: Path) -> None:
    write_flow(tmp_path, microbatches=5)
    found = read_history(str(tmp_path), FLOW, 2)
    assert ([each.number for each in found.microbatches], found.total) == ([4, 5], 5)
    assert [each.number for each in read_history(str(tmp_path), FLOW, 9).microbatches] == [1, 2, 3, 4, 5]


def test_a_microbatch_whose_marker_is_gone_keeps_its_line(tmp_path: Path) -> None:
    state = write_flow(tmp_path, microbatches=2)
    assert state.checkpoint().number == 2
    (tmp_path / "_cdc/flows" / FLOW / "commits/00000001.json").unlink()
    first, second = read_history(str(tmp_path), FLOW).microbatches
    assert first == DoneMicrobatch(1, None, None)
    assert second.report is not None
    assert first.to_json() == {"number": 1, "committed_at": None, "report": None}


def test_an_unknown_flow_is_refused_with_those_that_the_lake_knows(tmp_path: Path) -> None:
    write_flow(tmp_path)
    with pytest.raises(ConfigurationError, match=rf"no flow other; its flows are \['{FLOW}'\]"):
        read_history(str(tmp_path), "other")
