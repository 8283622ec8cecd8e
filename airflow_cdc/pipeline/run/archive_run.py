"""ArchiveRun: what one run over an archive is asked to do."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archive_shape import ArchiveShape
from airflow_cdc.model.archive.interval import Interval
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.lease import WAIT_SECONDS, Lease
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.locate.file_parts import FlowEnd


@dataclass(frozen=True)
class ArchiveRun:
    """One run over an archive."""

    spark: SparkSession
    archive: str
    """URI of the archive's root."""
    lake: str
    """URI of the lake's root."""
    flows: Mapping[str, CdcFlow] = field(default_factory=dict)
    """Settings by topic; a topic without any gets the defaults."""
    tables: tuple[str, ...] = ()
    """Globs of the flows to apply; none: all."""
    progress: Callable[[str], None] = lambda line: None
    """Told what happens, a line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Told the name of each effect when it is done; tests crash there."""
    check_transactions: bool = False
    """Whether to check the counts of archived transaction topics; costs one more look at each new file."""
    consistent: bool = False
    """Whether the tables of a connector shall end together: at its last whole transaction, or by position where nothing tells. Checks the
    transactions too."""
    interval: Interval = field(default_factory=Interval)
    """When the files were archived that are to be applied; others wait for another run."""
    expected: ArchiveShape = field(default_factory=ArchiveShape)
    """What the archive is said to hold; another file stops the run."""
    parallel: int = min(4, 1 + (os.cpu_count() or 1))
    """Tables merged at a time: one more than there are cores, for each waits now and then."""
    end_of: Callable[[ArchiveState, Ledger, str, Lives], FlowEnd] | None = None
    """Says how far a flow is to be applied, asked once everything is surveyed, with the lives of the topic; None: to its end."""
    only_planned: bool = False
    """Whether to survey and plan nothing, but to finish the microbatches that are planned."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that is writing a flow."""
    lease: Lease | None = None
    """The lease of the only flow in ``tables``, where the caller holds it; None: the run takes one for each flow that has work to do."""
    only_survey: bool = False
    """Whether to look into the new files and apply nothing: runs that follow at the same time need not look into them each."""
