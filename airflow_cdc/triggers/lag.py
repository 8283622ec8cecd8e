"""CdcLagTrigger: wait in the triggerer until a lake's tables are close behind the archive."""

from __future__ import annotations

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.metrics import send_known_lag
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.look.lag import lag_summary
from airflow_cdc.triggers.look import Answer, CdcLookTrigger


class CdcLagTrigger(CdcLookTrigger):
    """Fire when the lag is within every bound, or when looking fails."""

    @staticmethod
    def look(  # type: ignore[override]
        *,
        archive_conn_id: str,
        lake_conn_id: str,
        tables: list[str],
        max_files: int | None,
        max_bytes: int | None,
        max_seconds: float | None,
    ) -> Answer:
        """Return the tables' lag, and send it to Airflow's metrics.

        :param archive_conn_id: connection of the archive.
        :param lake_conn_id: connection of the lake.
        :param tables: globs of flow names; none: every flow.
        :raises ConfigurationError: when there is no bound.
        """
        if max_files is None and max_bytes is None and max_seconds is None:
            raise ConfigurationError("The lag has no bound, so it is below none.", next_step="Give max_files, max_bytes or max_seconds.")
        archive, lake = CdcArchiveHook(archive_conn_id), CdcLakeHook(lake_conn_id)
        together, flows = archive.lag(lake, tables)
        send_known_lag(lake, tables, flows)
        done = together.is_within(max_files=max_files, max_bytes=max_bytes, max_seconds=max_seconds)
        return Answer(done, lag_summary(together, flows))
