"""Set a microbatch back that merged nothing and set nothing aside: its files stay pending."""

from __future__ import annotations

from airflow_cdc.model.archive.survey import READER
from airflow_cdc.model.state.lake import ArchiveState, FlowState
from airflow_cdc.model.state.ledger import Ledger
from airflow_cdc.model.state.microbatch import Microbatch


def set_back(archive: ArchiveState, ledger: Ledger, flow: FlowState, microbatch: Microbatch) -> None:
    """Leave a microbatch's files pending: a later one may own more files beside them.

    What an older survey found to be of no known shape is surveyed again, because today's readers may know it.
    """
    paths = {file.path for file in microbatch.files}
    for survey in archive.pending_surveys(flow.checkpoint(), ledger):
        if survey.reader < READER:
            archive.mark_changed(file for file in survey.files if file.path in paths - survey.void)
    flow.withdraw(microbatch)
