"""CdcReplayOperator: submit the Spark job that reads quarantined records again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.model.report.reprocessing import check_reasons
from airflow_cdc.operators.read_again import CdcReadAgainOperator


class CdcReplayOperator(CdcReadAgainOperator):
    """Read again the files of which records are in the flows' quarantines, under the flows file as it is now, and merge what can be.

    Records that still cannot be merged stand in the quarantine with the reason that they have now; they do not fail the task.

    It returns what :class:`airflow_cdc.operators.reprocess.CdcReprocessOperator` does; ``rejects`` counts by reason what stays set aside of
    the files that were read.

    :param reasons: only files with records that were set aside for one of these reasons, as a sequence or one text with commas; none:
        all. (templated)
    :param kwargs: everything else that :class:`airflow_cdc.operators.read_again.CdcReadAgainOperator` takes.
    """

    template_fields: Sequence[str] = (*CdcReadAgainOperator.template_fields, "reasons")
    job = "replay.py"

    def __init__(self, *, reasons: str | Sequence[str] | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.reasons = reasons

    def asked(self) -> Iterator[str]:
        """Yield the reasons."""
        reasons = table_globs(self.reasons)
        check_reasons(reasons)
        for reason in reasons:
            yield from ("--reason", reason)
