"""Assets of merged tables: their names in Dags, and the events that a merge emits."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, unquote, urlsplit

from airflow import __version__ as airflow_version
from airflow.providers.common.compat.sdk import Asset, AssetAlias
from packaging.version import Version

from airflow_cdc.hooks.lake import CdcLakeHook
from airflow_cdc.model.errors import ConfigurationError
from airflow_cdc.model.report.apply_report import FlowOutcome

if TYPE_CHECKING:
    from airflow.providers.common.compat.sdk import Context

_SCHEME, _KIND = "x-cdc", "lake"
_ALIASES_TAKE_OBJECTS = Version(airflow_version).release >= (3, 3)


@dataclass(frozen=True)
class TableName:
    """Which table an asset stands for."""

    lake_conn_id: str
    flow: str


def table_asset(flow: str, *, lake_conn_id: str = CdcLakeHook.default_conn_name, extra: dict[str, Any] | None = None) -> Asset:
    """Return the asset of a flow's table: an outlet of the merge, on which other Dags can be scheduled.

    Its URI names the lake by its connection, ``x-cdc://lake/<lake_conn_id>/<flow>``: one Dag file serves every environment, and parsing it
    needs no look-up.

    :param flow: name of the flow, its topic.
    :param lake_conn_id: connection of the lake, as the merge names it.
    :param extra: the asset's own extra; hooks that report lineage may give one.
    """
    # Airflow keeps x-… URIs unchanged, but would drop two slashes of delta:///path.
    return Asset(f"{_SCHEME}://{_KIND}/{quote(lake_conn_id, safe='')}/{quote(flow, safe='')}", extra=extra or {})


def tables_alias(lake_conn_id: str = CdcLakeHook.default_conn_name) -> AssetAlias:
    """Return the alias of all tables that a merge changes: an outlet where no Dag file knows the tables' names.

    A Dag that is scheduled on it runs when any table of the lake changed.

    :param lake_conn_id: connection of the lake, as the merge names it.
    """
    return AssetAlias(f"cdc_tables:{lake_conn_id}")


def table_of(uri: str) -> TableName | None:
    """Return the table that an asset's URI names; None for another asset."""
    parts = urlsplit(uri)
    if (parts.scheme, parts.netloc) != (_SCHEME, _KIND):
        return None
    names = [unquote(name) for name in parts.path.split("/")[1:]]
    return TableName(*names) if len(names) == 2 and all(names) else None


def table_extra(flow: FlowOutcome) -> dict[str, Any]:
    """Return the extra of a table asset's event.

    ``applied_position``, ``events`` and ``rows`` describe the run that emits the event. They are left out where an earlier try or run made
    the change.
    """
    extra: dict[str, Any] = {"flow": flow.flow, "table": flow.table, "table_version": flow.table_version}
    if not flow.changed:
        return extra
    position = {partition: position.to_json() for partition, position in flow.applied_position.items()}
    return {**extra, "applied_position": position, "events": dict(vars(flow.events)), "rows": dict(vars(flow.rows))}


def refuse_foreign_tables(outlets: Sequence[Any], lake_conn_id: str) -> None:
    """Refuse an outlet that is a table of another lake connection than the task's: its event would never come.

    :raises ConfigurationError: naming the first.
    """
    for outlet in outlets:
        table = table_of(outlet.uri) if isinstance(outlet, Asset) else None
        if table and table.lake_conn_id != lake_conn_id:
            raise ConfigurationError(
                f"Outlet {outlet.uri} is a table of lake {table.lake_conn_id}, and the task merges into {lake_conn_id}.",
                next_step="Give table_asset and the task the same lake_conn_id.",
            )


def announce_assets(
    context: Context, outlets: Sequence[Any], *, lake_conn_id: str, tables: Mapping[str, Mapping[str, Any]], run: Mapping[str, Any]
) -> list[Any]:
    """Set each outlet's event, and return the outlets that have one: Airflow records an event for every outlet that a task keeps.

    :param tables: by flow: the event extra of each changed table. A table's asset is kept only if its flow is among them. An alias gets an
        event on the asset of each.
    :param run: event extra of every other asset.
    """
    kept = []
    for outlet in outlets:
        if isinstance(outlet, AssetAlias):
            for flow, extra in tables.items():
                context["outlet_events"][outlet].add(table_asset(flow, lake_conn_id=lake_conn_id), extra=_alias_extra(extra))
        elif isinstance(outlet, Asset):
            table = table_of(outlet.uri)
            if table and table.flow not in tables:
                continue
            context["outlet_events"][outlet].extra = dict(tables[table.flow] if table else run)
        kept.append(outlet)
    return kept


def _alias_extra(extra: Mapping[str, Any]) -> dict[str, Any]:
    # Airflow 3.1 puts an alias event's extra into a set: an object in it fails the task after it succeeded.
    return {name: json.dumps(value) if isinstance(value, dict) and not _ALIASES_TAKE_OBJECTS else value for name, value in extra.items()}
