"""The rest of a file whose first part is applied, among files that came meanwhile: the log did not go back."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from deltalake import DeltaTable

from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.report.apply_report import ApplyReport
from tests.conftest import Apply
from tests.support.events import Record, Row, sqlserver, write_records

TABLE, OTHER = "srv.shop.t", "srv.shop.o"


class Archive:
    """Two tables of one connector; each file is a microbatch of its own."""

    def __init__(self, folder: Path, apply: Apply) -> None:
        self.folder, self.lake, self._apply = folder / "archive", folder / "lake", apply
        self._others = 0

    def write(self, name: str, *records: Record) -> None:
        write_records(self.folder / f"{name}.jsonl", records)

    def ends_at(self, position: int) -> None:
        """Archive an event of the other table: consistent runs end behind it."""
        row = {"id": 1, "v": str(position)}
        self.write(f"other-{position}", sqlserver("u", commit=position, after=row, topic=OTHER, offset=self._others))
        self._others += 1

    def takes_a_part(self, late: Sequence[Record], third: Record) -> None:
        """Hold files back behind a cut, and apply the first half of B: offset 2."""
        self.write("C", *late)
        self.ends_at(150)
        self.run()
        assert not (self.lake / TABLE).exists()
        self.write("A", *FIRST)
        self.write("B", event(2, "u", 1, "a2", at=300), third)
        self.ends_at(310)
        self.run()
        assert self.rows() == [{"id": 1, "v": "a2"}]

    def run(self, *, consistent: bool = True) -> ApplyReport:
        flows = {topic: CdcFlow(topic, max_microbatch_bytes=1) for topic in (TABLE, OTHER)}
        return self._apply(self.folder, self.lake, flows=flows, consistent=consistent)

    def rows(self) -> list[Row]:
        found = DeltaTable(str(self.lake / TABLE)).to_pyarrow_table(columns=["id", "v"]).to_pylist()
        return sorted(found, key=lambda row: int(row["id"]))


def event(offset: int, op: str, row: int, value: str, *, at: int) -> Record:
    return sqlserver(op, commit=at, after={"id": row, "v": value}, topic=TABLE, offset=offset)


FIRST = [event(0, "c", 1, "a0", at=100), event(1, "u", 1, "a1", at=200)]
LAST = event(4, "u", 1, "a3", at=500)


@pytest.fixture
def archive(tmp_path: Path, apply: Apply) -> Archive:
    return Archive(tmp_path, apply)


def test_the_rest_of_a_file_comes_behind_a_file_with_higher_offsets(archive: Archive) -> None:
    archive.takes_a_part([LAST], event(3, "c", 2, "b", at=400))
    archive.ends_at(600)
    archive.run()
    assert archive.rows() == [{"id": 1, "v": "a3"}, {"id": 2, "v": "b"}]
    archive.run(consistent=False)
    assert archive.rows() == [{"id": 1, "v": "a3"}, {"id": 2, "v": "b"}]


def test_a_copy_comes_before_the_rest_with_its_first_delivery(archive: Archive) -> None:
    """The connector restarts behind offset 4, and sends offsets 3 and 4 again."""
    archive.takes_a_part([LAST, event(5, "u", 1, "b", at=400), {**LAST, "offset": 6}], event(3, "u", 1, "b", at=400))
    archive.ends_at(600)
    report = archive.run()
    assert archive.rows() == [{"id": 1, "v": "a3"}]
    (flow,) = (each for each in report.flows if each.flow == TABLE)
    assert flow.events.read == flow.events.accounted() == 4
