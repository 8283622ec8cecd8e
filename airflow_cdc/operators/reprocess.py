"""CdcReprocessOperator: submit the Spark job that reads a range of applied events again and restores what live tables lack."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from airflow_cdc.model.position.as_of import check_range, parse_as_of
from airflow_cdc.operators.read_again import CdcReadAgainOperator


class CdcReprocessOperator(CdcReadAgainOperator):
    """Apply the applied events of a range once more through the guarded path: rows that are right stay, and what they lack is restored.

    The range must hold the last event of each row to restore (docs/how-to/rebuild-and-reprocess.md). For Airflow's data interval:
    ``from_position="{{ data_interval_start }}"``.

    It returns ``{"archive": …, "lake": …, "dry_run": false, "flows": {"server.db.orders": {"files": 2, "events": {…}, "rows": {…},
    "rejects": {}, "microbatches": [8], "table_version": 7}}}``. Without microbatches nothing was changed, and ``rows`` counts what would
    be.

    :param from_position: the first transaction: a position, as text, or a time in ISO-8601; none: from the beginning. (templated)
    :param to_position: the last transaction, likewise; none: to the end of what is applied. (templated)
    :param kwargs: other arguments of :class:`airflow_cdc.operators.read_again.CdcReadAgainOperator`.
    """

    template_fields: Sequence[str] = (*CdcReadAgainOperator.template_fields, "from_position", "to_position")
    job = "reprocess.py"

    def __init__(self, *, from_position: str | None = None, to_position: str | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.from_position = from_position
        self.to_position = to_position

    def asked(self) -> Iterator[str]:
        """Yield the range."""
        first, last = (parse_as_of(str(text)) if text else None for text in (self.from_position, self.to_position))
        check_range(first, last)
        for name, bound in (("--from-position", first), ("--to-position", last)):
            if bound:
                yield from (name, bound.text)
