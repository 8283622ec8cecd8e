"""merge_arguments: the command line of the job ``apply.py``, whoever submits it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from airflow_cdc.hooks.archive import CdcArchiveHook, table_globs
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.archive.archive_shape import ArchiveShape
from airflow_cdc.model.archive.interval import Interval

if TYPE_CHECKING:
    from airflow_cdc.operators.merge import CdcMergeOperator
    from airflow_cdc.submitters.cdc_job import CdcJob


def merge_arguments(
    asked: CdcMergeOperator | CdcJob, archive: CdcArchiveHook, lake: CdcLakeHook, interval: Interval, report: str
) -> Iterator[str]:
    """Yield the arguments, not encoded.

    :param asked: what is asked, besides where: the parameters that both have, rendered.
    :param interval: the archiving interval of the files that the run takes.
    :param report: URI at which the job writes its report.
    """
    yield from ("--archive", archive.root, "--lake", lake.root)
    if asked.flows_file:
        yield from ("--flows", asked.flows_file)
    for glob in table_globs(asked.tables):
        yield from ("--table", glob)
    if asked.check_transactions:
        yield "--check-transactions"
    if asked.consistent:
        yield "--consistent"
    if engine := asked.engine or lake.engine:
        yield from ("--engine", engine)
    for name, moment in (("--since", interval.since), ("--until", interval.until)):
        if moment:
            yield from (name, moment.isoformat())
    if archive.shape != ArchiveShape():
        yield from ("--layout", archive.shape.layout.value, "--format", archive.shape.format.value)
    yield from ("--report", report)
