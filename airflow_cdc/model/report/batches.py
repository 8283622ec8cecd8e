"""The microbatches in a job's report, whichever job it was."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow_cdc.model.report.apply_report import ApplyReport, FlowOutcome
from airflow_cdc.model.report.batch_report import BatchReport
from airflow_cdc.model.report.reprocessing import ReprocessReport


def batches_by_flow(report: Any) -> Iterator[tuple[str, Sequence[BatchReport]]]:
    """Yield each flow with its committed microbatches: of a run or rebuild, or of files and records that were read again.

    Other reports have none.
    """
    if isinstance(report, ApplyReport | ReprocessReport):
        for flow in report.flows:
            yield flow.flow, flow.batches if isinstance(flow, FlowOutcome) else flow.done
