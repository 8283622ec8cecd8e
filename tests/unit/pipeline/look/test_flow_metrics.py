"""What a lake's state tells of each flow: sums, the last microbatch, what waits; with and without a look at the archive."""

from __future__ import annotations

from pathlib import Path

import pytest

from airflow_cdc.model.archive.survey import Survey
from airflow_cdc.model.errors import ArchiveNotFoundError
from airflow_cdc.model.report.metrics import (
    EVENTS,
    LAG_SECONDS,
    MICROBATCH_SECONDS,
    MICROBATCHES,
    PENDING_BYTES,
    PENDING_FILES,
    ROWS,
    Sample,
)
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.pipeline.look.flow_metrics import samples_of_lake
from tests.support.small_lakes import FLOW, write_flow
from tests.support.surveys import FS, archived, shape

OTHER = "server1.testDB.dbo.orders"


def survey(lake: Path, archive: Path, names: list[str], flow: str = FLOW) -> None:
    """Record a survey of files that hold one flow's events."""
    files = tuple(archived(f"{archive}/{name}", 100) for name in names)
    ArchiveState(FS, str(lake), str(archive)).add(Survey(str(archive), 1, files, tuple(shape(file.path, flow) for file in files)))


def test_counters_are_sums_and_the_duration_is_the_last_microbatchs(lake: Path) -> None:
    write_flow(lake, microbatches=3)
    found = list(samples_of_lake(str(lake)))
    counted = {sample.part: sample.value for sample in found if sample.metric is EVENTS}
    assert counted == {"merged": 6, "rejected": 3, "superseded": 0, "redelivered": 0, "stale": 0, "tombstones": 0, "control": 0}
    assert Sample(MICROBATCHES, FLOW, 3) in found
    assert Sample(MICROBATCH_SECONDS, FLOW, 1.25) in found
    assert [sample.metric for sample in found if sample.metric is ROWS] == []


def test_rows_are_counted_by_every_marker(lake: Path) -> None:
    write_flow(lake, microbatches=3)
    found = list(samples_of_lake(str(lake), every_marker=True))
    assert [sample for sample in found if sample.metric is ROWS] == [Sample(ROWS, FLOW, 6, "inserted")]
    assert [sample.value for sample in found if sample.metric is MICROBATCHES] == [3]
    assert len({(sample.metric.name, sample.flow, sample.part) for sample in found}) == len(found)


def test_surveyed_files_that_wait_are_pending_and_others_only_after_a_look(lake: Path, archive: Path) -> None:
    def pending(*, look: bool) -> dict[tuple[str, str], float]:
        gauges = (PENDING_FILES, PENDING_BYTES, LAG_SECONDS)
        found = samples_of_lake(str(lake), look=look)
        return {(sample.flow, sample.metric.name): sample.value for sample in found if sample.metric in gauges}

    write_flow(lake)
    write_flow(lake, OTHER)
    survey(lake, archive, ["a", "b"])
    up_to_date = {(OTHER, metric.name): 0 for metric in (PENDING_FILES, PENDING_BYTES, LAG_SECONDS)}
    # No event of the flow carries the time of its commit: the age is not known.
    assert pending(look=False) == {(FLOW, PENDING_FILES.name): 2, (FLOW, PENDING_BYTES.name): 200, **up_to_date}

    file = archive / OTHER / "partition=0" / f"{OTHER}+0+0000000001.json"
    file.parent.mkdir(parents=True)
    file.write_text("{}\n")
    assert pending(look=False)[OTHER, PENDING_FILES.name] == 0
    looked = pending(look=True)
    assert (looked[OTHER, PENDING_FILES.name], looked[OTHER, PENDING_BYTES.name]) == (1, 3)
    assert looked[FLOW, PENDING_FILES.name] == 2


def test_an_archive_that_is_gone_is_refused_by_a_look_alone(lake: Path, archive: Path) -> None:
    write_flow(lake)
    survey(lake, archive, ["a"])
    archive.rmdir()
    assert list(samples_of_lake(str(lake)))
    with pytest.raises(ArchiveNotFoundError):
        list(samples_of_lake(str(lake), look=True))
