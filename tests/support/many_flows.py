"""Flows in any number, written without Spark: files as a sink names them, surveys, and microbatches whose numbers rise and fall."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import fsspec

from airflow_cdc.model.archive.archived_files import ArchivedFile
from airflow_cdc.model.archive.survey import RecordLayout, Survey, TopicShape
from airflow_cdc.model.position.position import Position
from airflow_cdc.model.report.batch_report import BatchReport, EventCounts, RowCounts
from airflow_cdc.model.state.checkpoint import FlowCheckpoint
from airflow_cdc.model.state.flow_documents import CommitMarker
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.microbatch import PlanPosition
from airflow_cdc.model.state_kind import CHECKPOINT, COMMIT_MARKER

FS = fsspec.filesystem("file")


@dataclass(frozen=True)
class Shop:
    """A lake, its archive, and where they lie."""

    lake: Path
    archive: Path


def archived(path: str, size: int) -> ArchivedFile:
    """Return a file of a sink."""
    topic, partition, offset = path.rsplit("/", 1)[-1].removesuffix(".json").rsplit("+", 2)
    return ArchivedFile(path, size, topic, int(partition), int(offset))


def survey_of(shop: Shop, number: int, found: Sequence[tuple[ArchivedFile, str, str, int]]) -> Survey:
    """Return a survey of files, each with its flow, its connector and its number of records."""
    shapes = tuple(shape_of(*each) for each in found)
    return Survey(str(shop.archive), number, tuple(sorted(file for file, *_ in found)), shapes)


def shape_of(file: ArchivedFile, flow: str, connector: str, records: int) -> TopicShape:
    """Return the only shape of a flow's records in a file."""
    first = file.start_offset or 0
    values = ('["id"]', '["id","name","city"]')
    return TopicShape(file.path, flow, RecordLayout.RECORD, "u", connector, 0, *values, True, records, first, first + records - 1)


def reports_of(flow: str, connector: str, *, numbers: Iterable[int], now: datetime, count: int) -> Iterable[tuple[BatchReport, datetime]]:
    """Yield the reports of microbatches, each with when it was committed: ten minutes apart, the last one three minutes ago."""
    seed = sum(map(ord, flow)) % 17
    for number in numbers:
        wave = 1 + math.sin((number + seed) / 4)
        merged, superseded = int(180 * wave) + seed * 7, int(60 * wave * (1 + math.sin(number / 9)))
        stale, rejected = (seed if number % 11 == 3 else 0), (2 if number % 13 == 5 else 0)
        at = now - timedelta(minutes=10 * (count - number) + 3)
        yield (
            BatchReport(
                flow,
                number,
                2,
                merged * 420,
                events=EventCounts(
                    merged + superseded + stale + rejected, merged=merged, superseded=superseded, stale=stale, rejected=rejected
                ),
                rows=RowCounts(inserted=merged // 3, updated=merged // 2, deleted=merged // 9),
                rejects={"value_does_not_fit_column": rejected} if rejected else {},
                applied_through={"0": Position(5 * 10**15 + number * 1000, 7, 1)},
                committed_through=int((at.timestamp() - 40 - 55 * abs(math.sin(number / 6))) * 1000),
                columns_added=("note",) if number == 7 else (),
                table_version=number,
                merge_plan="merge",
                engine="native" if number % 3 else "spark",
                seconds=round(2 + 3 * wave, 2),
            ),
            at,
        )


def write_many(lake: Path, *, flows: int, microbatches: int) -> None:
    """Write the state of many flows: commit markers, checkpoints, surveys; every fifth flow has files that wait. The archive is empty."""
    folder = lake.with_name(f"{lake.name}-archive")
    folder.mkdir(parents=True, exist_ok=True)
    archive = str(folder)
    now = datetime.now(timezone.utc)
    names = [f"server.db{number % 20:02d}.public.table_{number:04d}" for number in range(flows)]
    state = ArchiveState(FS, str(lake), archive)
    all_files = [(archived(f"{name}+0+0000000000.json", 1_000), name, "postgresql", 10) for name in names]
    late = [(archived(f"{name}+0+0000000010.json", 5_000), name, "postgresql", 70) for name in names[::5]]
    for number, found in enumerate((all_files, late), 1):
        assert state.add(survey_of(Shop(lake, Path(archive)), number, found))
    state.ledger()
    for name in names:
        _write_markers(lake, name, archive, count=microbatches, now=now)


def _write_markers(lake: Path, flow: str, archive: str, *, count: int, now: datetime) -> None:
    commits = lake / "_cdc" / "flows" / flow / "commits"
    commits.mkdir(parents=True)
    checkpoint = FlowCheckpoint(flow)
    for report, at in reports_of(flow, "postgresql", numbers=range(1, count + 1), now=now, count=count):
        marker = CommitMarker(f"{lake}/{flow}", report, at.isoformat())
        # Not as a run writes it, durably and one by one: there are a million.
        commits.joinpath(f"{report.microbatch:08d}.json").write_text(json.dumps(COMMIT_MARKER.framed(marker.to_json()), indent=1))
        checkpoint = replace(
            checkpoint,
            number=report.microbatch,
            events=checkpoint.events + report.events,
            committed_through=report.committed_through,
            applied_through=report.applied_through,
            table=f"{lake}/{flow}",
            table_version=report.table_version,
        )
    checkpoint = replace(checkpoint, planned={archive: PlanPosition(2, 0)})
    CHECKPOINT.replace(FS, f"{lake}/_cdc/flows/{flow}/checkpoint.json", checkpoint.to_json())
