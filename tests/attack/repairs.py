"""What keepers of a lake do: read parts of the archive again, build a table anew, let delete markers expire, compact."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from airflow_cdc.model.places import delete_markers_uri, expired_markers_uri
from airflow_cdc.model.position.as_of import AsOf, parse_as_of
from airflow_cdc.model.report.maintenance import MaintenanceSettings
from airflow_cdc.pipeline.repair.rebuild import Rebuild, rebuild
from airflow_cdc.pipeline.repair.replay_quarantine import replay_quarantine
from airflow_cdc.pipeline.repair.reprocess import Reprocessing, reprocess
from airflow_cdc.pipeline.upkeep.maintain import MaintenanceRun, maintain
from tests.attack.dialects import FIRST_COMMIT
from tests.attack.runs import Lake, Run, Status, attempt, judge_report, large_from
from tests.attack.source import TOPIC


def moment(committed_at: int) -> AsOf:
    """Return the time of a commit, as people write it."""
    at = datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=FIRST_COMMIT + committed_at)
    return parse_as_of(at.isoformat(timespec="milliseconds"))


def reprocess_range(lake: Lake, first: int | None = None, last: int | None = None) -> Run:
    """Read again what was applied of a range of commits."""
    first_moment, last_moment = (None if each is None else moment(each) for each in (first, last))

    def do() -> Run | None:
        order = Reprocessing(lake.session, str(lake.archive), str(lake.root), TOPIC, first_moment, last_moment, flows=lake.flows)
        report = reprocess(order).report
        return judge_report(report) if report else None

    return _in(lake, do)


def replay(lake: Lake) -> Run:
    """Read again the files that hold rejected records."""

    def do() -> None:
        replay_quarantine(Reprocessing(lake.session, str(lake.archive), str(lake.root), TOPIC, flows=lake.flows), ())

    return _in(lake, do)


def rebuild_into(lake: Lake, into: Path, as_of: int | None = None) -> Run:
    """Build the table anew in another lake, as it was behind a commit."""

    def do() -> Run:
        when = None if as_of is None else moment(as_of)
        return judge_report(rebuild(Rebuild(lake.session, str(lake.archive), str(lake.root), (TOPIC,), when, str(into), lake.flows)))

    return _in(lake, do)


def maintain_lake(lake: Lake) -> Run:
    """Compact, purge, and let all delete markers expire."""
    settings = MaintenanceSettings(expire_after=timedelta(0), keep_microbatches=1, compact_from=2, purge_from=0.01)

    def do() -> Run:
        report = maintain(MaintenanceRun(lake.session, str(lake.root), settings=settings))
        causes = str(report.causes())
        return Run(Status.DONE if report.ok else Status.NEEDS_SPARK if "NeedsSpark" in causes else Status.REFUSED, causes)

    return _in(lake, do)


def expire_markers(lake: Lake) -> None:
    """Move all delete markers to where maintenance moves those that are old, without Spark."""
    markers, expired = delete_markers_uri(str(lake.root), TOPIC), expired_markers_uri(str(lake.root), TOPIC)
    if (Path(markers) / "_delta_log").exists():
        table = DeltaTable(markers)
        write_deltalake(expired, pa.table(table.to_pyarrow_table()), mode="append")
        table.delete()


def compact(lake: Lake) -> None:
    """Rewrite the table's files, as somebody else's OPTIMIZE does."""
    if lake.table.exists() and not lake.is_marked:
        DeltaTable(str(lake.table)).optimize.compact()


def _in(lake: Lake, do: Callable[[], Run | None]) -> Run:
    with large_from(0 if lake.is_marked else None):
        return attempt(do)
