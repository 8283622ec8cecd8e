"""CdcRetypeOperator: submit the Spark job that makes tables anew with the types that are known now."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from airflow_cdc.model.report.retyping import RetypeReport
from airflow_cdc.operators.read_again import CdcReadAgainOperator


class CdcRetypeOperator(CdcReadAgainOperator):
    """Make flows' tables anew from the archive with the types that are known now, and put them in the place of the live ones.

    Each table is made beside the live one first, by the flows file and the handed over schemas of today. The archive must hold all files
    that the flows applied. A retry goes on where the try before it was cut off. Name the tables: each is made anew, also where no type
    changes.

    It returns ``{"archive": …, "lake": …, "dry_run": false, "flows": {"server.db.orders": {"done": true, "columns": {"total": {"before":
    "STRING", "now": "DECIMAL(12,2)"}}, "rows": {"before": 5, "now": 5}, "rejects": {"before": 2, "now": 0}}}}``.

    :param kwargs: everything else that :class:`airflow_cdc.operators.read_again.CdcReadAgainOperator` takes.
    """

    job = "retype.py"

    def asked(self) -> Iterator[str]:
        """Yield nothing: the types are those of the flows file and the lake."""
        yield from ()

    def parse(self, document: dict[str, Any]) -> RetypeReport:
        """Return the job's report, made of its JSON."""
        return RetypeReport.from_json(document)
