"""CdcRetypeOperator: submit the Spark job that rebuilds tables with the types that are known now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_cdc.model.report.retyping import RetypeReport
from airflow_cdc.operators.read_again import CdcReadAgainOperator


class CdcRetypeOperator(CdcReadAgainOperator):
    """Rebuild flows' tables from the archive with the types that are known now, and replace the live ones.

    Each table is first built beside the live one, with the present flows file and imported schemas. The archive must hold all files that
    the flows applied. A retry resumes where the earlier try was interrupted. Name the tables: each is rebuilt, even where no type changes.

    It returns ``{"archive": …, "lake": …, "dry_run": false, "flows": {"server.db.orders": {"done": true, "columns": {"total": {"before":
    "STRING", "now": "DECIMAL(12,2)"}}, "rows": {"before": 5, "now": 5}, "rejects": {"before": 2, "now": 0}}}}``.

    :param kwargs: other arguments of :class:`airflow_cdc.operators.read_again.CdcReadAgainOperator`.
    """

    job = "retype.py"

    def asked(self) -> Iterator[str]:
        """Yield nothing: the types are those of the flows file and the lake."""
        yield from ()

    def parse(self, document: dict[str, Any]) -> RetypeReport:
        """Return the job's report from its JSON."""
        return RetypeReport.from_json(document)
