"""CdcReplayOperator: submit the Spark job that reads quarantined records again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow_cdc.hooks.archive import table_globs
from airflow_cdc.model.report.reprocessing import check_reasons
from airflow_cdc.operators.read_again import CdcReadAgainOperator


class CdcReplayOperator(CdcReadAgainOperator):
    """Read the files with quarantined records again, with the present flows file, and merge what can be merged.

    Records that still cannot be merged are in the quarantine with their present reason; they do not fail the task.

    It returns the same as :class:`airflow_cdc.operators.reprocess.CdcReprocessOperator`; ``rejects`` counts by reason the remaining rejects
    of the files that were read.

    :param reasons: only files with records that were rejected for one of these reasons, as a sequence or one text with commas; none: all.
        (templated)
    :param kwargs: other arguments of :class:`airflow_cdc.operators.read_again.CdcReadAgainOperator`.
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
