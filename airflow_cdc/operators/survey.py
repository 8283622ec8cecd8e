"""CdcSurveyOperator: submit the Spark job that looks into new files once, before several merges need to know them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.operators.merge import CdcMergeOperator
from airflow_cdc.operators.submit import told_by_airflow

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcSurveyOperator(CdcMergeOperator):
    """Look into an archive's new files, and apply nothing. With no new file it does nothing, without Spark.

    Every merge does so for itself, and of all new files: which tables they hold is not known before. Of several merges that start at the
    same time each would read them, and all but one in vain. Behind this task none does, and groups are planned by what the files hold.

    :param min_bytes: of fewer new bytes none is looked into: the merges that follow do it.
    :param kwargs: what :class:`~airflow_cdc.operators.merge.CdcMergeOperator` takes.
    """

    ui_color = "#e3eef9"

    def __init__(self, *, min_bytes: int = 0, **kwargs: Any) -> None:
        # Its reports tell of no flow.
        super().__init__(**{**kwargs, "skip_if_nothing_pending": False})
        self.min_bytes = min_bytes

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job where there is something to look into."""
        with told_by_airflow():
            new = CdcArchiveHook(self.archive_conn_id).pending(CdcLakeHook(self.lake_conn_id)).unsurveyed
        size = sum(file.size for file in new)
        self.log.info("%s files that no run has looked into (%s bytes).", len(new), size)
        return super().execute(context) if new and size >= self.min_bytes else {}

    def _arguments(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        yield "--only-survey"
        yield from super()._arguments(*args, **kwargs)
