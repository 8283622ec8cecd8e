"""ArchiveRun: the settings of one run over an archive."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from pyspark.sql import SparkSession

from airflow_cdc.model.archive.archive_shape import ArchiveShape
from airflow_cdc.model.archive.interval import Interval
from airflow_cdc.model.flow.cdc_flow import CdcFlow
from airflow_cdc.model.flow.engine import DEFAULT_ENGINE, Engine
from airflow_cdc.model.flow.routes import with_defaults
from airflow_cdc.model.position.lives import Lives
from airflow_cdc.model.state.lake import ArchiveState
from airflow_cdc.model.state.lease import WAIT_SECONDS, Lease
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.pipeline.locate.file_parts import FlowEnd
from airflow_cdc.pipeline.run.step import Step


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
    """Globs of the flows to apply; empty: all."""
    progress: Callable[[str], None] = lambda line: None
    """Receives progress messages, one line at a time."""
    after_effect: Callable[[str], None] = lambda effect: None
    """Receives the name of each effect once it is done; tests crash there."""
    check_transactions: bool = False
    """Whether to check the counts of archived transaction topics; costs one more pass over each new file."""
    consistent: bool = False
    """Whether the tables of a connector end together: at its last complete transaction, or by position without transaction topics. Checks
    the transactions too."""
    interval: Interval = field(default_factory=Interval)
    """Archiving times of the files to apply; other files wait for another run."""
    expected: ArchiveShape = field(default_factory=ArchiveShape)
    """Declared shape of the archive; a file that does not match stops the run."""
    parallel: int = min(4, 1 + (os.cpu_count() or 1))
    """Number of tables merged in parallel: one more than there are cores, because each waits at times."""
    end_of: Callable[[ArchiveState, Ledger, str, Lives], FlowEnd] | None = None
    """Returns how far to apply a flow. Called after the survey, with the lives of the topic; None: to its end."""
    only_planned: bool = False
    """Whether to survey and plan nothing, and only finish planned microbatches."""
    wait_seconds: float = WAIT_SECONDS
    """How long to wait for another run that writes a flow."""
    lease: Lease | None = None
    """The lease of the only flow in ``tables``, if the caller holds it; None: the run takes one for each flow with work to do."""
    engine: Engine | None = None
    """The engine of all flows in this run; None: each flow's own."""
    only_survey: bool = False
    """Whether to survey the new files and apply nothing, so that parallel runs that follow need not survey each."""
    watch: Callable[[Step], None] = lambda step: None
    """Receives each step of each flow, from several threads."""

    @property
    def may_survey_natively(self) -> bool:
        """Whether plain files may be surveyed without Spark: not where every flow is Spark's."""
        of_others = with_defaults(self.flows, CdcFlow("any other"))
        engines = {self.engine} if self.engine else {flow.engine or DEFAULT_ENGINE for flow in (of_others, *self.flows.values())}
        return engines != {Engine.SPARK}
