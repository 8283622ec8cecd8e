"""CdcTransactionTrigger: wait in the triggerer until transactions are completely archived."""

from __future__ import annotations

from airflow_cdc.hooks.archive import CdcArchiveHook
from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.look.whole_cut import find_whole_cuts
from airflow_cdc.model.position.as_of import parse_as_of
from airflow_cdc.triggers.look import Answer, CdcLookTrigger


class CdcTransactionTrigger(CdcLookTrigger):
    """Fire when every connector's transactions are completely archived past a moment, or when looking fails."""

    @staticmethod
    def look(*, archive_conn_id: str, lake_conn_id: str, connectors: list[str], past: str | None) -> Answer:  # type: ignore[override]
        """Return how far the transactions are completely archived.

        :param archive_conn_id: connection of the archive.
        :param lake_conn_id: connection of the lake.
        :param connectors: prefixes of topics (``topic.prefix``); none: every connector whose transaction topic is archived.
        :param past: a position or a time in ISO-8601; None: more than the lake's tables hold.
        """
        archive, lake = CdcArchiveHook(archive_conn_id), CdcLakeHook(lake_conn_id)
        found = find_whole_cuts(**archive.beside(lake), connectors=connectors, past=parse_as_of(past) if past else None)
        done = bool(found) and all(cut.is_past for cut in found.values())
        return Answer(done, {"connectors": {prefix: cut.to_json() for prefix, cut in found.items()}})
