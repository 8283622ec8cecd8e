"""CdcSurveyOperator: submit the Spark job that surveys new files once, before several merges need them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.operators.airflow_errors import as_airflow_errors
from airflow_cdc.operators.merge import CdcMergeOperator

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context


class CdcSurveyOperator(CdcMergeOperator):
    """Survey an archive's new files, and apply nothing. With no new file it does nothing, without Spark.

    Every merge surveys all new files itself, because the tables that they hold are not known before. Of several merges that start at the
    same time each would read them, all but one in vain. After this task none does, and groups are planned by the files' content.

    :param min_bytes: with fewer new bytes, no file is surveyed: the merges that follow do it.
    :param kwargs: arguments of :class:`~airflow_cdc.operators.merge.CdcMergeOperator`.
    """

    ui_color = "#e3eef9"

    def __init__(self, *, min_bytes: int = 0, **kwargs: Any) -> None:
        # Its reports contain no flow.
        super().__init__(**{**kwargs, "skip_if_nothing_pending": False})
        self.min_bytes = min_bytes

    def execute(self, context: Context) -> dict[str, Any]:  # type: ignore[override]
        """Submit the job if there are files to survey."""
        with as_airflow_errors():
            new = CdcArchiveHook(self.archive_conn_id).pending(CdcLakeHook(self.lake_conn_id)).unsurveyed
        size = sum(file.size for file in new)
        self.log.info("%s files that no run has looked into (%s bytes).", len(new), size)
        return super().execute(context) if new and size >= self.min_bytes else {}

    def _arguments(self, *args: Any, **kwargs: Any) -> Iterator[str]:
        yield "--only-survey"
        yield from super()._arguments(*args, **kwargs)
