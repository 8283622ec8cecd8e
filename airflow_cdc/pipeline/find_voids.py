"""Find what truncates and proven snapshots make void: events of the microbatch, and rows of the target."""

from __future__ import annotations

from dataclasses import dataclass

from airflow_cdc.model.snapshot import Snapshot
from airflow_cdc.pipeline.count_events import Truncates, before
from airflow_cdc.pipeline.find_snapshot import Snapshots, stands_before
from airflow_cdc.pipeline.flag_deletes import Vanishing
from airflow_cdc.pipeline.microbatch_run import MicrobatchRun
from airflow_cdc.pipeline.physical_tables import PhysicalTables


@dataclass(frozen=True)
class Voids:
    """What truncates and proven snapshots make void."""

    here: str
    """SQL: a change that one of this microbatch cancels."""
    before: str
    """SQL: a change that one of an earlier microbatch shields the table from."""
    rows: tuple[Vanishing, ...] = ()
    """What takes rows of the target; the newest last."""


def find_voids(
    run: MicrobatchRun, truncates: Truncates, snapshots: Snapshots, tables: PhysicalTables, *, are_copies: bool = False
) -> Voids:
    """Return what the microbatch's truncates and snapshots, and those of earlier ones, make void.

    :param are_copies: whether events below an earlier position of their lane were found to be copies of archived ones: then their
        offsets say nothing.
    """
    takers = [
        Vanishing(position, truncates.committed_micros.get(table), truncated(table, tables, truncates, alias="t."))
        for table, position in sorted(truncates.through.items(), key=lambda item: item[1])
    ]
    if snapshots.replacing and snapshots.replacing.cut:
        takers.append(Vanishing(snapshots.replacing.cut, None, not_found(snapshots.replacing, tables, "t.")))
    here = [truncated(table, tables, truncates) for table in sorted(truncates.through)] + [not_found(snapshots.replacing, tables)]
    earlier = Truncates(through=run.checkpoint.truncated_through)
    shields = [truncated(table, tables, earlier) for table in sorted(earlier.through)] + [not_found(snapshots.shield, tables)]
    if are_copies and snapshots.shield:
        shields.append(f"({before(snapshots.shield.cut)} AND {tables.rows_of(snapshots.shield.tables)})")
    return Voids(_any(here), _any(shields), tuple(sorted(takers, key=lambda taker: taker.position)))


def truncated(table: str, tables: PhysicalTables, truncates: Truncates, alias: str = "") -> str:
    """Return the SQL that is true for what a truncate of a table took."""
    return f"({before(truncates.through[table], alias)} AND {tables.rows_of([table], alias)})"


def not_found(snapshot: Snapshot | None, tables: PhysicalTables, alias: str = "") -> str:
    """Return the SQL that is true for what stands before a snapshot that removed what it did not find."""
    if snapshot is None or snapshot.cut is None:
        return "false"
    return f"({stands_before(snapshot, alias)} AND {tables.rows_of(snapshot.tables, alias)})"


def _any(conditions: list[str]) -> str:
    return f"({' OR '.join(conditions)})"
