"""An event's position, and the kind of snapshot that a read belongs to, as SQL over the parsed envelope (``payload``)."""

from __future__ import annotations

from airflow_cdc.model.columns import KIND, ORDINAL, PARTITION
from airflow_cdc.model.connectors.connector import Connector
from airflow_cdc.model.position.epochs import Epochs
from airflow_cdc.model.position.lives import LANES
from airflow_cdc.pipeline.decode.key_changes import HALF
from airflow_cdc.pipeline.decode.lanes import in_epoch

POSITION_TYPE = "STRUCT<commit: DECIMAL(38,0), change: DECIMAL(38,0), serial: BIGINT>"
INITIAL = " initial"
"""Suffix of the marker (:data:`~airflow_cdc.model.columns.SNAPSHOT`) of a read that only an initial snapshot makes."""


def position_of_event(connector: Connector, epochs: Epochs, *, are_split: bool = False) -> str:
    """Return the SQL of an event's position (:data:`POSITION_TYPE`) in its epoch of the source's log.

    :param are_split: whether events may be halves of a key change.
    """
    rule = connector.position
    commit, change, serial = (part.replace("source.", "payload.source.") for part in (rule.commit, rule.change, rule.serial))
    if are_split:
        serial = f"{serial} + if({HALF} = 2, 1, 0)"
    if rule.is_offset:
        # All offsets of a later life of the topic sort after those of an earlier one.
        life = f"CAST(floor(coalesce({PARTITION}, 0) / {LANES}) AS DECIMAL(10,0))"
        commit = f"if({ORDINAL}.offset IS NULL, {commit}, CAST({commit} + {life} * {2**63}BD AS DECIMAL(38,0)))"
    commit = in_epoch(commit, epochs)
    streamed = f"named_struct('commit', {commit}, 'change', {change}, 'serial', {serial})"
    # A snapshot read sorts before everything streamed from its commit on.
    read = f"named_struct('commit', {commit}, 'change', CAST(-1 AS DECIMAL(38,0)), 'serial', -1)"
    return f"CAST(if({KIND} = 'r', {read}, {streamed}) AS {POSITION_TYPE})"


def snapshot_marker(connector: Connector) -> str:
    """Return the SQL of ``source.snapshot``, with :data:`INITIAL` appended to reads that only an initial snapshot makes.

    NULL if the connector marks no snapshots.
    """
    if not connector.snapshots.are_marked:
        return "CAST(NULL AS STRING)"
    marker, initial = "payload.source.snapshot", connector.snapshots.initial.replace("source.", "payload.source.")
    if not initial:
        return marker
    return f"if({KIND} = 'r' AND {marker} <> 'incremental' AND {initial}, concat({marker}, '{INITIAL}'), {marker})"
