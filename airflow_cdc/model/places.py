"""Places: URIs of a flow's state in a lake.

``folder`` is the name of the flow's folder: :attr:`airflow_cdc.model.state.lake.FlowState.folder`.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from airflow_cdc.model.files import short_hash

STATE_FOLDER = "_cdc"
"""Folder of a lake that holds the package's state."""
REPORTS_FOLDER = f"{STATE_FOLDER}/reports"
"""Folder of the reports of jobs whose drivers run on other machines than their tasks."""
SPELLINGS = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "abfs": "abfss"}
"""Schemes that name the same store as another one."""

# A store may be case-insensitive; and a lake with a _delta_log would pass for a table.
_TAKEN = (STATE_FOLDER, "_delta_log")


def is_place(table: str) -> bool:
    """Return whether a path or URL is one that a table may have, below the lake or elsewhere."""
    folders = table.rstrip("/").split("/")
    return is_whole(table) or (folders[0].lower() not in _TAKEN and not {"", ".", ".."} & set(folders))


def is_whole(table: str) -> bool:
    """Return whether a path names its place by itself, and not below a lake."""
    return "://" in table or table.startswith("/")


def place_in(lake: str, table: str) -> str:
    """Return what a lake's state holds of a table: its path below the lake, or the whole URI of one that is elsewhere.

    A lake that was copied or moved has its own tables: with whole URIs it would go on naming the original's.
    """
    root = f"{lake.rstrip('/')}/"
    below = table.removeprefix(root)
    return below if table.startswith(root) and not is_whole(below) and is_place(below) else table


def is_within(uri: str, root: str) -> bool:
    """Return whether a URI is a root's, or of something below it, as both are spelled."""
    uri, root = in_one_spelling(uri), in_one_spelling(root)
    return (uri == root or uri.startswith(f"{root}/")) and not {".", ".."} & set(uri.split("/"))


def is_same(left: str, right: str) -> bool:
    """Return whether two URIs are of one place, by their spelling."""
    return in_one_spelling(left) == in_one_spelling(right)


def in_one_spelling(uri: str) -> str:
    """Return a URI as one place has it, however its scheme is spelled."""
    scheme, is_url, path = uri.partition("://")
    if is_url and scheme != "file":
        return f"{SPELLINGS.get(scheme, scheme)}://{path}".rstrip("/")
    return re.sub("/{2,}", "/", re.sub("^file:/+", "/", uri)).rstrip("/")


def place_at(lake: str, place: str) -> str:
    """Return the URI of a table, given what :func:`place_in` returned or a flow's settings name."""
    return place if is_whole(place) else f"{lake.rstrip('/')}/{place}"


def flow_folder(flow: str) -> str:
    """Return a flow's folder name: its name, with characters that a path cannot hold as %XX."""
    # These two names are legal for topics, but not for folders.
    return flow.replace(".", "%2E") if flow in {".", ".."} else quote(flow, safe=" ")


def folded_folder(flow: str, *, is_taken: bool) -> str:
    """Return a flow's folder name on a case-insensitive store, where no two flows share one.

    :param is_taken: whether a flow of an older lake, whose name differs only by case, already has the plain name.
    """
    escaped = "".join(f"%{ord(letter):02X}" if "A" <= letter <= "Z" else flow_folder(letter) for letter in flow)
    plain = flow_folder(flow) if flow in {".", ".."} else escaped
    return f"%{ord(plain[0]):02X}{plain[1:]}" if is_taken and plain == flow_folder(flow) else plain


def archive_folder(archive: str) -> str:
    """Return the path below a lake of an archive's state, given the archive's URI."""
    # A local folder has one state, whether given as a path or as a file URL.
    return f"{STATE_FOLDER}/archives/{short_hash(re.sub(r'^file:/+', '/', archive).rstrip('/'))}"


def archive_quarantine_uri(lake: str, archive: str) -> str:
    """Return the URI of the quarantine of records that belong to no flow."""
    return f"{lake.rstrip('/')}/{archive_folder(archive)}/quarantine"


def quarantine_uri(lake: str, folder: str) -> str:
    """Return the URI of a flow's quarantine table."""
    return _state_uri(lake, f"flows/{folder}/quarantine")


def delete_markers_uri(lake: str, folder: str) -> str:
    """Return the URI of a flow's delete markers."""
    return _state_uri(lake, f"flows/{folder}/delete_markers")


def expired_markers_uri(lake: str, folder: str) -> str:
    """Return the URI of a flow's expired delete markers: late events no longer meet them, but files that are read again do."""
    return _state_uri(lake, f"flows/{folder}/expired_markers")


def moves_uri(lake: str, folder: str) -> str:
    """Return the URI of a flow's log of moves: rows that took a new key in an event without all of their values."""
    return _state_uri(lake, f"flows/{folder}/moves")


def staging_uri(lake: str, folder: str) -> str:
    """Return the URI of the folder that holds a flow's reconciled microbatches until they are merged."""
    return _state_uri(lake, f"flows/{folder}/staging")


def events_uri(lake: str, folder: str) -> str:
    """Return the URI of a flow's event log, which flows with versions have."""
    return _state_uri(lake, f"flows/{folder}/events")


def repair_uri(lake: str, folder: str) -> str:
    """Return the URI of the root of the lake in which a flow's table is rebuilt while it is repaired."""
    return _state_uri(lake, f"repairs/{folder}")


def retype_uri(lake: str, folder: str) -> str:
    """Return the URI of the root of the lake in which a flow's table is rebuilt while it is retyped."""
    return _state_uri(lake, f"retypes/{folder}")


def _state_uri(lake: str, path: str) -> str:
    return f"{lake.rstrip('/')}/{STATE_FOLDER}/{path}"
