"""CdcLakeHook: where the Delta tables and their flows' state are."""

from __future__ import annotations

from typing import Any

from airflow_cdc.hooks.connection_fields import extra
from airflow_cdc.hooks.storage import CdcStorageHook
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.flow.engine import engine_of
from airflow_cdc.model.places import is_whole
from airflow_cdc.model.state.lake import flows_in

_NAMED = 5


class CdcLakeHook(CdcStorageHook):
    """Reach a lake: the folder of the target tables and of the flows' state.

    :param lake_conn_id: connection of type ``cdc_lake``.
    """

    conn_name_attr = "lake_conn_id"
    default_conn_name = "cdc_lake_default"
    conn_type = "cdc_lake"
    hook_name = "CDC lake"
    what = "lake"
    example = "s3://bucket/lake"

    def __init__(self, lake_conn_id: str = default_conn_name, **kwargs: Any) -> None:
        super().__init__(lake_conn_id, **kwargs)

    def flows(self) -> list[str]:
        """Return the names of the flows with state in the lake."""
        return flows_in(self.fs, self.fs_root)

    @property
    def engine(self) -> str | None:
        """Engine of all merges into the lake whose task names none; None: each flow's setting.

        :raises ConfigurationError: when the connection names no engine.
        """
        named: str | None = extra(self.connection, "engine")
        return (found := engine_of(named)) and found.value

    @property
    def page_reads(self) -> tuple[str, ...]:
        """Folders outside of the lake that the page may read: of tables that are elsewhere, and of archives without a listed connection.

        :raises ConfigurationError: when they are no texts.
        """
        found = extra(self.connection, "page_reads") or ()
        given = [part.strip() for part in found.split(",")] if isinstance(found, str) else found
        if not isinstance(given, list | tuple) or not all(isinstance(each, str) and is_whole(each) for each in given):
            raise ConfigurationError(
                f"Connection {self.conn_id}: page_reads is {found!r}, expected paths or URLs.",
                next_step='Correct the extra of the connection: {"page_reads": "s3://bucket/tables, /data/archive"}.',
            )
        return tuple(given)

    def _findings(self) -> str:
        if not self.fs.exists(self.fs_root):
            self.refuse_missing_bucket()
            return f"{self.root} can be reached and does not exist yet; the first merge creates it."
        flows = self.flows()
        if not flows:
            return f"{self.root} is there and holds no flow yet."
        named = ", ".join(flows[:_NAMED]) + (", …" if len(flows) > _NAMED else "")
        return f"{self.root} holds {len(flows)} flows: {named}."
