"""Places: where a lake keeps what it knows of a flow, as URIs."""

from __future__ import annotations

from urllib.parse import quote

STATE_FOLDER = "_cdc"
"""Folder of a lake that holds what the package knows of it."""


def flow_folder(flow: str) -> str:
    """Return the folder name of a flow: its name with what a path cannot hold written as %XX."""
    return quote(flow, safe=" ")


def quarantine_uri(lake: str, flow: str) -> str:
    """Return the URI of a flow's quarantine table."""
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/flows/{flow_folder(flow)}/quarantine"


def delete_markers_uri(lake: str, flow: str) -> str:
    """Return the URI of a flow's delete markers."""
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/flows/{flow_folder(flow)}/delete_markers"


def expired_markers_uri(lake: str, flow: str) -> str:
    """Return the URI of a flow's delete markers that late events do not meet any more, but files that are read again do."""
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/flows/{flow_folder(flow)}/expired_markers"


def staging_uri(lake: str, flow: str) -> str:
    """Return the URI of the folder where a flow's reconciled microbatches lie until they are merged."""
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/flows/{flow_folder(flow)}/staging"


def events_uri(lake: str, flow: str) -> str:
    """Return the URI of a flow's own change log, which flows that keep every version have."""
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/flows/{flow_folder(flow)}/events"


def repair_uri(lake: str, flow: str) -> str:
    """Return the URI of the root of the lake in which a flow's table is rebuilt while it is repaired."""
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/repairs/{flow_folder(flow)}"
